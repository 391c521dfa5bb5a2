"""out = epilogue(x @ w + bias) + addend, tile by tile: the body that the matrix-product kernels here share.

Rows of x go to the stationary side (turned to [K, rows]), w to the moving side ([K, columns]), so that a result tile
comes out of PSUM with rows on partitions, as it lies in HBM. A panel of w stays in SBUF while all rows pass by it in
blocks; while it arrives, one column tile after the other, a block has enough rows to keep TensorE busy. Loads run two
blocks ahead of the products.
"""

import nki.isa as nisa
import nki.language as nl

from .operands import Panel, RowBlock, TurnedPanel, itemsize, ranges

ACTIVATIONS = {"gelu": nl.gelu, "gelu_tanh": nl.gelu_apprx_tanh, "silu": nl.silu}

# how a product is cut, unless its caller says otherwise
# tile_m, tile_n, tile_k   rows, columns and terms of a TensorE pass: at most 128, 512 and 128
# row_tiles     row tiles of a block; rows_first of them are loaded before a new panel of w
# panel_bytes   of one partition, for a panel; two meet while one takes over from the other
# row_bytes     of one partition, for three blocks of x, as they lie and turned, with what is added to the result
# load_bytes    of one load of w [K, N]: long ones use the DMA engines better, short ones let the products start sooner
TILES = {
    "tile_m": 128,
    "tile_n": 512,
    "tile_k": 128,
    "row_tiles": 4,
    "rows_first": 1,
    "panel_bytes": 65536,
    "row_bytes": 49152,
    "load_bytes": 524288,
}
PANEL_COLUMNS = 4096
# of one partition: a contraction block, where K is too deep for a panel of one column tile
DEEP_BLOCK_BYTES = 32768
# a store waits until its rows are this wide: a narrower DMA takes as long
STORE_BYTES = 2048


