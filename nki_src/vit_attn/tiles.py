"""Operands of attention in SBUF: what DMA brings in and takes out for many heads at once, q and k turned, masks."""

import nki.isa as nisa
import nki.language as nl

from ..common.operands import itemsize

# what a masked key loses: in a score, as the product of two numbers that float16 holds; and in the exponent
MASK_FACTORS = (60000.0, 256.0)
MASK_EXPONENT = 1e30


def row_tiles(rows, width, heads, dtype):
    """(tile [pmax, rows / pmax, heads, width] or None, tile [rest, heads, width] or None) in SBUF."""
    pmax = nl.tile_size.pmax
    whole, rest = rows // pmax, rows % pmax
    return (
        nl.ndarray((pmax, whole, heads, width), dtype=dtype, buffer=nl.sbuf) if whole else None,
        nl.ndarray((rest, heads, width), dtype=dtype, buffer=nl.sbuf) if rest else None,
    )


def each_row_tile(tiles):
    """[(tile [rows, heads, width], first row), ...] of what row_tiles made."""
    whole, rest = tiles
    count = 0 if whole is None else whole.shape[1]
    found = [(whole[:, i], i * whole.shape[0]) for i in range(count)]
    return found if rest is None else [*found, (rest, count * nl.tile_size.pmax)]


def pairs_with_hbm(tiles, source, width):
    """[(SBUF view, HBM view), ...]: what DMA moves between row tiles and `source` [heads, rows, width]."""
    pmax = nl.tile_size.pmax
    whole, rest = tiles
    count = 0 if whole is None else whole.shape[1]
    pairs = []
    if count:
        rows = source[:, : count * pmax].reshape_dim(1, (count, pmax)).permute((2, 1, 0, 3))
        pairs.append((whole[:, :, :, :width], rows))
    if rest is not None:
        pairs.append((rest[:, :, :width], source[:, count * pmax :].permute((1, 0, 2))))
    return pairs


def turn_heads(tiles, chunk, targets, engine):
    """targets[d, h, row] = tiles[row, h, d] for d in `chunk`, by TensorE through PSUM, a bank at a time."""
    first, last = chunk
    _, heads, total = targets[0].shape
    dtype = tiles[0][0].dtype
    capacity = nl.tile_size.psum_bank_fmax_bytes // itemsize(dtype)
    pieces = [(tile[:, h, first:last], h * total + row) for h in range(heads) for tile, row in tiles]
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


def turned(tiles, heads, total, plan, engine, frame=None):
    """Per chunk, (tile for exact scores, tile for their maxima), each [D of the chunk, heads, total].

    The exact tile of the last chunk may have a row of shifts; it is not filled here, what lies between it and D is 0.
    With a frame, both tiles have its rows, filled, below D.
    """
    if frame is not None:
        return [turned_in_frame(tiles, heads, plan, engine, frame)]
    pairs = []
    for chunk in plan.chunks:
        rows = chunk[1] - chunk[0]
        height = plan.shift_row + 1 if chunk == plan.chunks[-1] and plan.shift_row is not None else rows
        exact = nl.ndarray((height, heads, total), dtype=plan.dtype, buffer=nl.sbuf)
        if height > rows + 1:
            nisa.memset(dst=exact, value=0.0, engine=nisa.engine.gpsimd)
        targets = [exact]
        if plan.itemsize == 4:
            targets.append(nl.ndarray((rows, heads, total), dtype=nl.tfloat32, buffer=nl.sbuf))
        turn_heads(tiles, chunk, targets, engine)
        pairs.append((exact, targets[-1][:rows]))
    return pairs


def turned_in_frame(tiles, heads, plan, engine, frame):
    """What turned returns of one chunk, of stacked pairs."""
    shape = (frame.shape[0], heads, frame.shape[1])
    dtypes = (plan.dtype, nl.tfloat32) if plan.itemsize == 4 else (plan.dtype,)
    targets = [nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf) for dtype in dtypes]
    for target in targets:
        around = frame.expand_dim(1).broadcast(1, heads)
        nisa.tensor_copy(dst=target, src=around, engine=nisa.engine.gpsimd)
    turn_heads(tiles, plan.chunks[0], targets, engine)
    return targets[0], targets[-1]


