"""Operands of a matrix product in SBUF with the contraction on partitions: blocks of x, panels of w."""

import nki.isa as nisa
import nki.language as nl

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}

# one load of w: large enough to use the DMA engines, small enough that the first products need not wait long
LOAD_BYTES = 524288


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


class RowBlock:
    """Rows of x for one step: loaded as they lie, then turned to [K, rows] by TensorE."""

    def __init__(self, load_x, step, plan, dtype):
        self.tile_k = plan.tile_k
        self.loaded = []
        self.turned = []
        for row, row_end in step.row_tiles:
            tile = nl.ndarray((row_end - row, step.depth_end - step.depth), dtype=dtype, buffer=nl.sbuf)
            load_x(tile, row, step.depth)
            self.loaded.append(tile)

    def turn(self):
        """Turn every row tile to [tile_k, depth / tile_k, rows]."""
        for tile in self.loaded:
            rows, depth = tile.shape
            turned = nl.ndarray((self.tile_k, -(-depth // self.tile_k), rows), dtype=tile.dtype, buffer=nl.sbuf)
            turn(turned, tile, self.tile_k)
            self.turned.append(turned)

    def stationary(self, i, k, size):
        """[size, rows] of row tile `i`: contraction tile k, of `size` elements."""
        return self.turned[i][:size, k]


class Panel:
    """Columns of w [K, N] in SBUF, [tile_k, K / tile_k, columns]."""

    def __init__(self, weight, step, plan):
        tile_k, width = plan.tile_k, step.col_end - step.col
        depth = step.depth_end - step.depth
        self.step = step
        self.tile = nl.ndarray((tile_k, -(-depth // tile_k), width), dtype=weight.dtype, buffer=nl.sbuf)
        whole = depth // tile_k
        per_load = max(1, LOAD_BYTES // (tile_k * width * itemsize(weight.dtype)))
        for j, end in ranges(0, whole, per_load):
            rows = weight[step.depth + j * tile_k : step.depth + end * tile_k, step.col : step.col_end]
            source = rows.reshape_dim(0, (end - j, tile_k)).permute((1, 0, 2))
            nisa.dma_copy(dst=self.tile[:, j:end], src=source)
        if depth % tile_k:
            rows = weight[step.depth + whole * tile_k : step.depth_end, step.col : step.col_end]
            nisa.dma_copy(dst=self.tile[: depth % tile_k, whole], src=rows)

    def ready(self, t):
        """Column tile t is ready as loaded."""

    def moving(self, k, size, t):
        """[size, columns]: contraction tile k of column tile t."""
        col, col_end = self.step.col_tiles[t]
        return self.tile[:size, k, col - self.step.col : col_end - self.step.col]


class TurnedPanel:
    """Columns of w given as [N, K]: loaded as they lie, each column tile turned to [K, columns] when first used."""

    def __init__(self, weight, step, plan):
        self.tile_k = plan.tile_k
        self.step = step
        self.loaded = [self._load(weight, *cols) for cols in step.col_tiles]
        self.turned = {}

    def _load(self, weight, col, col_end):
        """[(tile [rows of w, depth], first column), ...]: whole blocks of rows in one DMA, the rest in another."""
        pmax, step = nl.tile_size.pmax, self.step
        depth = step.depth_end - step.depth
        whole = (col_end - col) // pmax
        tiles = []
        if whole:
            tile = nl.ndarray((pmax, whole, depth), dtype=weight.dtype, buffer=nl.sbuf)
            rows = weight[col : col + whole * pmax, step.depth : step.depth_end]
            nisa.dma_copy(dst=tile, src=rows.reshape_dim(0, (whole, pmax)).permute((1, 0, 2)))
            tiles += [(tile[:, i], i * pmax) for i in range(whole)]
        if col + whole * pmax < col_end:
            tile = nl.ndarray((col_end - col - whole * pmax, depth), dtype=weight.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=weight[col + whole * pmax : col_end, step.depth : step.depth_end])
            tiles.append((tile, whole * pmax))
        return tiles

    def ready(self, t):
        """Turn column tile t, if there is one and it is not turned yet."""
        if t >= len(self.step.col_tiles) or t in self.turned:
            return
        col, col_end = self.step.col_tiles[t]
        depth = self.step.depth_end - self.step.depth
        first, _ = self.loaded[t][0]
        turned = nl.ndarray((self.tile_k, -(-depth // self.tile_k), col_end - col), dtype=first.dtype, buffer=nl.sbuf)
        for tile, left in self.loaded[t]:
            turn(turned[:, :, left : left + tile.shape[0]], tile, self.tile_k)
        self.turned[t] = turned

    def moving(self, k, size, t):
        """[size, columns]: contraction tile k of column tile t."""
        return self.turned[t][:size, k]
