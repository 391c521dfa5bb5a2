"""Bidirectional attention without a score ever leaving the core; runs on one core or two.

For a block of queries of a few heads, scores are computed twice. First with queries on partitions, in one TensorE pass
per tile, only for their row maximum, which VectorE reads from PSUM. Then with keys on partitions, less that maximum,
which rides along as one more row of the contraction: ScalarE takes exp straight from PSUM, its result is the stationary
operand of the product with v, and a column of ones beside v sums the weights. Nothing is transposed but q and k, the
sums need no rescaling, and TensorE, VectorE and ScalarE are about equally busy.
"""

import nki
import nki.language as nl

from ..common.tuning import tiles_for
from .block import Block
from .plan import TILES, Plan
from .stacks import Frames, heads_first, stacked
from .tiles import Keys, Mask, Part, Stock
from .tuned import TUNED

# turns of the pipeline by which a block lags behind its load when it is turned, scored, shifted and weighed: each stage
# uses what an earlier turn left, so that no engine waits in a turn for another one's block
STAGES = (0, 2, 3, 4, 5)
FEW_UNITS, LATE_UNITS = 8, 3


@nki.jit
def vit_attn(q, k, v, key_mask=None, scale=1.0, q_layout="bhsd", k_layout="bhsd", v_layout="bhsd", share_tiles=False):
    """out[b, h, s] = softmax over t of (scale * q[b, h, s] . k[b, h, t]) @ v[b, h], over keys whose mask is not 0.

    q         [B, H, S, D]  float32, bfloat16 or float16, HBM; or [B, S, H, D] with q_layout "bshd"
    k, v      [B, H, T, D]  dtype of q; or [B, T, H, D] with k_layout, v_layout "bshd"; D up to 256
    key_mask  [B, T]        uint8, HBM, 0 for keys that do not count, or None
    scale     float
    share_tiles             stack short sequences without a mask in one tile, see stacks.py: a NaN or infinity in k or v
                            then reaches the other pairs of batch entry and head in its tile
    returns   as q

    A row without keys gives 0. Row maxima are taken of scores in the dtype of q, of tfloat32 ones for float32: they
    only keep exp in range. Weights are rounded to the dtype of q and summed as rounded.
    Source: Vaswani et al. 2017, eq. 1; the rest as in Dao et al. 2022, without its rescaling.
    """
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    blocks = []
    layouts = (q_layout, q_layout, k_layout, v_layout)
    (batches, heads, queries, width), keys = heads_first(q, q_layout).shape, heads_first(k, k_layout).shape[2]
    sizes = {"B": batches, "H": heads, "S": queries, "T": keys, "D": width}
    tiles = tiles_for(TUNED, TILES, q.dtype, sizes)
    may_stack = share_tiles and key_mask is None
    for views, pairs in stacked((q, out, k, v), layouts, scale, may_stack):
        plan = Plan(views[0].shape, views[2].shape[2], q.dtype, scale, key_mask is not None, tiles, pairs)
        blocks += make_blocks(*views, key_mask, plan)
    for turn in range(len(blocks) + STAGES[-1]):
        loading, turning, scoring, shifting, weighing = (stage(blocks, turn - lag) for lag in STAGES)
        if loading:
            loading.load()
        scores = scoring.score_units() if scoring else []
        weights = weighing.weight_units() if weighing else []
        units = interleave(scores, weights)
        if turning and turns_late(units, key_mask):
            # before the last units, which wait for exponentials, so that TensorE turns in the meantime
            units.insert(max(0, len(units) - LATE_UNITS), turning.turn)
        elif turning:
            turning.turn()
        if shifting:
            shifting.shift()
        for unit in units:
            unit()
        if weighing:
            weighing.store()
    return out


def make_blocks(query, target, key, value, key_mask, plan):
    """The blocks of this program in order; None lets the pipeline run dry where two sets of keys do not fit in SBUF."""
    blocks = []
    frames = Frames(plan) if plan.pairs > 1 else None
    for batch, heads, segments in plan.parts():
        if blocks and plan.alone:
            blocks += [None] * STAGES[-1]
        mask = None if key_mask is None else Mask(key_mask[batch], plan)
        stock = Stock(key, value, batch, heads, mask, plan)
        groups = [Keys(stock, group, plan, frames) for group in plan.groups(heads)]
        for rows, queries in segments:
            part = Part(query, target, batch, heads, rows, stock, plan)
            places = [(keys, tiles) for keys in groups for tiles in queries]
            for at, (keys, tiles) in enumerate(places):
                blocks.append(Block(part, keys, tiles, plan, at == 0, at == len(places) - 1))
    return blocks


def stage(blocks, index):
    """The block that is in a stage of the pipeline, or None."""
    return blocks[index] if 0 <= index < len(blocks) else None


def turns_late(units, key_mask):
    """Whether the next block is turned late in a turn: where so few units, without a mask's, cannot hide it early."""
    return 0 < len(units) <= FEW_UNITS and key_mask is None


def interleave(scores, weights):
    """The units of both passes in order, spread over one another; scores a little early, as they wait for nothing."""
    placed = [((i + 0.25) / len(scores), 0, unit) for i, unit in enumerate(scores)]
    placed += [((i + 0.5) / len(weights), 1, unit) for i, unit in enumerate(weights)]
    return [unit for _, _, unit in sorted(placed, key=lambda entry: entry[:2])]