class Mask:
    """The mask of one batch entry: a row added to scores before their maximum, a column added to exponents."""

    def __init__(self, mask, plan):
        self.mask, self.plan = mask, plan
        self.row = None

    def load(self):
        """Bring the mask in, once, and turn it into what is added."""
        if self.row is not None:
            return
        pmax, keys, mask = self.plan.pmax, self.plan.keys, self.mask
        rough = nl.tfloat32 if self.plan.itemsize == 4 else self.plan.dtype
        loaded = nl.ndarray((1, keys), dtype=mask.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=loaded, src=mask.expand_dim(0))
        self.row = nl.ndarray((1, keys), dtype=rough, buffer=nl.sbuf)
        # a negative scale turns the order of scores around
        subtract(self.row, loaded, MASK_FACTORS[0] if self.plan.scale >= 0 else -MASK_FACTORS[0])
        self.factor = nl.ndarray((1, pmax), dtype=rough, buffer=nl.sbuf)
        nisa.memset(dst=self.factor, value=MASK_FACTORS[1], engine=nisa.engine.gpsimd)

        whole, rest = keys // pmax, keys % pmax
        columns = nl.ndarray((min(pmax, keys), whole + bool(rest)), dtype=mask.dtype, buffer=nl.sbuf)
        self.column = nl.ndarray(columns.shape, dtype=nl.float32, buffer=nl.sbuf)
        if whole:
            nisa.dma_copy(dst=columns[:, :whole], src=mask[: whole * pmax].reshape((whole, pmax)).permute((1, 0)))
            subtract(self.column[:, :whole], columns[:, :whole], MASK_EXPONENT)
        if rest:
            nisa.dma_copy(dst=columns[:rest, whole : whole + 1], src=mask[whole * pmax :].expand_dim(1))
            subtract(self.column[:rest, whole : whole + 1], columns[:rest, whole : whole + 1], MASK_EXPONENT)


def subtract(dst, mask, loss):
    """dst = 0 where mask is 1, -loss where it is 0."""
    nisa.tensor_scalar(dst=dst, data=mask, op0=nl.add, operand0=-1.0, op1=nl.multiply, operand1=loss)


class Stock:
    """k and v of the heads of a part as they lie, v with a column of ones."""

    def __init__(self, k, v, batch, heads, mask, plan):
        self.sources = [tensor[batch, heads[0] : heads[1]] for tensor in (k, v)]
        self.count = heads[1] - heads[0]
        self.mask, self.plan = mask, plan
        self.keys = None

    def load(self):
        """Bring k and v in, once."""
        if self.keys is not None:
            return
        plan, (k, v) = self.plan, self.sources
        keys = row_tiles(plan.keys, plan.width, self.count, plan.dtype)
        values = row_tiles(plan.keys, plan.width + 1, self.count, plan.dtype)
        if self.mask is not None:
            self.mask.load()
        for tiles, source in ((keys, k), (values, v)):
            for tile, rows in pairs_with_hbm(tiles, source, plan.width):
                nisa.dma_copy(dst=tile, src=rows)
        self.keys, self.values = each_row_tile(keys), each_row_tile(values)
        for tile, _ in self.values:
            nisa.memset(dst=tile[:, :, plan.width :], value=1.0, engine=nisa.engine.gpsimd)


class Keys:
    """k turned and v of a group of heads."""

    def __init__(self, stock, heads, plan, frames=None):
        self.stock, self.plan, self.frames = stock, plan, frames
        self.first, self.last = heads
        self.count = self.last - self.first
        self.turned = None
        self.partner = None

    def turn(self):
        """Turn k, once, and set the partner of the shifts."""
        if self.turned is not None:
            return
        plan, gpsimd = self.plan, nisa.engine.gpsimd
        tiles = [(tile[:, self.first : self.last], row) for tile, row in self.stock.keys]
        self.values = [tile[:, self.first : self.last] for tile, _ in self.stock.values]
        frame = None if self.frames is None else self.frames.key
        self.turned = turned(tiles, self.count, plan.keys, plan, nisa.engine.vector, frame)
        if frame is not None:
            return
        if plan.shift_row is None:
            self.partner = nl.ndarray((1, plan.pmax), dtype=plan.dtype, buffer=nl.sbuf)
            nisa.memset(dst=self.partner, value=plan.shift_scale, engine=gpsimd)
        else:
            nisa.memset(dst=self.turned[-1][0][plan.shift_row :], value=plan.shift_scale, engine=gpsimd)


class Part:
    """q and out of some heads and queries, loaded and stored together."""

    def __init__(self, q, out, batch, heads, rows, stock, plan):
        self.source, self.target = (t[batch, heads[0] : heads[1], rows[0] : rows[1]] for t in (q, out))
        self.shape = (rows[1] - rows[0], plan.width, heads[1] - heads[0], plan.dtype)
        self.first = rows[0]
        self.stock, self.plan = stock, plan

    def load(self):
        """Bring in q, and k and v where they are not there yet."""
        tiles = row_tiles(*self.shape)
        for tile, rows in pairs_with_hbm(tiles, self.source, self.plan.width):
            nisa.dma_copy(dst=tile, src=rows)
        self.queries = each_row_tile(tiles)
        self.stock.load()
        self.results = row_tiles(*self.shape)

    def results_of(self, tiles, first, last):
        """View [rows, tiles, heads, D] of the results of some row tiles of one height, for heads first..last."""
        whole, rest = self.results
        if whole is not None and tiles[-1] < whole.shape[1]:
            return whole[:, tiles[0] : tiles[-1] + 1, first:last]
        return rest[:, first:last].expand_dim(1)

    def store(self):
        """Take the results to HBM, by the queue that loads: ScalarE has no time to spare."""
        for tile, rows in pairs_with_hbm(self.results, self.target, self.plan.width):
            nisa.dma_copy(dst=rows, src=tile, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.sync)
