"""How the work of one attention call is cut: contraction chunks, query blocks, groups of heads, parts."""

import nki.language as nl

from ..common.operands import itemsize, ranges

# of one partition, the bytes of
# part_bytes     k and v as they lie and q and out, of the heads that are loaded and stored together
# group_bytes    k turned, of the heads that are computed together
# segment_bytes  q and out of the queries that are loaded and stored together
# PSUM banks of
# score_banks    one tile of scores
# sum_banks      the sums of one block
# weight_lag     exponentials of so many units before are what the product with v takes: they are done by then
TILES = {
    "part_bytes": 24576,
    "group_bytes": 16384,
    "segment_bytes": 8192,
    "score_banks": 2,
    "sum_banks": 2,
    "weight_lag": 2,
}
# of one partition: where keys of one head take more, they are finished before the next head's are loaded
ALONE_BYTES = 49152


class Plan:
    """Sizes of a call and the cut of its work for this program.

    A group is the heads one block computes; a part is the heads and queries that are loaded and stored together.
    """

    def __init__(self, q_shape, keys, dtype, scale, masked, tiles, pairs=1):
        self.batches, self.heads, self.queries, self.width = q_shape
        self.keys, self.pairs = keys, pairs
        self.tiles = tiles
        self.dtype, self.itemsize = dtype, itemsize(dtype)
        self.scale = scale
        self.masked = masked
        self.pmax, self.bank = nl.tile_size.pmax, nl.tile_size.psum_bank_fmax
        self.chunks = ranges(0, self.width, self.pmax)
        # the row of shifts follows the last chunk where the engines can address it, else it is a chunk of its own
        last = self.chunks[-1][1] - self.chunks[-1][0]
        self.shift_row = -(-last // 32) * 32 if last <= 96 else None
        # float16 could not hold a large maximum, so its partner in the contraction takes a part of it
        self.shift_scale = 256.0 if dtype == nl.float16 else 1.0
        self.sums_per_bank = self.bank // (self.width + 1)
        self.query_block = self._query_block()
        self.alone = self._stock_bytes() + self._turned_bytes() > ALONE_BYTES
        self.group = self._group()
        self.segment, self.part_heads = self._part()

    def _query_block(self):
        tiles = min(self.bank // self.pmax, self.tiles["sum_banks"] * self.sums_per_bank)
        blocks = -(-self.queries // (tiles * self.pmax))
        return min(self.queries, -(-self.queries // (blocks * self.pmax)) * self.pmax)

    def _group(self):
        most = self.tiles["score_banks"] * (self.bank // self.query_block)
        most = min(self.heads, most, self.tiles["group_bytes"] // self._turned_bytes())
        tiles = -(-self.query_block // self.pmax)
        fitting = [n for n in range(2, most + 1) if tiles * -(-n // self.sums_per_bank) <= self.tiles["sum_banks"]]
        return max(fitting, default=1)

    def _part(self):
        """(queries of a part, heads of a part)."""
        whole = 2 * -(-self.queries // self.pmax) * self.width * self.itemsize
        if whole > self.tiles["segment_bytes"]:
            return max(
                1, self.tiles["segment_bytes"] * self.queries // whole // self.query_block
            ) * self.query_block, self.group
        heads = self.tiles["part_bytes"] // (whole + self._stock_bytes()) // self.group * self.group
        return self.queries, min(self.heads, max(heads, self.group))

    def _stock_bytes(self):
        return -(-self.keys // self.pmax) * (2 * self.width + 1) * self.itemsize

    def _turned_bytes(self):
        return len(self.chunks) * self.keys * (8 if self.itemsize == 4 else 2)

    def parts(self):
        """[(batch, (head, end), [((query, end), query tiles of each block), ...]), ...] of this program."""
        programs, program = nl.num_programs(), nl.program_id(0)
        pairs = self.batches * self.heads
        pair_range, query_range = (0, pairs), (0, self.queries)
        if pairs >= programs:
            part = -(-pairs // programs)
            pair_range = min(pairs, program * part), min(pairs, (program + 1) * part)
        else:
            part = -(-self.queries // programs)
            query_range = min(self.queries, program * part), min(self.queries, (program + 1) * part)
        segments = []
        for first, last in ranges(*query_range, self.segment):
            blocks = ranges(0, last - first, self.query_block)
            segments.append(((first, last), [self._tiles(*block) for block in blocks]))
        parts = []
        for batch in range(self.batches):
            first, last = (max(0, min(self.heads, pair - batch * self.heads)) for pair in pair_range)
            parts += [(batch, heads, segments) for heads in ranges(first, last, self.part_heads) if segments]
        return parts

    def _tiles(self, first, last):
        return list(range(first // self.pmax, -(-last // self.pmax)))

    def groups(self, heads):
        """[(head, end), ...] of the groups of a part, counted from its first head."""
        return ranges(0, heads[1] - heads[0], self.group)


class Banked:
    """A PSUM tile of `count` items of `width` columns each, of which none crosses a bank."""

    def __init__(self, rows, count, width, dtype=nl.float32):
        bank = nl.tile_size.psum_bank_fmax_bytes // itemsize(dtype)
        self.count, self.width = count, width
        self.per_bank = min(count, bank // width)
        self.banks = -(-count // self.per_bank)
        shape = (rows, self.banks, bank if self.banks > 1 else count * width)
        self.tile = nl.ndarray(shape, dtype=dtype, buffer=nl.psum)

    def item(self, i):
        """[rows, width]"""
        left = i % self.per_bank * self.width
        return self.tile[:, i // self.per_bank, left : left + self.width]

    def pieces(self):
        """[(first item, end, view [rows, banks, items, width]), ...]: whole banks in one piece, the rest in another."""
        whole = self.count // self.per_bank
        pieces = [(0, whole * self.per_bank, self._view(0, whole, self.per_bank))]
        if self.count % self.per_bank:
            rest = self.count % self.per_bank
            pieces.append((self.count - rest, self.count, self._view(whole, whole + 1, rest)))
        return pieces

    def _view(self, first, last, items):
        return self.tile[:, first:last, : items * self.width].reshape_dim(2, (items, self.width))
