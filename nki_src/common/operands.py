"""Operands of a matrix product in SBUF with the contraction on partitions: blocks of x, panels of w."""

import nki.isa as nisa
import nki.language as nl

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}


def itemsize(dtype):
    """Bytes of one element of a dtype the kernels take."""
    return ITEMSIZE[str(dtype).split(".")[-1]]


def ranges(first, last, size):
    """[(start, end), ...] of at most `size` each over [first, last)."""
    return [(start, min(last, start + size)) for start in range(first, last, size)]


def turn(dst, src, tile_k):
    """dst[p, j, m] = src[m, j * tile_k + p], by TensorE through PSUM, as many blocks to a bank as fit."""
    rows, depth = src.shape
    whole = depth // tile_k
    per_bank = max(1, nl.tile_size.psum_bank_fmax_bytes // (rows * itemsize(src.dtype)))
    for j, end in ranges(0, whole, per_bank):
        bank = nl.ndarray((tile_k, end - j, rows), dtype=src.dtype, buffer=nl.psum)
        for i in range(j, end):
            nisa.nc_transpose(dst=bank[:, i - j], data=src[:, i * tile_k : (i + 1) * tile_k])
        nisa.tensor_copy(dst=dst[:, j:end], src=bank)
    if depth % tile_k:
        bank = nl.ndarray((depth % tile_k, rows), dtype=src.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=bank, data=src[:, whole * tile_k :])
        nisa.tensor_copy(dst=dst[: depth % tile_k, whole], src=bank)


def can_turn_on_the_way(rows, dtype):
    """Whether DMA can turn `rows` rows of HBM while it loads them: 16-bit elements, rows in sixteens."""
    return itemsize(dtype) == 2 and rows % 16 == 0


def load_turned(src, tile_k):
    """[tile_k, K / tile_k, rows] in SBUF of src [rows, K] in HBM, turned by DMA on the way."""
    rows, depth = src.shape
    whole = depth // tile_k
    dst = nl.ndarray((tile_k, -(-depth // tile_k), rows), dtype=src.dtype, buffer=nl.sbuf)
    if whole:
        blocks = src[:, : whole * tile_k].reshape_dim(1, (whole, tile_k)).permute((1, 0, 2)).expand_dim(0)
        nisa.dma_transpose(dst=dst[:, :whole].expand_dim(3), src=blocks, axes=(3, 1, 2, 0))
    if depth % tile_k:
        rest = src[:, whole * tile_k :].expand_dim(0).expand_dim(0)
        nisa.dma_transpose(dst=dst[: depth % tile_k, whole:].expand_dim(3), src=rest, axes=(3, 1, 2, 0))
    return dst


class RowBlock:
    """Rows of x for one step as [K, rows]: turned by DMA where x is plain rows, else loaded and turned by TensorE."""

    def __init__(self, load_x, x, step, plan, dtype):
        self.load_x, self.x, self.step, self.dtype = load_x, x, step, dtype
        self.tile_k = plan.tile_k
        self.loaded = {}
        self.turned = {}

    def load(self, i):
        """Bring in row tile i."""
        row, row_end = self.step.row_tiles[i]
        depth, depth_end = self.step.depth, self.step.depth_end
        if self.x is not None and can_turn_on_the_way(row_end - row, self.dtype):
            self.turned[i] = load_turned(self.x[row:row_end, depth:depth_end], self.tile_k)
            return
        self.loaded[i] = nl.ndarray((row_end - row, depth_end - depth), dtype=self.dtype, buffer=nl.sbuf)
        self.load_x(self.loaded[i], row, depth)

    def turn(self):
        """Turn the row tiles that came as they lie to [tile_k, K / tile_k, rows]."""
        for i, tile in self.loaded.items():
            rows, depth = tile.shape
            self.turned[i] = nl.ndarray((self.tile_k, -(-depth // self.tile_k), rows), dtype=tile.dtype, buffer=nl.sbuf)
            turn(self.turned[i], tile, self.tile_k)

    def stationary(self, i, k, size):
        """[size, rows] of row tile `i`: contraction tile k, of `size` elements."""
        return self.turned[i][:size, k]


class Panel:
    """Columns of w [K, N] in SBUF, one tile [tile_k, K / tile_k, columns] for each column tile."""

    def __init__(self, weight, step, plan):
        self.weight, self.step = weight, step
        self.tile_k, self.load_bytes = plan.tile_k, plan.load_bytes
        self.tiles = {}

    def load(self, t):
        """Bring in column tile t, in pieces that the first products can start on."""
        step, tile_k, dtype = self.step, self.tile_k, self.weight.dtype
        col, col_end = step.col_tiles[t]
        depth = step.depth_end - step.depth
        tile = nl.ndarray((tile_k, -(-depth // tile_k), col_end - col), dtype=dtype, buffer=nl.sbuf)
        whole = depth // tile_k
        for j, end in ranges(0, whole, max(1, self.load_bytes // (tile_k * (col_end - col) * itemsize(dtype)))):
            rows = self.weight[step.depth + j * tile_k : step.depth + end * tile_k, col:col_end]
            nisa.dma_copy(dst=tile[:, j:end], src=rows.reshape_dim(0, (end - j, tile_k)).permute((1, 0, 2)))
        if depth % tile_k:
            rows = self.weight[step.depth + whole * tile_k : step.depth_end, col:col_end]
            nisa.dma_copy(dst=tile[: depth % tile_k, whole], src=rows)
        self.tiles[t] = tile

    def ready(self, t):
        """Column tile t is ready as loaded."""

    def moving(self, k, size, t):
        """[size, columns]: contraction tile k of column tile t."""
        return self.tiles[t][:size, k]


class TurnedPanel:
    """Columns of w given as [N, K], turned to [K, columns] tile by tile: by DMA, or by TensorE when first used."""

    def __init__(self, weight, step, plan):
        self.weight, self.step = weight, step
        self.tile_k = plan.tile_k
        self.few_rows = plan.few_rows
        self.loaded = {}
        self.tiles = {}

    def load(self, t):
        """Bring in column tile t. Few rows leave TensorE idle while DMA turns, so it turns every other tile."""
        col, col_end = self.step.col_tiles[t]
        rows = self.weight[col:col_end, self.step.depth : self.step.depth_end]
        if can_turn_on_the_way(col_end - col, self.weight.dtype) and not (self.few_rows and t % 2):
            self.tiles[t] = load_turned(rows, self.tile_k)
        else:
            self.loaded[t] = self._load_rows(rows)

    def _load_rows(self, source):
        """[(tile [rows of w, depth], first row), ...]: whole blocks of rows in one DMA, the rest in another."""
        pmax = nl.tile_size.pmax
        rows, depth = source.shape
        whole = rows // pmax
        tiles = []
        if whole:
            tile = nl.ndarray((pmax, whole, depth), dtype=source.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=source[: whole * pmax].reshape_dim(0, (whole, pmax)).permute((1, 0, 2)))
            tiles += [(tile[:, i], i * pmax) for i in range(whole)]
        if rows % pmax:
            tile = nl.ndarray((rows % pmax, depth), dtype=source.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=source[whole * pmax :])
            tiles.append((tile, whole * pmax))
        return tiles

    def ready(self, t):
        """Turn column tile t, if there is one and it is not turned yet."""
        if t not in self.loaded:
            return
        col, col_end = self.step.col_tiles[t]
        depth = self.step.depth_end - self.step.depth
        parts = self.loaded.pop(t)
        tile = nl.ndarray((self.tile_k, -(-depth // self.tile_k), col_end - col), parts[0][0].dtype, buffer=nl.sbuf)
        for part, left in parts:
            turn(tile[:, :, left : left + part.shape[0]], part, self.tile_k)
        self.tiles[t] = tile

    def moving(self, k, size, t):
        """[size, columns]: contraction tile k of column tile t."""
        return self.tiles[t][:size, k]
