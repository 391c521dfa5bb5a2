"""Short sequences: the rows of several (batch, head) pairs stacked in one tile and kept apart by the contraction."""

import nki.isa as nisa
import nki.language as nl

# what a score across pairs loses, as the product of a number on the side of q and one on the side of k
ACROSS = (1.0, 2.0**120)
ACROSS_FLOAT16 = (32768.0, 61440.0)
# a smaller scale would leave too little of the loss in the exponent
LEAST_SCALE = 2.0**-12


def stacked(tensors, layouts, scale, may_stack):
    """[((q, out, k, v), pairs in a tile), ...]: views [batches, heads, rows, D] of what is computed alike.

    Where a tile takes several pairs, its rows are rows of one memory stride: of consecutive pairs in layout "bhsd", of
    one head of consecutive batch entries in layout "bshd". What does not fill a tile comes as a second entry.
    """
    lengths = [tensor.shape[1 if layout == "bshd" else 2] for tensor, layout in zip(tensors, layouts)]
    width = tensors[0].shape[3]
    is_plain = may_stack and abs(scale) >= LEAST_SCALE and len(set(layouts)) == 1
    most = pairs_of_a_tile(max(lengths), width) if is_plain else 1
    flat = [flat_rows(tensor, layouts[0]) for tensor in tensors] if most > 1 else []
    pairs = flat[0].shape[1] // lengths[0] if flat else 1
    if min(most, pairs) < 2:
        return [([heads_first(tensor, layout) for tensor, layout in zip(tensors, layouts)], 1)]
    whole = pairs // most * most
    found = []
    for first, last, count in ((0, whole, most), (whole, pairs, pairs - whole)):
        if first < last:
            views = [stack(rows, first * n, last * n, count * n, layouts[0]) for rows, n in zip(flat, lengths)]
            found.append((views, count))
    return found


def pairs_of_a_tile(length, width):
    """How many pairs of `length` rows a tile takes; each is one more row of the contraction."""
    pmax = nl.tile_size.pmax
    return min(pmax // length, pmax - 1 - -(-width // 32) * 32)


def heads_first(tensor, layout):
    """[B, H, S, D] view of a tensor in either layout."""
    return tensor.permute((0, 2, 1, 3)) if layout == "bshd" else tensor


def flat_rows(tensor, layout):
    """[heads, rows, D]: B * S rows for each head in layout "bshd", B * H * S in one in layout "bhsd"."""
    if layout == "bshd":
        return tensor.flatten_dims(0, 1).permute((1, 0, 2))
    return tensor.flatten_dims(0, 2).expand_dim(0)


def stack(rows, first, last, size, layout):
    """[batches, heads, size, D] of rows first..last, `size` to a tile; the tiles of layout "bhsd" count as heads."""
    tiles = rows[:, first:last].reshape_dim(1, ((last - first) // size, size))
    return tiles.permute((1, 0, 2, 3)) if layout == "bshd" else tiles


class Frames:
    """What surrounds q and k, turned, of stacked pairs: tiles [shift_row + 1 + pairs, rows] of 0 above these rows:

        shift_row          0 on the side of q, for the shifts; their partner on the side of k
        shift_row + 1 + i  on the side of q a number in the rows of pair i, else 0; on the side of k a loss in the rows
                           of all pairs but i, else 0

    A score within a pair gains exactly 0, one across pairs loses so much that exp gives exactly 0.
    """

    def __init__(self, plan):
        own, loss = ACROSS_FLOAT16 if plan.dtype == nl.float16 else ACROSS
        # a negative scale turns the order of scores around
        loss = -loss if plan.scale >= 0 else loss
        self.query = self._frame(plan, plan.queries, own, nl.equal)
        self.key = self._frame(plan, plan.keys, loss, nl.not_equal)
        nisa.memset(
            dst=self.key[plan.shift_row : plan.shift_row + 1], value=plan.shift_scale, engine=nisa.engine.gpsimd
        )

    def _frame(self, plan, rows, value, kept):
        """`value` where pair of the row and pair of the partition are `kept`, in the partitions of pairs."""
        frame = nl.ndarray((plan.shift_row + 1 + plan.pairs, rows), dtype=plan.dtype, buffer=nl.sbuf)
        nisa.memset(dst=frame, value=0.0, engine=nisa.engine.gpsimd)
        below = frame[plan.shift_row :]
        nisa.memset(dst=below, value=value, engine=nisa.engine.gpsimd)
        # the partition of pair i is 1 + i from the row of shifts
        nisa.affine_select(
            dst=below,
            pattern=[[1, plan.pairs], [0, rows // plan.pairs]],
            offset=1,
            channel_multiplier=-1,
            cmp_op=kept,
            on_true_tile=below,
            on_false_value=0.0,
        )
        return frame
