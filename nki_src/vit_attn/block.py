"""One block of queries of a group of heads, in stages: load, turn, score, shift, weigh, store."""

import nki.isa as nisa
import nki.language as nl

from ..common.operands import ranges
from .plan import Banked
from .tiles import turned

# a sum of weights is at least about 1; where no key counts it is 0, and 0 times the inverse of this is 0
LEAST_SUM = 1e-30


class Block:
    """Query row tiles `tiles` of a part, for the heads of `keys`; `is_first` and `is_last` of the part's blocks."""

    def __init__(self, part, keys, tiles, plan, is_first, is_last):
        self.part, self.keys, self.tiles, self.plan = part, keys, tiles, plan
        self.is_first, self.is_last = is_first, is_last
        self.heads = keys.count

    def load(self):
        """Bring in what the part needs, with its first block."""
        if self.is_first:
            self.part.load()

    def turn(self):
        """Turn k and q; the row of shifts is not known yet."""
        plan, keys = self.plan, self.keys
        keys.turn()
        loaded = [self.part.queries[i] for i in self.tiles]
        start = loaded[0][1]
        tiles = [(tile[:, keys.first : keys.last], row - start) for tile, row in loaded]
        self.spans = [(row, row + tile.shape[0]) for tile, row in tiles]
        self.queries = self.spans[-1][1]
        frame = None if keys.frames is None else keys.frames.query[:, self.part.first + start :][:, : self.queries]
        self.turned = turned(tiles, self.heads, self.queries, plan, nisa.engine.scalar, frame)
        if plan.shift_row is None:
            self.shifts = nl.ndarray((1, self.heads, self.queries), dtype=plan.dtype, buffer=nl.sbuf)
        else:
            self.shifts = self.turned[-1][0][plan.shift_row : plan.shift_row + 1]

    # ---- the first pass: row maxima

    def score_units(self):
        """Units that find -max of every row's scores, each over the banks of one tile of scores."""
        plan = self.plan
        rows = self.spans[0][1] - self.spans[0][0]
        # coarse is good enough: whatever is taken off, it is the same for all keys of a row
        self.minus_max = nl.ndarray((rows, len(self.spans), self.heads), dtype=nl.bfloat16, buffer=nl.sbuf)
        units = []
        for i in range(len(self.spans)):
            if plan.keys <= plan.bank:
                for heads in ranges(0, self.heads, plan.tiles["score_banks"] * (plan.bank // plan.keys)):
                    units.append(lambda i=i, heads=heads: self._score_heads(i, *heads))
            else:
                for h in range(self.heads):
                    units += self._long_units(i, h)
        return units

    def _score_heads(self, i, first, last):
        """-max of query tile i, for heads whose scores fit in a tile."""
        rows = self.spans[i][1] - self.spans[i][0]
        scores = Banked(rows, last - first, self.plan.keys)
        for h in range(first, last):
            self._score(scores.item(h - first), i, h, 0, self.plan.keys)
        for start, end, view in scores.pieces():
            self._reduce(self.minus_max[:rows, i, first + start : first + end], view, 3, negate=True)

    def _long_units(self, i, h):
        """-max of query tile i of one head, over several tiles of scores."""
        plan = self.plan
        rows = self.spans[i][1] - self.spans[i][0]
        wide = plan.bank
        whole = plan.keys // wide * wide
        spans = ranges(0, whole, wide) + ranges(whole, plan.keys, plan.bank)
        parts = nl.ndarray((rows, len(spans)), dtype=nl.float32, buffer=nl.sbuf)

        def unit(j):
            first, last = spans[j]
            width = min(plan.bank, last - first)
            scores = Banked(rows, (last - first) // width, width)
            for n in range(scores.count):
                self._score(scores.item(n), i, h, first + n * width, first + (n + 1) * width)
            self._reduce(parts[:, j : j + 1], scores.pieces()[0][2], (1, 2, 3))
            if j == len(spans) - 1:
                self._reduce(self.minus_max[:rows, i, h : h + 1], parts, 1, negate=True)

        return [lambda j=j: unit(j) for j in range(len(spans))]

    def _score(self, dst, i, h, first, last):
        start, end = self.spans[i]
        mask = self.keys.stock.mask
        for c in range(len(self.plan.chunks)):
            nisa.nc_matmul(
                dst=dst,
                stationary=self.turned[c][1][:, h, start:end],
                moving=self.keys.turned[c][1][:, h, first:last],
                accumulate=c > 0,
            )
        if mask is not None:
            factor = mask.factor[:, : end - start]
            nisa.nc_matmul(dst=dst, stationary=factor, moving=mask.row[:, first:last], accumulate=True)

    def _reduce(self, dst, data, axis, negate=False):
        # a negative scale turns the order of scores around
        op = nl.minimum if self.plan.scale < 0 else nl.maximum
        nisa.tensor_reduce(dst=dst, op=op, data=data, axis=axis, negate=negate)

    def shift(self):
        """Write -max, turned to a row, beside q: scores come out of the contraction less their maximum."""
        row = Banked(1, self.heads, self.queries, nl.bfloat16)
        for i, (start, end) in enumerate(self.spans):
            for h in range(self.heads):
                nisa.nc_transpose(dst=row.item(h)[:, start:end], data=self.minus_max[: end - start, i, h : h + 1])
        for first, last, view in row.pieces():
            scale = 1.0 / self.plan.shift_scale
            nisa.activation(dst=self.shifts[:, first:last], op=nl.copy, data=view, scale=scale)

    # ---- the second pass: weights, and their product with v

    def weight_units(self):
        """Units that take key tiles to weights and add weights times values; the product lags behind."""
        self._open_sums()
        batches, lag = self._key_batches(), self.plan.tiles["weight_lag"]
        weights = {}

        def unit(n):
            if n < len(batches):
                weights[n] = self._weights(*batches[n])
            if n >= lag:
                self._add(weights.pop(n - lag), *batches[n - lag])

        return [lambda n=n: unit(n) for n in range(len(batches) + lag)]

    def _key_batches(self):
        """[(key tile, end), ...]: tiles whose scores fit in one PSUM tile go together, unless each has its own mask."""
        plan = self.plan
        whole = plan.keys // plan.pmax
        together = 1 if plan.masked else max(1, plan.tiles["score_banks"] * (plan.bank // self.queries) // self.heads)
        batches = ranges(0, whole, together)
        return batches if plan.keys % plan.pmax == 0 else [*batches, (whole, whole + 1)]

    def _weights(self, first, last):
        """exp(scale * (scores - max)) of key tiles first..last, [keys of a tile, tiles * heads, queries]."""
        plan, keys = self.plan, self.keys
        rows = keys.values[first].shape[0]
        scores = Banked(rows, (last - first) * self.heads, self.queries)
        for j in range(first, last):
            start = j * plan.pmax
            for h in range(self.heads):
                dst = scores.item((j - first) * self.heads + h)
                for c in range(len(plan.chunks)):
                    nisa.nc_matmul(
                        dst=dst,
                        stationary=keys.turned[c][0][:, h, start : start + rows],
                        moving=self.turned[c][0][:, h],
                        accumulate=c > 0,
                    )
                if keys.partner is not None:
                    partner = keys.partner[:, :rows]
                    nisa.nc_matmul(dst=dst, stationary=partner, moving=self.shifts[:, h], accumulate=True)
        weights = nl.ndarray((rows, scores.count, self.queries), dtype=plan.dtype, buffer=nl.sbuf)
        mask = keys.stock.mask
        bias = None if mask is None else mask.column[:rows, first : first + 1]
        for start, end, view in scores.pieces():
            nisa.activation(dst=weights[:, start:end], op=nl.exp, data=view, scale=plan.scale, bias=bias)
        return weights

    def _open_sums(self):
        """PSUM for the sums, a bank at a time: query tiles of one head, or heads of one query tile."""
        plan = self.plan
        self.banks = []
        whole = sum(end - start == plan.pmax for start, end in self.spans)
        if self.heads == 1 and whole:
            runs = [(range(*tiles), 0, 1) for tiles in ranges(0, whole, plan.sums_per_bank)]
            rest = range(whole, len(self.spans))
        else:
            runs, rest = [], range(len(self.spans))
        runs += [(range(i, i + 1), *heads) for i in rest for heads in ranges(0, self.heads, plan.sums_per_bank)]
        for tiles, first, last in runs:
            rows = self.spans[tiles[0]][1] - self.spans[tiles[0]][0]
            shape = (rows, len(tiles), last - first, plan.width + 1)
            self.banks.append((nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum), tiles, first, last))

    def _add(self, weights, first, last):
        for j in range(first, last):
            for sums, tiles, head, head_end in self.banks:
                for i in tiles:
                    start, end = self.spans[i]
                    for h in range(head, head_end):
                        nisa.nc_matmul(
                            dst=sums[:, i - tiles[0], h - head],
                            stationary=weights[:, (j - first) * self.heads + h, start:end],
                            moving=self.keys.values[j][:, h],
                            accumulate=j > 0,
                        )

    def store(self):
        """Divide by the sums of weights; with the last block of the part, take the rows to HBM."""
        width = self.plan.width
        for sums, tiles, first, last in self.banks:
            total = sums[:, :, :, width:]
            inverse = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
            if self.plan.masked:
                nisa.tensor_scalar(dst=inverse, data=total, op0=nl.maximum, operand0=LEAST_SUM)
                total = inverse
            nisa.reciprocal(dst=inverse, data=total)
            heads = self.keys.first + first, self.keys.first + last
            nisa.tensor_tensor(
                dst=self.part.results_of([self.tiles[i] for i in tiles], *heads),
                data1=sums[:, :, :, :width],
                data2=inverse.broadcast(3, width),
                op=nl.multiply,
            )
        if self.is_last:
            self.part.store()
