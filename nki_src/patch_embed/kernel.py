"""Patch embedding: image rows go to partitions as they lie, each column of the patches is one product of the sum."""

import nki
import nki.isa as nisa
import nki.language as nl

from ..common import matmul as product
from ..common.operands import Panel, TurnedPanel, itemsize, ranges
from ..common.tuning import tiles_for
from .lines import copies_of
from .tuned import TUNED

# those of common/matmul.py, and, of one partition, the bytes of image rows of three steps; weight is loaded before the
# image, as it may have to be turned
TILES = {**product.TILES, "rows_first": 0, "panel_bytes": 32768, "image_bytes": 98304}


@nki.jit
def patch_embed(image, weight, bias=None, class_token=None, position=None, grid=None, ordered=False):
    """tokens[b, i * w + j, n] = sum over k of patch (b, i, j)[k] * weight[n, k] + bias[n] + position[i * w + j, n].

    image        [B, C, H, W] float32, bfloat16 or float16, HBM; one-dimensional when `grid` is given
    weight       [N, K], or [N, C, P, P] without `grid`, or [K, N] as lines.ordered makes it; dtype of image, as are
                 all others, HBM
    bias         [N] or None
    class_token  [N] or None: becomes token 0 of every image, with its own row of `position`
    position     [T, N] or None; T = h * w, one more with a class token
    grid         None for a dense image, or (outer, lines, run): (size, stride) of images, patch rows and patches of a
                 row; the same of the axes that lead to the lines of a patch; and the length of a line. The lines of
                 patches side by side follow one another in memory
    ordered      weight is as lines.ordered makes it, and need not be turned
    returns      [B, T, N]

    A product takes the same columns of all lines of a patch: its contraction is what lies on partitions, so that no
    patch is gathered, copied or transposed. The sums are float32, the result is rounded once. K up to 4096.
    """
    outer, lines, run = grid or _dense_grid(image.shape, weight.shape[-1])
    (images, _), (height, _), (width, _) = outer
    columns = weight.shape[1] if ordered else weight.shape[0]
    sizes = {"M": images * height * width, "K": weight.size // columns, "N": columns}
    tiles = tiles_for(TUNED, TILES, image.dtype, sizes)
    patches = Patches(image, outer, lines, run, tiles)
    tokens = Tokens(images, height * width, columns, image.dtype, class_token, position)
    if class_token is not None and nl.program_id(0) == 0:
        tokens.store_class_token()

    tile_m = _tile_rows(height, width, patches.most_rows())
    rows, cols = product.share_block(sizes["M"], columns, tile_m, nl.tile_size.psum_bank_fmax)
    # column tiles of one size, so that all columns of a row are one panel and the image is loaded once
    most = min(nl.tile_size.psum_bank_fmax, tiles["panel_bytes"] // (patches.steps * itemsize(image.dtype)))
    product.matmul(
        load_x=patches.load,
        weight=weight if ordered else weight.reshape((columns, patches.depth)),
        store=tokens.store,
        row_range=rows,
        col_range=cols,
        bias=bias,
        load_addend=None if position is None else tokens.load_position,
        transposed_weight=not ordered,
        operands=(patches.row_block, Panel if ordered else patches.panel),
        tiles={
            **tiles,
            "tile_m": tile_m,
            "tile_n": _even_split(max(1, cols[1] - cols[0]), most),
            "tile_k": patches.partitions,
        },
    )
    return tokens.out


def _dense_grid(shape, side):
    images, channels, height, width = shape
    outer = ((images, channels * height * width), (height // side, side * width), (width // side, side))
    return outer, ((channels, height * width), (side, width)), side


def _tile_rows(height, width, most):
    """Patches per tile, at most `most`: whole images or else whole rows of patches where they fit."""
    unit = height * width if height * width <= most else width
    return most // unit * unit if unit <= most else most


def _even_split(total, most):
    """Size of the equal parts, at most `most`, that `total` is cut into."""
    parts = -(-total // most)
    return -(-total // parts)


def boxes(first, count, period):
    """[(start, outer, inner, outers, inners), ...]: count places from `first` on of a [*, period] space, as boxes.

    A box holds `outers` whole periods, or a part of one; `start` counts from `first`.
    """
    found = []
    start = 0
    while start < count:
        outer, inner = divmod(first + start, period)
        outers = (count - start) // period if inner == 0 else 0
        inners = period if outers else min(period - inner, count - start)
        found.append((start, outer, inner, max(1, outers), inners))
        start += max(1, outers) * inners
    return found


class Patches:
    """The lines of patches in SBUF: [copy of line, patch, element of the line].

    Few lines would leave partitions idle, so each is there `copies` times, every copy `steps` elements further on:
    step k of the contraction takes element k of every copy.
    """

    def __init__(self, image, outer, lines, run, tiles):
        self.memory = image.reshape((image.size,))
        self.outer, self.lines, self.run, self.tiles = outer, lines, run, tiles
        self.count = 1
        for size, _ in lines:
            self.count *= size
        self.copies = copies_of(self.count, run)
        self.steps = run // self.copies
        self.partitions = self.copies * self.count
        self.depth = self.count * run

    def most_rows(self):
        """Patches that a tile may hold, so that the row blocks of three steps fit."""
        size = itemsize(self.memory.dtype)
        tiles = max(1, min(self.tiles["row_tiles"], self.tiles["row_bytes"] // (4 * self.depth * size)))
        return min(nl.tile_size.pmax, self.tiles["image_bytes"] // (3 * tiles * self.run * size))

    def row_block(self, load_x, x, step, plan, dtype):
        """Rows of a step, as common/matmul.py asks for them."""
        return LineBlock(self, step)

    def panel(self, weight, step, plan):
        """Columns of a step, as common/matmul.py asks for them."""
        return LinePanel(self, weight, step, plan)

    def load(self, dst, row):
        """dst [partitions, rows, run] = the lines of patches row, row + 1, ..."""
        (_, image_step), (height, row_step), (width, step) = self.outer
        for start, b, patch, images, count in boxes(row, dst.shape[1], height * width):
            for inside, i, j, rows, patches in boxes(patch, count, width):
                offset = b * image_step + i * row_step + j * step
                first = start + inside
                box = dst[:, first : first + images * rows * patches]
                self._load_box(box, ((images, image_step), (rows, row_step)), patches * self.run, offset)

    def _load_box(self, dst, outer, length, offset):
        """Lines of `length` elements, for all patch rows of `outer`; a copy lacks the elements it is ahead by."""
        for copy in range(self.copies):
            ahead = copy * self.steps
            part = dst[copy * self.count : (copy + 1) * self.count]
            part = part.reshape((self.count, dst.shape[1] * self.run // length, length))[:, :, : length - ahead]
            pattern = _pattern((*self.lines, *outer, (length - ahead, 1)))
            nisa.dma_copy(dst=part, src=self.memory.ap(pattern, offset=offset + ahead))


class LineBlock:
    """Row tiles of one step, loaded with the contraction on partitions."""

    def __init__(self, patches, step):
        self.patches, self.step = patches, step
        self.tiles = {}

    def load(self, i):
        """Bring in row tile i."""
        row, row_end = self.step.row_tiles[i]
        patches = self.patches
        shape = (patches.partitions, row_end - row, patches.run)
        self.tiles[i] = nl.ndarray(shape, dtype=patches.memory.dtype, buffer=nl.sbuf)
        patches.load(self.tiles[i], row)

    def turn(self):
        """They need not be turned."""

    def stationary(self, i, k, size):
        """[size, rows] of row tile `i`: element k of every copy of a line."""
        return self.tiles[i][:size, :, k]


class LinePanel(TurnedPanel):
    """Columns of weight, [N, K] in HBM, turned to [partitions, steps, columns] in the order of the lines' copies."""

    def __init__(self, patches, weight, step, plan):
        super().__init__(weight, step, plan)
        self.patches = patches

    def load(self, t):
        """Bring in column tile t, in parts, so that the first can be turned while others are on their way."""
        parts = ranges(*self.step.col_tiles[t], nl.tile_size.pmax)
        self.loaded[t] = [(self._load_rows(self.weight[col:end])[0][0], col - parts[0][0]) for col, end in parts]

    def ready(self, t):
        """Turn column tile t, if there is one and it is not turned yet."""
        if t not in self.loaded:
            return
        col, col_end = self.step.col_tiles[t]
        parts, patches = self.loaded.pop(t), self.patches
        dtype = parts[0][0].dtype
        tile = nl.ndarray((patches.partitions, patches.steps, col_end - col), dtype=dtype, buffer=nl.sbuf)
        for part, left in parts:
            cols = part.shape[0]
            together = max(1, nl.tile_size.psum_bank_fmax_bytes // (cols * itemsize(dtype)))
            for k, end in ranges(0, patches.steps, together):
                bank = nl.ndarray((patches.partitions, end - k, cols), dtype=dtype, buffer=nl.psum)
                for step in range(k, end):
                    _turn_step(bank[:, step - k], part, patches, step)
                nisa.tensor_copy(dst=tile[:, k:end, left : left + cols], src=bank)
        self.tiles[t] = tile


def _turn_step(dst, src, patches, step):
    """dst[copy * lines + line, n] = src[n, line * run + copy * steps + step]."""
    lines = src.reshape((src.shape[0], patches.count, patches.copies, patches.steps))
    nisa.nc_transpose(dst=dst, data=lines.permute((0, 3, 2, 1))[:, step], engine=nisa.engine.tensor)


def _pattern(axes):
    """[[stride, size], ...] of (size, stride) axes, outermost first, with neighbours merged where they are one axis."""
    pattern = []
    for size, stride in axes:
        if size == 1:
            continue
        if pattern and pattern[-1][0] == size * stride:
            pattern[-1] = [stride, pattern[-1][1] * size]
        else:
            pattern.append([stride, size])
    return pattern or [[1, 1]]


class Tokens:
    """The result: per image one row for the class token, if there is one, and one for every patch."""

    def __init__(self, images, patches, columns, dtype, class_token, position):
        self.images, self.patches, self.columns = images, patches, columns
        self.class_token = class_token
        self.position = position
        self.first = 0 if class_token is None else 1
        self.out = nl.ndarray((images, self.first + patches, columns), dtype=dtype, buffer=nl.shared_hbm)

    def store(self, src, row, col):
        """Rows of the matrix product to where their tokens lie."""
        rows, cols = src.shape
        for start, b, patch, images, count in boxes(row, rows, self.patches):
            t = self.first + patch
            dst = self.out[b : b + images, t : t + count, col : col + cols]
            nisa.dma_copy(dst=dst, src=src[start : start + images * count])

    def load_position(self, dst, row, col):
        """The positions of those rows."""
        rows, cols = dst.shape
        for start, _, patch, images, count in boxes(row, rows, self.patches):
            pattern = [[0, images], [self.columns, count], [1, cols]]
            src = self.position.ap(pattern, offset=(self.first + patch) * self.columns + col)
            _load_aside(dst[start : start + images * count], src)

    def store_class_token(self):
        """Token 0 of every image: class token plus position 0."""
        pmax, columns = nl.tile_size.pmax, self.columns
        for b in range(0, self.images, pmax):
            count = min(pmax, self.images - b)
            token = nl.ndarray((count, columns), dtype=self.out.dtype, buffer=nl.sbuf)
            every_image = [[0, count], [1, columns]]
            _load_aside(token, self.class_token.ap(every_image))

            if self.position is not None:
                place = nl.ndarray((count, columns), dtype=self.out.dtype, buffer=nl.sbuf)
                _load_aside(place, self.position.ap(every_image))
                nisa.tensor_tensor(dst=token, data1=token, data2=place, op=nl.add, engine=nisa.engine.gpsimd)

            nisa.dma_copy(dst=self.out[b : b + count, 0], src=token)


def _load_aside(dst, src):
    """A load that the ones of image and weight need not wait for."""
    nisa.dma_copy(dst=dst, src=src, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.scalar)
