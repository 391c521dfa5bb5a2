"""Bidirectional attention without a score ever leaving the core; runs on one core or two.

For a block of queries of a few heads, scores are computed twice. First with queries on partitions, in one TensorE pass
per tile, only for their row maximum, which VectorE reads from PSUM. Then with keys on partitions, less that maximum,
which rides along as one more row of the contraction: ScalarE takes exp straight from PSUM, its result is the stationary
operand of the product with v, and a column of ones beside v sums the weights. Nothing is transposed but q and k, the
sums need no rescaling, and TensorE, VectorE and ScalarE are about equally busy.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from ..common.operands import itemsize, ranges

# of one partition: keys and values of one group of heads, two or three of which are in SBUF at a time
GROUP_BYTES = 32768
# of one partition: above this, one group of heads is finished before the next is loaded
ALONE_BYTES = 65536
# what a masked key loses: in a score, as the product of two numbers that float16 holds; and in the exponent
MASK_FACTORS = (60000.0, 256.0)
MASK_EXPONENT = 1e30
# a sum of weights is at least about 1; where no key counts it is 0, and 0 times the inverse of this is 0
LEAST_SUM = 1e-30


@nki.jit
def vit_attn(q, k, v, key_mask=None, scale=1.0, q_layout="bhsd", k_layout="bhsd", v_layout="bhsd"):
    """out[b, h, s] = softmax over t of (scale * q[b, h, s] . k[b, h, t]) @ v[b, h], over keys whose mask is not 0.

    q         [B, H, S, D]  float32, bfloat16 or float16, HBM; or [B, S, H, D] with q_layout "bshd"
    k, v      [B, H, T, D]  dtype of q; or [B, T, H, D] with k_layout, v_layout "bshd"; D up to 256
    key_mask  [B, T]        uint8, HBM, 0 for keys that do not count, or None
    scale     float
    returns   as q

    A row without keys gives 0. Row maxima are taken of scores in the dtype of q, of tfloat32 ones for float32: they
    only keep exp in range. Weights are rounded to the dtype of q and summed as rounded.
    Source: Vaswani et al. 2017, eq. 1; the rest as in Dao et al. 2022, without its rescaling.
    """
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    sizes = Sizes(heads_first(q, q_layout), heads_first(k, k_layout), key_mask, scale)
    sources = [heads_first(tensor, layout) for tensor, layout in ((k, k_layout), (v, v_layout))]
    query, target = heads_first(q, q_layout), heads_first(out, q_layout)

    masks, groups = {}, {}
    blocks = [Block(query, target, sizes, *place) if place else None for place in sizes.places()]
    for turn in range(len(blocks) + 3):
        loading, turning, scoring, weighing = (stage(blocks, turn - lag) for lag in range(4))
        if loading:
            if key_mask is not None and loading.batch not in masks:
                masks = {loading.batch: Mask(key_mask[loading.batch], sizes), **masks}
            if loading.group not in groups:
                groups[loading.group] = Keys(*sources, sizes, *loading.group, masks.get(loading.batch))
            loading.load(groups[loading.group])
        if turning:
            turning.keys.turn()
            turning.turn()
        if weighing:
            weighing.shift()
        scores = scoring.score_units() if scoring else []
        weights = weighing.weight_units() if weighing else []
        for unit in interleave(scores, weights):
            unit()
        if weighing:
            weighing.store()
    return out


def heads_first(tensor, layout):
    """[B, H, S, D] view of a tensor in either layout."""
    return tensor.permute((0, 2, 1, 3)) if layout == "bshd" else tensor


def stage(blocks, index):
    """The block that is in a stage of the pipeline, or None."""
    return blocks[index] if 0 <= index < len(blocks) else None


def interleave(first, second):
    """The units of both lists, each in order, spread evenly over one another."""
    placed = [
        ((i + 0.5) / len(units), side, i) for side, units in enumerate((first, second)) for i in range(len(units))
    ]
    return [(first, second)[side][i] for _, side, i in sorted(placed)]


class Sizes:
    """Sizes of a call, and how its work is cut: contraction chunks, blocks of queries, groups of heads."""

    def __init__(self, q, k, key_mask, scale):
        self.batch, self.heads, self.queries, self.width = q.shape
        self.keys = k.shape[2]
        self.dtype = q.dtype
        self.scale = scale
        self.masked = key_mask is not None
        pmax, bank = nl.tile_size.pmax, nl.tile_size.psum_bank_fmax
        self.bank = bank
        self.chunks = ranges(0, self.width, pmax)
        # the row of shifts follows the last chunk where the engines can address it, else it is a chunk of its own
        last = self.chunks[-1][1] - self.chunks[-1][0]
        self.shift_row = -(-last // 32) * 32 if last <= 96 else None
        # sums of weights and of weighted values of one query block take two PSUM banks at most
        self.per_bank = bank // (self.width + 1)
        tiles = min(bank // pmax, 2 * self.per_bank)
        blocks = -(-self.queries // (tiles * pmax))
        self.query_block = min(self.queries, -(-self.queries // (blocks * pmax)) * pmax)
        self.group = self._group()
        self.is_float32 = itemsize(self.dtype) == 4
        # -max and its partner in the contraction; float16 could not hold a large maximum
        self.shift_scale = 256.0 if self.dtype == nl.float16 else 1.0

    def _group(self):
        """Heads that go through together: scores of a bank, sums of two, keys and values of GROUP_BYTES."""
        whole, ragged = self.query_block // nl.tile_size.pmax, bool(self.query_block % nl.tile_size.pmax)
        most = min(self.heads, self.bank // self.query_block, GROUP_BYTES // self.head_bytes())
        for heads in range(most, 1, -1):
            if -(-heads * whole // self.per_bank) + -(-heads * ragged // self.per_bank) <= 2:
                return heads
        return 1

    def head_bytes(self):
        """Bytes of a partition that keys and values of one head take."""
        size = itemsize(self.dtype)
        tiles = -(-self.keys // nl.tile_size.pmax)
        turned = len(self.chunks) * self.keys * (8 if size == 4 else 2)
        return turned + tiles * (2 * self.width + 1) * size

    def places(self):
        """(batch, head, end, query, end) of this program's blocks, in order; None lets the pipeline run dry."""
        programs, program = nl.num_programs(), nl.program_id(0)
        pairs = self.batch * self.heads
        if pairs >= programs:
            part = -(-pairs // programs)
            pair_range, query_range = (min(pairs, program * part), min(pairs, (program + 1) * part)), (0, self.queries)
        else:
            part = -(-self.queries // programs)
            pair_range = (0, pairs)
            query_range = (min(self.queries, program * part), min(self.queries, (program + 1) * part))
        places = []
        for b in range(self.batch):
            first, last = (max(0, min(self.heads, pair - b * self.heads)) for pair in pair_range)
            for h, h_end in ranges(first, last, self.group):
                if places and self.head_bytes() > ALONE_BYTES:
                    places += [None] * 3
                places += [(b, h, h_end, s, s_end) for s, s_end in ranges(*query_range, self.query_block)]
        return places


def load_heads(source, batch, heads, rows, extra=0):
    """[(tile [rows, heads, D + extra], first row), ...] of one operand: whole tiles in one DMA, the rest in another."""
    pmax = nl.tile_size.pmax
    width = source.shape[3]
    view = source[batch, heads[0] : heads[1], rows[0] : rows[1]]
    count, total = heads[1] - heads[0], rows[1] - rows[0]
    whole = total // pmax
    tiles = []
    if whole:
        tile = nl.ndarray((pmax, whole, count, width + extra), dtype=source.dtype, buffer=nl.sbuf)
        rows_first = view[:, : whole * pmax].reshape_dim(1, (whole, pmax)).permute((2, 1, 0, 3))
        nisa.dma_copy(dst=tile[:, :, :, :width], src=rows_first)
        tiles += [(tile[:, i], i * pmax) for i in range(whole)]
    if total % pmax:
        tile = nl.ndarray((total % pmax, count, width + extra), dtype=source.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[:, :, :width], src=view[:, whole * pmax :].permute((1, 0, 2)))
        tiles.append((tile, whole * pmax))
    return tiles


def turn_heads(tiles, chunk, targets, engine):
    """targets[d, h, row] = tiles[row, h, d] for d in `chunk`, by TensorE through PSUM, a bank at a time."""
    first, last = chunk
    _, heads, total = targets[0].shape
    dtype = tiles[0][0].dtype
    pieces = [(tile[:, h, first:last], h * total + row) for h in range(heads) for tile, row in tiles]
    capacity = nl.tile_size.psum_bank_fmax_bytes // itemsize(dtype)
    while pieces:
        start = pieces[0][1]
        fitting = [(piece, at) for piece, at in pieces if at + piece.shape[0] - start <= capacity]
        end = fitting[-1][1] + fitting[-1][0].shape[0]
        bank = nl.ndarray((last - first, end - start), dtype=dtype, buffer=nl.psum)
        for piece, at in fitting:
            nisa.nc_transpose(dst=bank[:, at - start : at - start + piece.shape[0]], data=piece)
        for target in targets:
            flat = target.reshape((target.shape[0], heads * total))
            nisa.tensor_copy(dst=flat[: last - first, start:end], src=bank, engine=engine)
        pieces = pieces[len(fitting) :]


def turned_tiles(sizes, heads, total):
    """Per chunk, (tile for exact scores, tile for their maxima), each [D of the chunk, heads, total].

    The exact tile of the last chunk has the row of shifts; what lies between it and D is 0.
    """
    pairs = []
    for first, last in sizes.chunks:
        rows = last - first
        is_last = (first, last) == sizes.chunks[-1]
        if is_last and sizes.shift_row is not None:
            exact = nl.ndarray((sizes.shift_row + 1, heads, total), dtype=sizes.dtype, buffer=nl.sbuf)
            if sizes.shift_row != rows:
                nisa.memset(dst=exact, value=0.0, engine=nisa.engine.gpsimd)
        else:
            exact = nl.ndarray((rows, heads, total), dtype=sizes.dtype, buffer=nl.sbuf)
        rough = exact[:rows]
        if sizes.is_float32:
            rough = nl.ndarray((rows, heads, total), dtype=nl.tfloat32, buffer=nl.sbuf)
        pairs.append((exact, rough))
    return pairs


class Mask:
    """The mask of one batch entry: a row added to scores before their maximum, a column added to exponents."""

    def __init__(self, mask, sizes):
        pmax, keys = nl.tile_size.pmax, sizes.keys
        sign = -1.0 if sizes.scale < 0 else 1.0
        rough = nl.tfloat32 if sizes.is_float32 else sizes.dtype
        loaded = nl.ndarray((1, keys), dtype=mask.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=loaded, src=mask.expand_dim(0))
        self.row = nl.ndarray((1, keys), dtype=rough, buffer=nl.sbuf)
        subtract(self.row, loaded, sign * MASK_FACTORS[0])
        self.factor = nl.ndarray((1, pmax), dtype=rough, buffer=nl.sbuf)
        nisa.memset(dst=self.factor, value=MASK_FACTORS[1], engine=nisa.engine.gpsimd)

        tiles = -(-keys // pmax)
        columns = nl.ndarray((min(pmax, keys), tiles), dtype=mask.dtype, buffer=nl.sbuf)
        self.column = nl.ndarray((min(pmax, keys), tiles), dtype=nl.float32, buffer=nl.sbuf)
        whole = keys // pmax
        if whole:
            nisa.dma_copy(dst=columns[:, :whole], src=mask[: whole * pmax].reshape((whole, pmax)).permute((1, 0)))
            subtract(self.column[:, :whole], columns[:, :whole], MASK_EXPONENT)
        if keys % pmax:
            rest = columns[: keys % pmax, whole : whole + 1]
            nisa.dma_copy(dst=rest, src=mask[whole * pmax :].expand_dim(1))
            subtract(self.column[: keys % pmax, whole : whole + 1], rest, MASK_EXPONENT)


def subtract(dst, mask, loss):
    """dst = 0 where mask is 1, -loss where it is 0."""
    nisa.tensor_scalar(dst=dst, data=mask, op0=nl.add, operand0=-1.0, op1=nl.multiply, operand1=loss)


class Keys:
    """k as [D, T] and v as [T, D] with a column of ones, of a group of heads."""

    def __init__(self, k, v, sizes, batch, first, last, mask):
        self.sizes = sizes
        self.mask = mask
        self.heads = last - first
        self.loaded = load_heads(k, batch, (first, last), (0, sizes.keys))
        self.values = load_heads(v, batch, (first, last), (0, sizes.keys), extra=1)
        self.turned = None
        self.partner = None

    def turn(self):
        """Turn k, once, and set what goes along with it: the partner of the shifts, the ones beside v."""
        if self.turned is not None:
            return
        sizes, gpsimd = self.sizes, nisa.engine.gpsimd
        self.turned = turned_tiles(sizes, self.heads, sizes.keys)
        for tile, _ in self.values:
            nisa.memset(dst=tile[:, :, sizes.width :], value=1.0, engine=gpsimd)
        if sizes.shift_row is None:
            self.partner = nl.ndarray((1, nl.tile_size.pmax), dtype=sizes.dtype, buffer=nl.sbuf)
            nisa.memset(dst=self.partner, value=sizes.shift_scale, engine=gpsimd)
        for chunk, pair in zip(sizes.chunks, self.turned):
            turn_heads(self.loaded, chunk, pair if sizes.is_float32 else pair[:1], nisa.engine.vector)
        if sizes.shift_row is not None:
            row = self.turned[-1][0][sizes.shift_row :]
            nisa.memset(dst=row, value=sizes.shift_scale, engine=gpsimd)


class Block:
    """Queries [first, last) of a group of heads, through all stages: load, turn, score, shift, weigh, store."""

    def __init__(self, q, out, sizes, batch, head, head_end, first, last):
        self.q, self.out, self.sizes = q, out, sizes
        self.batch, self.head_range, self.rows = batch, (head, head_end), (first, last)
        self.group = (batch, head, head_end)
        self.heads = head_end - head
        self.queries = last - first
        self.tiles = ranges(0, self.queries, nl.tile_size.pmax)

    def load(self, keys):
        """Bring in q."""
        self.keys = keys
        self.loaded = load_heads(self.q, self.batch, self.head_range, self.rows)

    def turn(self):
        """Turn q; its row of shifts is not known yet."""
        sizes = self.sizes
        self.turned = turned_tiles(sizes, self.heads, self.queries)
        for chunk, pair in zip(sizes.chunks, self.turned):
            turn_heads(self.loaded, chunk, pair if sizes.is_float32 else pair[:1], nisa.engine.scalar)
        if sizes.shift_row is None:
            self.shifts = nl.ndarray((1, self.heads, self.queries), dtype=sizes.dtype, buffer=nl.sbuf)
        else:
            self.shifts = self.turned[-1][0][sizes.shift_row :]

    def score_units(self):
        """Units that find -max of every row's scores: one for each PSUM bank of scores."""
        sizes = self.sizes
        self.minus_max = nl.ndarray(
            (min(nl.tile_size.pmax, self.queries), len(self.tiles), self.heads), dtype=nl.float32
        )
        units = []
        for i in range(len(self.tiles)):
            if sizes.keys <= sizes.bank:
                for heads in ranges(0, self.heads, sizes.bank // sizes.keys):
                    units.append(lambda i=i, heads=heads: self._score_heads(i, *heads))
            else:
                for h in range(self.heads):
                    units += self._long_units(i, h)
        return units

    def _score_heads(self, i, first, last):
        """-max of query tile i for heads whose scores share a bank."""
        rows = self.tiles[i][1] - self.tiles[i][0]
        scores = nl.ndarray((rows, last - first, self.sizes.keys), dtype=nl.float32, buffer=nl.psum)
        for h in range(first, last):
            self._score(scores[:, h - first], i, h, 0, self.sizes.keys)
        self._reduce(self.minus_max[:rows, i, first:last], scores, negate=True)

    def _long_units(self, i, h):
        """-max of query tile i of one head, over several banks of scores."""
        sizes = self.sizes
        rows = self.tiles[i][1] - self.tiles[i][0]
        spans = ranges(0, sizes.keys, sizes.bank)
        parts = nl.ndarray((rows, len(spans)), dtype=nl.float32, buffer=nl.sbuf)

        def unit(j):
            first, last = spans[j]
            scores = nl.ndarray((rows, last - first), dtype=nl.float32, buffer=nl.psum)
            self._score(scores, i, h, first, last)
            self._reduce(parts[:, j : j + 1], scores)
            if j == len(spans) - 1:
                self._reduce(self.minus_max[:rows, i, h : h + 1], parts, negate=True)

        return [lambda j=j: unit(j) for j in range(len(spans))]

    def _score(self, dst, i, h, first, last):
        start, end = self.tiles[i]
        mask = self.keys.mask
        for c in range(len(self.sizes.chunks)):
            nisa.nc_matmul(
                dst=dst,
                stationary=self.turned[c][1][:, h, start:end],
                moving=self.keys.turned[c][1][:, h, first:last],
                accumulate=c > 0,
            )
        if mask is not None:
            factor = mask.factor[:, : end - start]
            nisa.nc_matmul(dst=dst, stationary=factor, moving=mask.row[:, first:last], accumulate=True)

    def _reduce(self, dst, data, negate=False):
        # a negative scale turns the order of scores around
        op = nl.minimum if self.sizes.scale < 0 else nl.maximum
        nisa.tensor_reduce(dst=dst, op=op, data=data, axis=data.ndim - 1, negate=negate)

    def shift(self):
        """Write -max, turned to a row, beside q: scores come out of the contraction less their maximum."""
        sizes = self.sizes
        row = nl.ndarray((1, self.heads, self.queries), dtype=nl.float32, buffer=nl.psum)
        for i, (start, end) in enumerate(self.tiles):
            for h in range(self.heads):
                nisa.nc_transpose(dst=row[:, h, start:end], data=self.minus_max[: end - start, i, h : h + 1])
        nisa.activation(dst=self.shifts, op=nl.copy, data=row, scale=1.0 / sizes.shift_scale)

    def weight_units(self):
        """Units that add weights times values of one key tile each; the product lags a tile behind the exponentials."""
        self._open_sums()
        tiles = self.keys.values
        weights = {}

        def unit(j):
            if j < len(tiles):
                weights[j] = self._weights(j)
            if j > 0:
                self._add(weights.pop(j - 1), j - 1)

        return [lambda j=j: unit(j) for j in range(len(tiles) + 1)]

    def _weights(self, j):
        """exp(scale * (scores - max)) of key tile j, [keys, heads, queries]."""
        sizes, keys = self.sizes, self.keys
        tile, first = keys.values[j]
        last = first + tile.shape[0]
        scores = nl.ndarray((last - first, self.heads, self.queries), dtype=nl.float32, buffer=nl.psum)
        for h in range(self.heads):
            for c in range(len(sizes.chunks)):
                nisa.nc_matmul(
                    dst=scores[:, h],
                    stationary=keys.turned[c][0][:, h, first:last],
                    moving=self.turned[c][0][:, h],
                    accumulate=c > 0,
                )
            if sizes.shift_row is None:
                partner = keys.partner[:, : last - first]
                nisa.nc_matmul(dst=scores[:, h], stationary=partner, moving=self.shifts[:, h], accumulate=True)
        weights = nl.ndarray(scores.shape, dtype=sizes.dtype, buffer=nl.sbuf)
        bias = None if keys.mask is None else keys.mask.column[: last - first, j : j + 1]
        nisa.activation(dst=weights, op=nl.exp, data=scores, scale=sizes.scale, bias=bias)
        return weights

    def _open_sums(self):
        """PSUM for the sums: whole query tiles share banks, heads of the ragged last tile share others."""
        pmax, per_bank = nl.tile_size.pmax, self.sizes.per_bank
        whole = [(i, h) for i in range(self.queries // pmax) for h in range(self.heads)]
        ragged = [(len(self.tiles) - 1, h) for h in range(self.heads)] if self.queries % pmax else []
        self.banks = []
        for items, rows in ((whole, pmax), (ragged, self.queries % pmax)):
            for first, last in ranges(0, len(items), per_bank):
                sums = nl.ndarray((rows, last - first, self.sizes.width + 1), dtype=nl.float32, buffer=nl.psum)
                self.banks.append((sums, items[first:last]))

    def _add(self, weights, j):
        values, _ = self.keys.values[j]
        for sums, items in self.banks:
            for at, (i, h) in enumerate(items):
                start, end = self.tiles[i]
                nisa.nc_matmul(
                    dst=sums[:, at], stationary=weights[:, h, start:end], moving=values[:, h], accumulate=j > 0
                )

    def store(self):
        """Divide by the sums of weights and take the rows to HBM."""
        sizes, pmax = self.sizes, nl.tile_size.pmax
        whole, ragged = self.queries // pmax, self.queries % pmax
        view = self.out[self.batch, self.head_range[0] : self.head_range[1], self.rows[0] : self.rows[1]]
        if whole:
            done = self._divide(pmax, whole * self.heads)
            source = done.reshape((pmax, whole, self.heads, sizes.width))
            target = view[:, : whole * pmax].reshape_dim(1, (whole, pmax)).permute((2, 1, 0, 3))
            nisa.dma_copy(dst=target, src=source)
        if ragged:
            nisa.dma_copy(dst=view[:, whole * pmax :].permute((1, 0, 2)), src=self._divide(ragged, self.heads))

    def _divide(self, rows, count):
        """The quotients of all banks that hold `rows` rows, in order, [rows, count, D]."""
        width = self.sizes.width
        done = nl.ndarray((rows, count, width), dtype=self.sizes.dtype, buffer=nl.sbuf)
        at = 0
        for sums, items in self.banks:
            if sums.shape[0] != rows:
                continue
            inverse = nl.ndarray((rows, len(items), 1), dtype=nl.float32, buffer=nl.sbuf)
            total = sums[:, :, width:]
            if self.keys.mask is not None:
                nisa.tensor_scalar(dst=inverse, data=total, op0=nl.maximum, operand0=LEAST_SUM)
                total = inverse
            nisa.reciprocal(dst=inverse, data=total)
            nisa.tensor_tensor(
                dst=done[:, at : at + len(items)],
                data1=sums[:, :, :width],
                data2=inverse.broadcast(2, width),
                op=nl.multiply,
            )
            at += len(items)
        return done
