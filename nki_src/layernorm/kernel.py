"""LayerNorm over the last axis: rows on partitions, the work on a row spread over VectorE, ScalarE and GpSimdE."""

import nki
import nki.isa as nisa
import nki.language as nl

from ..common.order import interleave
from ..common.tuning import tiles_for
from .tuned import TUNED

# dma_bytes     of a partition, in one DMA: below 2 KiB it takes as long as 2 KiB, and 4 KiB make up for its issue
# blocks        of rows in SBUF at once: four being worked on, the others on their way
# short_blocks  the first blocks that have one row per partition, so that all engines are soon at work
# moments       percent of a 16-bit row whose moments VectorE takes; ScalarE takes two passes for those of the rest
# scaled        percent of a bfloat16 row that ScalarE multiplies by 1 / sqrt(variance + eps); GpSimdE does the rest
TILES = {"dma_bytes": 4096, "blocks": 7, "short_blocks": 3, "moments": 40, "scaled": 40}


@nki.jit
def layernorm(x, weight=None, bias=None, eps=1e-5, spacing=None):
    """y[n, h] = (x[n, h] - mean of x[n]) / sqrt(variance of x[n] + eps) * weight[h] + bias[h].

    x        [N, H]  float32, bfloat16 or float16, HBM; any N, H up to 16384; one-dimensional when `spacing` is given
    weight   [H]     any of these dtypes, HBM, or None
    bias     [H]     likewise
    eps      float   added to the variance, inside the root
    spacing  None, or (A, stride of a, B, stride of b, H): row a * B + b starts at element a * stride + b * stride of x
    returns  [N, H]  dtype of x, HBM

    float32 rows are centred on their mean before the variance is taken, so rows of mean 1e4 lose nothing. 16-bit rows
    are rounded to x's dtype after the product with weight and after that with 1 / sqrt(..), whichever comes first. A
    row's result does not depend on the rows around it.
    Source: Ba, Kiros and Hinton 2016.
    """
    outer, outer_stride, inner, inner_stride, width = spacing or (1, 0, x.shape[0], x.shape[1], x.shape[1])
    y = nl.ndarray((outer * inner, width), dtype=x.dtype, buffer=nl.shared_hbm)
    row_bytes = width * _itemsize(x.dtype)
    tiles = tiles_for(TUNED, TILES, x.dtype, {"N": outer * inner, "H": width})
    places = _places(outer, outer_stride, inner, inner_stride, width, _itemsize(x.dtype), tiles)
    vectors = [vector for vector in (weight, bias) if vector is not None]
    room = nl.tile_size.sbuf_fmax_bytes - sum(width * _itemsize(vector.dtype) for vector in vectors)
    depth = max(1, min(tiles["blocks"], room // (row_bytes * max([place[2] for place in places] + [1])) - 1))
    # the blocks that are summed, get their moments, are normalized and finished in one turn; where SBUF holds enough of
    # them they are four, so that no engine waits in a turn for another one's part of it
    lags = (0, 1, 2, 3) if depth > 4 else (0, 0, 0, 0)

    kind = RowBlock if x.dtype == nl.float32 else HalfRowBlock
    blocks, gain, shift = [], None, None
    for turn in range(len(places) + lags[-1] if places else 0):
        for place in places[len(blocks) : turn + depth - lags[-1]]:
            blocks.append(kind(x, y, place, tiles))
        if turn == 0:
            gain, shift = _broadcast(weight), _broadcast(bias)

        summing, measuring, normalizing, finishing = (_stage(blocks, turn - lag) for lag in lags)
        if finishing and lags[-1]:
            finishing.finish(gain, shift)
        if summing:
            summing.sum_up()
        moments = measuring.moment_units(eps) if measuring else []
        results = normalizing.normal_units(gain) if normalizing else []
        # a chain of short instructions leaves VectorE idle unless long ones stand between them
        for unit in interleave(moments, results) if lags[-1] else moments + results:
            unit()
        if finishing and not lags[-1]:
            finishing.finish(gain, shift)
    return y


def _stage(blocks, index):
    """The block that is in a stage of the pipeline, or None."""
    return blocks[index] if 0 <= index < len(blocks) else None


def _itemsize(dtype):
    return 4 if dtype == nl.float32 else 2


def _share(count):
    """The part of range(count) that this program does."""
    program, programs = nl.program_id(0), nl.num_programs()
    return count * program // programs, count * (program + 1) // programs


def _places(outer, outer_stride, inner, inner_stride, width, itemsize, tiles):
    """Where the row blocks of this program lie: (first row, partitions, rows per partition, access pattern, offset).

    Several rows lie in one partition where that makes a DMA long and leaves no partition idle.
    """
    pmax = nl.tile_size.pmax
    if outer == 1:
        first, last = _share(inner)
        return _even_places(0, 0, first, last, inner_stride, width, itemsize, tiles)
    first, last = _share(outer)
    places = []
    if 2 * inner > pmax:
        for a in range(first, last):
            places += _even_places(a * inner, a * outer_stride, 0, inner, inner_stride, width, itemsize, tiles)
        return places
    step = pmax // inner
    for a in range(first, last, step):
        count = min(step, last - a)
        pattern = [[outer_stride, count], [inner_stride, inner], [1, width]]
        places.append((a * inner, count * inner, 1, pattern, a * outer_stride))
    return places


def _even_places(row, offset, first, last, stride, width, itemsize, tiles):
    """Places of rows first..last that are `stride` elements apart; row 0 is row `row` of the result."""
    pmax = nl.tile_size.pmax
    places = []
    while first < last:
        most = -(-tiles["dma_bytes"] // (width * itemsize)) if len(places) >= tiles["short_blocks"] else 1
        rows = max(1, min(most, (last - first) // pmax))
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

    def __init__(self, x, y, place, tiles):
        """Start the load."""
        row, self.partitions, self.rows, pattern, offset = place
        self.tiles = tiles
        self.width = width = y.shape[1]
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

    def moment_units(self, eps):
        """Units that centre the rows, and find 1 / sqrt(variance + eps) and the mean that is left times that."""
        self.stats = self.column(_parts(self.width), 6)
        return [lambda j=j: self._centre(j) for j in range(self.rows)] + [lambda: self._close_moments(eps)]

    def _centre(self, j):
        row = self.tile[:, j]
        nisa.activation(dst=row, op=nl.copy, data=row, bias=self.minus_mean[:, j : j + 1])
        _bn_stats(self.stats[:, j], row)

    def _close_moments(self, eps):
        moments = self.join(self.stats)
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
        variance = moments[:, :, 1]
        # with a maximum that changes nothing, as tensor_scalar would wait for the port that GpSimdE holds
        nisa.scalar_tensor_tensor(
            dst=shifted, data=variance, op0=nl.add, operand0=eps, op1=nl.maximum, operand1=variance
        )
        # GpSimdE has the more exact rsqrt, and ScalarE would have to change its function table for it
        nisa.tensor_scalar(dst=rstd, data=shifted, op0=nl.rsqrt, operand0=None, engine=nisa.engine.gpsimd)
        return rstd

    def finish(self, gain, shift):
        """Multiply by weight and rstd what is not yet, add bias, store."""
        if self.scaled < self.width:
            every_column = self.rstd.expand_dim(2).broadcast(2, self.width - self.scaled)
            self._apply(nl.multiply, every_column, self.scaled)
        for op, vector in ((nl.multiply, None if self.is_weighted else gain), (nl.add, shift)):
            if vector is not None:
                self._apply(op, vector[: self.partitions].expand_dim(1).broadcast(1, self.rows))

        # a trigger on the sync queue costs ScalarE nothing; it waits there without holding up the loads that are needed
        nisa.dma_copy(dst=self.result, src=self.tile, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.sync)

    def normal_units(self, gain):
        """Units for rows * rstd + shift; weight is left to GpSimdE, as VectorE would take two cycles an element."""
        self.is_weighted, self.scaled = False, self.width
        return [lambda j=j: self._normalize(j) for j in range(self.rows)]

    def _normalize(self, j):
        row, scale, bias = self.tile[:, j], self.rstd[:, j : j + 1], self.shift[:, j : j + 1]
        nisa.activation(dst=row, op=nl.copy, data=row, scale=scale, bias=bias)

    def _apply(self, op, operand, first=0):
        """rows = op(rows, operand) from column `first` on, by GpSimdE."""
        part = self.tile[:, :, first:]
        nisa.tensor_tensor(dst=part, data1=part, data2=operand, op=op, engine=nisa.engine.gpsimd)


class HalfRowBlock(RowBlock):
    """Rows of 16-bit numbers: ScalarE takes the moments of the columns from `split` on, VectorE those before it.

    ScalarE sums differences from the first element of the row, which cost no precision however large the mean is.
    """

    def sum_up(self):
        """Sum (first - x) and its square over ScalarE's columns."""
        self.split = self.width
        if self.width > nl.tile_size.bn_stats_fmax:
            self.split = _even(self.width * self.tiles["moments"] / 100)
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

    def moment_units(self, eps):
        """Units that find the mean and 1 / sqrt(variance + eps)."""
        units = [lambda j=j: self._take_moments(j) for j in range(self.rows)]
        if self.split < self.width:
            units += self._sum_units(self.stats[:, :, -1, 1], self.stats[:, :, -1, 2])
        return [*units, self._join, lambda: self._root(eps)]

    def _take_moments(self, j):
        parts = _parts(self.split)
        pairs = self.stats[:, j, : 2 * parts].reshape((self.partitions, parts, 6))
        _bn_stats(pairs, self.tile[:, j, : self.split])

    def _join(self):
        self.moments = self.join(self.stats)

    def _root(self, eps):
        self.rstd = self.root(self.moments, eps)

    def _sum_units(self, mean, spread):
        """mean = first - sum / count, spread = variance * count = squares - sum**2 / count, of ScalarE's columns."""
        share = -1.0 / (self.width - self.split)
        first, square = self.tile[:, :, 0], self.column()

        def scaled_sum(dst, op, operand):
            nisa.scalar_tensor_tensor(
                dst=dst, data=self.sums, op0=nl.multiply, operand0=share, op1=op, operand1=operand
            )

        return [
            lambda: scaled_sum(square, nl.multiply, self.sums),
            lambda: scaled_sum(mean, nl.add, first),
            lambda: nisa.tensor_tensor(dst=spread, data1=self.squares, data2=square, op=nl.add),
        ]

    def normal_units(self, gain):
        """Units for (rows - mean) * rstd, with weight between the two where all is bfloat16, which has the range."""
        self.is_weighted = gain is not None and gain.dtype == self.tile.dtype == nl.bfloat16
        if self.is_weighted:
            self.scaled = _even(self.width * self.tiles["scaled"] / 100)
            return [lambda j=j: self._weigh(j, gain[: self.partitions]) for j in range(self.rows)]
        self.scaled = self.width
        return [lambda j=j: self._centre_and_scale(j) for j in range(self.rows)]

    def _centre_and_scale(self, j):
        row, mean, scale = self.tile[:, j], self.moments[:, j, 0:1], self.rstd[:, j : j + 1]
        nisa.tensor_scalar(dst=row, data=row, op0=nl.subtract, operand0=mean, op1=nl.multiply, operand1=scale)

    def _weigh(self, j, gain):
        """Centring and weight in one instruction take a cycle an element; GpSimdE and ScalarE share the scaling.

        The other way takes VectorE less, but in a mode in which it holds the port to SBUF that it shares with GpSimdE.
        """
        row, mean, scale = self.tile[:, j], self.moments[:, j, 0:1], self.rstd[:, j : j + 1]
        nisa.scalar_tensor_tensor(dst=row, data=row, op0=nl.subtract, operand0=mean, op1=nl.multiply, operand1=gain)
        if self.scaled > 0:
            part = row[:, : self.scaled]
            nisa.activation(dst=part, op=nl.copy, data=part, scale=scale)


def _even(count):
    return int(count) // 2 * 2


def _parts(width):
    return -(-width // nl.tile_size.bn_stats_fmax)


def _bn_stats(stats, row):
    """stats [P, parts, 6] of row [P, H], bn_stats_fmax elements at a time."""
    fmax, width = nl.tile_size.bn_stats_fmax, row.shape[1]
    for part in range(stats.shape[1]):
        nisa.bn_stats(dst=stats[:, part], data=row[:, part * fmax : min(width, (part + 1) * fmax)])
