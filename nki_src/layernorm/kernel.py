"""LayerNorm over the last axis: rows on partitions, the work on a row spread over VectorE, ScalarE and GpSimdE."""

import nki
import nki.isa as nisa
import nki.language as nl

# a DMA below 2 KiB per partition takes as long as one of 2 KiB; 4 KiB also make up for its issue
DMA_PARTITION_BYTES = 4096
# row blocks in SBUF at once: three being worked on, two on their way
MAX_BLOCKS = 5
# the first blocks have one row per partition, so that all engines are soon at work
SHORT_BLOCKS = 3
# of a 16-bit row, VectorE takes the moments of this share, ScalarE, which has to pass twice, those of the rest;
# VectorE multiplies that share by weight, GpSimdE the rest, and adds bias
MOMENTS_SHARE = 0.35
GAIN_SHARE = 0.45


@nki.jit
def layernorm(x, weight=None, bias=None, eps=1e-5, spacing=None):
    """y[n, h] = (x[n, h] - mean of x[n]) / sqrt(variance of x[n] + eps) * weight[h] + bias[h].

    x        [N, H]  float32, bfloat16 or float16, HBM; any N, H up to 16384; one-dimensional when `spacing` is given
    weight   [H]     any of these dtypes, HBM, or None
    bias     [H]     likewise
    eps      float   added to the variance, inside the root
    spacing  None, or (A, stride of a, B, stride of b, H): row a * B + b starts at element a * stride + b * stride of x
    returns  [N, H]  dtype of x, HBM

    float32 rows are centred on their mean before the variance is taken, so rows of mean 1e4 lose nothing. For 16-bit x
    the normalized row and its product with weight are rounded to x's dtype on the way. A row's result does not depend
    on the rows around it.
    Source: Ba, Kiros and Hinton 2016.
    """
    outer, outer_stride, inner, inner_stride, width = spacing or (1, 0, x.shape[0], x.shape[1], x.shape[1])
    y = nl.ndarray((outer * inner, width), dtype=x.dtype, buffer=nl.shared_hbm)
    row_bytes = width * _itemsize(x.dtype)
    places = _places(outer, outer_stride, inner, inner_stride, width, most=-(-DMA_PARTITION_BYTES // row_bytes))
    vectors = [vector for vector in (weight, bias) if vector is not None]
    room = nl.tile_size.sbuf_fmax_bytes - sum(width * _itemsize(vector.dtype) for vector in vectors)
    depth = max(1, min(MAX_BLOCKS, room // (row_bytes * max([place[2] for place in places] + [1])) - 1))
    # three blocks are worked on at a time, each at another stage, so that no engine waits for another's result
    lag = 1 if depth > 3 else 0

    kind = RowBlock if x.dtype == nl.float32 else HalfRowBlock
    blocks, gain, shift = [], None, None
    for turn in range(len(places) + 2 * lag if places else 0):
        for place in places[len(blocks) : turn + depth - 2 * lag]:
            blocks.append(kind(x, y, place, width))
        if turn == 0:
            gain, shift = _broadcast(weight), _broadcast(bias)

        if turn < len(places):
            blocks[turn].sum_up()
        if 0 <= turn - lag < len(places):
            blocks[turn - lag].take_moments(eps)
        if 0 <= turn - 2 * lag < len(places):
            blocks[turn - 2 * lag].finish(gain, shift)
    return y


def _itemsize(dtype):
    return 4 if dtype == nl.float32 else 2


def _share(count):
    """The part of range(count) that this program does."""
    program, programs = nl.program_id(0), nl.num_programs()
    return count * program // programs, count * (program + 1) // programs


def _places(outer, outer_stride, inner, inner_stride, width, most):
    """Where the row blocks of this program lie: (first row, partitions, rows per partition, access pattern, offset).

    Several rows, at most `most`, lie in one partition where that makes a DMA long and leaves no partition idle.
    """
    pmax = nl.tile_size.pmax
    if outer == 1:
        first, last = _share(inner)
        return _even_places(0, 0, first, last, inner_stride, width, most)
    first, last = _share(outer)
    places = []
    if 2 * inner > pmax:
        for a in range(first, last):
            places += _even_places(a * inner, a * outer_stride, 0, inner, inner_stride, width, most)
        return places
    step = pmax // inner
    for a in range(first, last, step):
        count = min(step, last - a)
        pattern = [[outer_stride, count], [inner_stride, inner], [1, width]]
        places.append((a * inner, count * inner, 1, pattern, a * outer_stride))
    return places


def _even_places(row, offset, first, last, stride, width, most):
    """Places of rows first..last that are `stride` elements apart; row 0 is row `row` of the result."""
    pmax = nl.tile_size.pmax
    places = []
    while first < last:
        rows = max(1, min(most if len(places) >= SHORT_BLOCKS else 1, (last - first) // pmax))
        partitions = min(pmax, (last - first) // rows)
        pattern = [[rows * stride, partitions], [stride, rows], [1, width]]
        places.append((row + first, partitions, rows, pattern, offset + first * stride))
        first += partitions * rows
    return places


def _broadcast(vector):
    """[H] in HBM -> [P, H] in SBUF, the same on every partition."""
    if vector is None:
        return None
    pmax, width = nl.tile_size.pmax, vector.shape[0]
    tile = nl.ndarray((pmax, width), dtype=vector.dtype, buffer=nl.sbuf)
    every_row = vector.ap([[0, pmax], [1, width]])
    # not on the queue of the row loads
    nisa.dma_copy(dst=tile, src=every_row, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.scalar)
    return tile


class RowBlock:
    """Rows of float32 in SBUF, [P, rows of a partition, H], worked on in place.

    They are centred on an approximate mean before their moments are taken, as those of a large mean would be off.
    """

    def __init__(self, x, y, place, width):
        """Start the load."""
        row, self.partitions, self.rows, pattern, offset = place
        self.width = width
        self.result = y[row : row + self.partitions * self.rows]
        self.tile = nl.ndarray((self.partitions, self.rows, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.tile, src=x.ap(pattern, offset=offset))

    def column(self, *shape):
        """A new float32 tile with one value, or `shape` of them, for every row."""
        return nl.ndarray((self.partitions, self.rows, *shape), dtype=nl.float32, buffer=nl.sbuf)

    def sum_up(self):
        """-mean of the first quarter of every row, which lies within two standard deviations of the row's mean."""
        count = -(-self.width // 4)
        total, self.minus_mean = self.column(), self.column()
        nisa.tensor_reduce(dst=total, op=nl.add, data=self.tile[:, :, :count], axis=2)
        nisa.tensor_scalar(dst=self.minus_mean, data=total, op0=nl.multiply, operand0=-1.0 / count)

    def take_moments(self, eps):
        """Centre the rows; 1 / sqrt(variance + eps), and the mean that is left times that."""
        for j in range(self.rows):
            row = self.tile[:, j]
            nisa.activation(dst=row, op=nl.copy, data=row, bias=self.minus_mean[:, j : j + 1])

        stats = self.column(_parts(self.width), 6)
        for j in range(self.rows):
            _bn_stats(stats[:, j], self.tile[:, j])
        moments = self.join(stats)

        self.rstd, self.shift = self.root(moments, eps), self.column()
        nisa.scalar_tensor_tensor(
            dst=self.shift,
            data=moments[:, :, 0],
            op0=nl.multiply,
            operand0=-1.0,
            op1=nl.multiply,
            operand1=self.rstd,
        )

    def join(self, stats):
        """(mean, variance) of every row from the (count, mean, variance * count) of its parts."""
        moments = self.column(2)
        for j in range(self.rows):
            nisa.bn_aggr(dst=moments[:, j], data=stats[:, j])
        return moments

    def root(self, moments, eps):
        """1 / sqrt(variance + eps)."""
        shifted, rstd = self.column(), self.column()
        nisa.tensor_scalar(dst=shifted, data=moments[:, :, 1], op0=nl.add, operand0=eps)
        # GpSimdE has the more exact rsqrt, and ScalarE would have to change its function table for it
        nisa.tensor_scalar(dst=rstd, data=shifted, op0=nl.rsqrt, operand0=None, engine=nisa.engine.gpsimd)
        return rstd

    def finish(self, gain, shift):
        """Normalize, apply weight and bias, store."""
        self.normalize()
        if gain is not None:
            split = self.gain_split()
            self._apply(nl.multiply, gain, 0, split, nisa.engine.vector)
            self._apply(nl.multiply, gain, split, self.width, nisa.engine.gpsimd)
        if shift is not None:
            self._apply(nl.add, shift, 0, self.width, nisa.engine.gpsimd)

        # a trigger on the sync queue costs ScalarE nothing; it waits there without holding up the loads that are needed
        nisa.dma_copy(dst=self.result, src=self.tile, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.sync)

    def normalize(self):
        """rows = (rows - mean) * rstd."""
        for j in range(self.rows):
            row, scale, bias = self.tile[:, j], self.rstd[:, j : j + 1], self.shift[:, j : j + 1]
            nisa.activation(dst=row, op=nl.copy, data=row, scale=scale, bias=bias)

    def gain_split(self):
        """Columns that VectorE multiplies by weight: none, two float32 inputs take it two cycles an element."""
        return 0

    def _apply(self, op, vector, first, last, engine):
        if first == last:
            return
        part = self.tile[:, :, first:last]
        every_row = vector[: self.partitions, first:last].expand_dim(1).broadcast(1, self.rows)
        nisa.tensor_tensor(dst=part, data1=part, data2=every_row, op=op, engine=engine)


class HalfRowBlock(RowBlock):
    """Rows of 16-bit numbers: ScalarE takes the moments of the columns from `split` on, VectorE those before it.

    ScalarE sums differences from the first element of the row, which cost no precision however large the mean is.
    """

    def sum_up(self):
        """Sum (first - x) and its square over ScalarE's columns."""
        self.split = self.width
        if self.width > nl.tile_size.bn_stats_fmax:
            self.split = _even(self.width * MOMENTS_SHARE)
        self.sums, self.squares = self.column(), self.column()
        rest = self.width - self.split
        self.stats = self.column(2 * _parts(self.split) + (rest > 0), 3)
        if rest == 0:
            return

        nisa.memset(dst=self.stats[:, :, -1, 0], value=float(rest), engine=nisa.engine.gpsimd)
        for j in range(self.rows):
            part, first = self.tile[:, j, self.split :], self.tile[:, j, 0:1]
            for op, total in ((nl.copy, self.sums), (nl.square, self.squares)):
                unused = nl.ndarray(part.shape, dtype=part.dtype, buffer=nl.sbuf)
                nisa.activation_reduce(
                    dst=unused,
                    op=op,
                    data=part,
                    scale=-1.0,
                    bias=first,
                    reduce_op=nl.add,
                    reduce_res=total[:, j : j + 1],
                )

    def take_moments(self, eps):
        """Mean and 1 / sqrt(variance + eps)."""
        parts = _parts(self.split)
        for j in range(self.rows):
            pairs = self.stats[:, j, : 2 * parts].reshape((self.partitions, parts, 6))
            _bn_stats(pairs, self.tile[:, j, : self.split])
        if self.split < self.width:
            self._take_sums(self.stats[:, :, -1, 1], self.stats[:, :, -1, 2])
        self.moments = self.join(self.stats)
        self.rstd = self.root(self.moments, eps)

    def _take_sums(self, mean, spread):
        """mean = first - sum / count, spread = variance * count = squares - sum**2 / count, of ScalarE's columns."""
        share = -1.0 / (self.width - self.split)
        first, square = self.tile[:, :, 0], self.column()
        nisa.scalar_tensor_tensor(dst=mean, data=self.sums, op0=nl.multiply, operand0=share, op1=nl.add, operand1=first)
        nisa.scalar_tensor_tensor(
            dst=square, data=self.sums, op0=nl.multiply, operand0=share, op1=nl.multiply, operand1=self.sums
        )
        nisa.tensor_tensor(dst=spread, data1=self.squares, data2=square, op=nl.add)

    def normalize(self):
        """rows = (rows - mean) * rstd."""
        for j in range(self.rows):
            row, mean, scale = self.tile[:, j], self.moments[:, j, 0:1], self.rstd[:, j : j + 1]
            nisa.tensor_scalar(dst=row, data=row, op0=nl.subtract, operand0=mean, op1=nl.multiply, operand1=scale)

    def gain_split(self):
        """Columns that VectorE multiplies by weight."""
        return _even(self.width * GAIN_SHARE)


def _even(count):
    return int(count) // 2 * 2


def _parts(width):
    return -(-width // nl.tile_size.bn_stats_fmax)


def _bn_stats(stats, row):
    """stats [P, parts, 6] of row [P, H], bn_stats_fmax elements at a time."""
    fmax, width = nl.tile_size.bn_stats_fmax, row.shape[1]
    for part in range(stats.shape[1]):
        nisa.bn_stats(dst=stats[:, part], data=row[:, part * fmax : min(width, (part + 1) * fmax)])