def share(total, grain=1):
    """This program's part [first, last) of `total`, cut at a multiple of `grain`."""
    grains = -(-total // grain)
    part = -(-grains // nl.num_programs()) * grain
    first = min(total, nl.program_id(0) * part)
    return first, min(total, first + part)


def share_block(rows, cols, tile_m, tile_n):
    """((row, end), (column, end)) of this program: it takes a part of the longer side and all of the other."""
    if nl.num_programs() == 1:
        return (0, rows), (0, cols)
    if rows >= cols:
        return share(rows, tile_m if rows > tile_m else 1), (0, cols)
    return (0, rows), share(cols, tile_n if cols > tile_n else 1)


def matmul(
    load_x,
    weight,
    store,
    row_range,
    col_range,
    bias=None,
    load_addend=None,
    epilogue="none",
    transposed_weight=False,
    x=None,
    operands=None,
    tiles=None,
):
    """out[m, n] = epilogue(sum over k of x[m, k] * w[k, n] + bias[n]) + addend[m, n], sums in float32.

    load_x       load_x(dst, row, k) fills the SBUF tile dst [rows, depth] with x[row : row + rows, k : k + depth];
                 k is 0 and depth is K as long as K * tile_n elements fit in panel_bytes times tile_k
    weight       [K, N], or [N, K] with transposed_weight; HBM; float32, bfloat16 or float16, as is x
    store        store(src, row, col) takes the SBUF tile src [rows, columns], of weight's dtype, to the result in HBM
    row_range    rows [first, last) of the result, col_range its columns: what this program computes
    bias         [N], HBM, dtype of weight
    load_addend  load_addend(dst, row, col) fills dst [rows, columns], of weight's dtype, with what is added at the end
    epilogue     none, or a name in ACTIVATIONS
    x            what load_x loads, where that is plain [M, K] in HBM: DMA can turn 16-bit rows on the way then
    operands     (row block, panel) in place of RowBlock and Panel, where operands come another way
    tiles        values for some of TILES
    """
    plan = Plan(weight, row_range, col_range, transposed_weight, load_addend, {**TILES, **(tiles or {})})
    result = Result(weight.dtype, bias, load_addend, store, epilogue)
    row_block, new_panel = operands or (RowBlock, TurnedPanel if transposed_weight else Panel)
    blocks, panels, steps = {}, {}, plan.steps
    for ahead in range(len(steps) + 2):
        if ahead < len(steps):
            step = steps[ahead]
            blocks[ahead] = row_block(load_x, x, step, plan, weight.dtype)
            result.load(step)
            is_new = step.panel_key not in panels
            if is_new:
                panels[step.panel_key] = new_panel(weight, step, plan)
            load(blocks[ahead], panels[step.panel_key], step, plan, is_new)
        if ahead == 1 and steps:
            blocks[0].turn()
        if ahead >= 2:
            now = ahead - 2
            following = blocks.get(now + 1)
            multiply(blocks.pop(now), panels[steps[now].panel_key], steps[now], plan, result, following)


def load(block, panel, step, plan, is_new):
    """Bring in a step's operands; a new panel comes before most rows, unless they are few."""
    first = len(step.row_tiles) if plan.few_rows else min(plan.rows_first, len(step.row_tiles))
    for i in range(first):
        block.load(i)
    if is_new:
        panel.load(0)
    for i in range(first, len(step.row_tiles)):
        block.load(i)
    for t in range(1, len(step.col_tiles)):
        if is_new:
            panel.load(t)


class Step:
    """One turn of the pipeline: rows and columns of the result and a range of the contraction, with their tiles."""

    def __init__(self, rows, cols, depths, plan):
        self.row, self.row_end = rows
        self.col, self.col_end = cols
        self.depth, self.depth_end = depths
        self.row_tiles = ranges(*rows, plan.tile_m)
        self.col_tiles = ranges(*cols, plan.tile_n)
        self.k_sizes = [end - start for start, end in ranges(*depths, plan.tile_k)]
        self.panel_key = (self.col, self.depth) if plan.kept else (self.col, self.depth, self.row)
        self.is_first_depth = self.depth == 0
        self.is_last_depth = self.depth_end == plan.depth


class Plan:
    """Sizes of a product and its steps; `kept` tells that a panel of w is deep enough to be kept for all rows."""

    def __init__(self, weight, row_range, col_range, transposed_weight, adds, tiles):
        self.depth = weight.shape[1] if transposed_weight else weight.shape[0]
        self.tile_m, self.tile_n, self.tile_k = (tiles[name] for name in ("tile_m", "tile_n", "tile_k"))
        tile_m, tile_n, tile_k = self.tile_m, self.tile_n, self.tile_k
        size = itemsize(weight.dtype)
        rows, cols = row_range[1] - row_range[0], col_range[1] - col_range[0]
        self.few_rows = rows < 4 * tile_m
        self.rows_first, self.load_bytes = tiles["rows_first"], tiles["load_bytes"]
        column_bytes = -(-self.depth // tile_k) * size
        self.kept = column_bytes * tile_n <= tiles["panel_bytes"]
        if self.kept:
            panel = min(tiles["panel_bytes"] // column_bytes, PANEL_COLUMNS)
            # whole column tiles, unless all columns fit: then the rows pass by once
            panel = cols if cols <= panel else panel // tile_n * tile_n
            row_bytes = 4 * column_bytes * tile_k + 3 * panel * (size + 4) * (adds is not None)
            row_block = tile_m * max(1, min(tiles["row_tiles"], tiles["row_bytes"] // row_bytes))
            depth_block = self.depth
        else:
            # two row tiles share each streamed block of w, four accumulators in all
            panel, row_block = 2 * tile_n, 2 * tile_m
            depth_block = max(1, DEEP_BLOCK_BYTES // (panel * size)) * tile_k
        self.steps = [
            Step(rows, cols, depths, self)
            for cols in ranges(*col_range, panel)
            for rows in ranges(*row_range, row_block)
            for depths in ranges(0, self.depth, depth_block)
        ]


def multiply(block, panel, step, plan, result, following):
    """Products of one step; sums whose contraction ends here leave PSUM as soon as they are complete.

    The rows of the `following` step are turned before the last sums, so that no product waits for them.
    """
    pairs = [(i, t) for t in range(len(step.col_tiles)) for i in range(len(step.row_tiles))]
    groups = [[pair] for pair in pairs] if plan.kept else [pairs]
    panel.ready(0)
    for group in groups:
        for _, t in group:
            panel.ready(t)
        if group is groups[-1] and following is not None:
            following.turn()
        accumulators = [result.accumulator(step, i, t) for i, t in group]
        for k, size in enumerate(step.k_sizes):
            for accumulator, (i, t) in zip(accumulators, group):
                nisa.nc_matmul(
                    dst=accumulator,
                    stationary=block.stationary(i, k, size),
                    moving=panel.moving(k, size, t),
                    accumulate=result.is_open(step, i, t),
                )
                result.open(step, i, t)
        if step.is_last_depth:
            for accumulator, (i, t) in zip(accumulators, group):
                result.close(accumulator, step, i, t)
        panel.ready(group[-1][1] + 1)


class Result:
    """What happens to sums on their way from PSUM to HBM: bias, epilogue, addend, cast, store.

    VectorE adds along columns while it reads PSUM, ScalarE applies the function. With an addend, VectorE is kept for
    that: GpSimdE adds the bias to the addend before, or, where a function comes between the two, TensorE does, with a
    product with a row of ones that opens each sum.
    """

    def __init__(self, dtype, bias, load_addend, store, epilogue):
        self.dtype = dtype
        self.bias = bias
        self.load_addend = load_addend
        self.store = store
        self.function = ACTIVATIONS.get(epilogue)
        self.opens_with_bias = bias is not None and load_addend is not None and self.function is not None
        self.sums = {}
        self.opened = set()
        self.biases = {}
        self.addends = {}
        self.outs = {}
        self.ones = None

    def load(self, step):
        """Bring in what the end of this step's sums needs."""
        if self.bias is not None and step.col not in self.biases:
            copies = 1 if self.opens_with_bias else nl.tile_size.pmax
            tile = nl.ndarray((copies, step.col_end - step.col), dtype=self.dtype, buffer=nl.sbuf)
            row = self.bias[step.col : step.col_end].expand_dim(0).broadcast(0, copies)
            # ScalarE has nothing to do yet, and its queue does not stand behind the panels of w
            nisa.dma_copy(dst=tile, src=row, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.scalar)
            self.biases[step.col] = tile
        if self.load_addend and step.is_last_depth:
            for row, row_end in step.row_tiles:
                tile = nl.ndarray((row_end - row, step.col_end - step.col), dtype=self.dtype, buffer=nl.sbuf)
                self.load_addend(tile, row, step.col)
                self.addends[row, step.col] = self._with_bias(tile, self.biases.get(step.col))

    def _with_bias(self, addend, bias):
        if bias is None or self.opens_with_bias:
            return addend
        both = nl.ndarray(addend.shape, dtype=nl.float32, buffer=nl.sbuf)
        bias = bias[: addend.shape[0]]
        nisa.tensor_tensor(dst=both, data1=addend, data2=bias, op=nl.add, engine=nisa.engine.gpsimd)
        return both

    def accumulator(self, step, i, t):
        """The PSUM tile of row tile i and column tile t, opened with the bias where TensorE adds it."""
        (row, row_end), (col, col_end) = step.row_tiles[i], step.col_tiles[t]
        if step.is_first_depth:
            self.sums[row, col] = nl.ndarray((row_end - row, col_end - col), dtype=nl.float32, buffer=nl.psum)
            if self.opens_with_bias:
                self._open_with_bias(self.sums[row, col], step, t)
                self.open(step, i, t)
        return self.sums[row, col]

    def _open_with_bias(self, accumulator, step, t):
        if self.ones is None:
            self.ones = nl.ndarray((1, nl.tile_size.pmax), dtype=self.dtype, buffer=nl.sbuf)
            nisa.memset(dst=self.ones, value=1.0)
        nisa.nc_matmul(
            dst=accumulator,
            stationary=self.ones[:, : accumulator.shape[0]],
            moving=self._columns(self.biases[step.col], step, t),
            accumulate=False,
        )

    def is_open(self, step, i, t):
        """Whether a product was written into this sum already."""
        return (step.row_tiles[i][0], step.col_tiles[t][0]) in self.opened

    def open(self, step, i, t):
        """Note that a product was written into this sum."""
        self.opened.add((step.row_tiles[i][0], step.col_tiles[t][0]))

    def close(self, sums, step, i, t):
        """Finish the sums of one tile, and store them once enough columns are finished."""
        row = step.row_tiles[i][0]
        rows, columns = sums.shape
        first, last = self._store_range(step, t)
        left, right = step.col_tiles[first][0], step.col_tiles[last - 1][1]
        if (row, left) not in self.outs:
            self.outs[row, left] = nl.ndarray((rows, right - left), dtype=self.dtype, buffer=nl.sbuf)
        out = self.outs[row, left]
        col = step.col_tiles[t][0] - left
        self._finish(out[:, col : col + columns], sums, step, row, t)
        if t + 1 == last:
            self.store(self.outs.pop((row, left)), row, left)

    def _store_range(self, step, t):
        """Column tiles [first, last) that are stored together with tile t."""
        width = step.col_tiles[0][1] - step.col_tiles[0][0]
        together = max(1, -(-STORE_BYTES // (width * itemsize(self.dtype))))
        first = t // together * together
        return first, min(len(step.col_tiles), first + together)

    def _finish(self, out, sums, step, row, t):
        bias = None if self.bias is None or self.load_addend else self._columns(self.biases[step.col], step, t)
        addend = self._columns(self.addends[row, step.col], step, t) if self.load_addend else None
        if self.function is None and bias is None and addend is None:
            nisa.tensor_copy(dst=out, src=sums)
        elif self.function is None:
            nisa.tensor_tensor(dst=out, data1=sums, data2=bias[: out.shape[0]] if addend is None else addend, op=nl.add)
        else:
            self._activate(out, sums, bias, addend)

    def _activate(self, out, sums, bias, addend):
        if bias is not None:
            biased = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=biased, data1=sums, data2=bias[: out.shape[0]], op=nl.add)
            sums = biased
        if addend is None:
            nisa.activation(dst=out, op=self.function, data=sums)
            return
        active = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=active, op=self.function, data=sums)
        nisa.tensor_tensor(dst=out, data1=active, data2=addend, op=nl.add)

    def _columns(self, tile, step, t):
        col, col_end = step.col_tiles[t]
        return tile[:, col - step.col : col_end - step.col]
