"""Patch embedding: patches are gathered by the DMA that loads them and go through the shared matrix product."""

import nki
import nki.isa as nisa
import nki.language as nl

from ..common.matmul import matmul, share_block

# dims of one access pattern
MAX_DIMS = 5


@nki.jit
def patch_embed(image, weight, bias=None, class_token=None, position=None, grid=None):
    """tokens[b, i * w + j, n] = sum over k of patch (b, i, j)[k] * weight[n, k] + bias[n] + position[i * w + j, n].

    image        [B, C, H, W] float32, bfloat16 or float16, HBM; one-dimensional when `grid` is given
    weight       [N, K], or [N, C, P, P] without `grid`; dtype of image, as are all others, HBM
    bias         [N] or None
    class_token  [N] or None: becomes token 0 of every image, with its own row of `position`
    position     [T, N] or None; T = h * w, one more with a class token
    grid         None for a dense image, or (outer, inner), each three (size, stride): images, patch rows and patches of
                 a row; and the axes that a patch is made of, in the order of weight's K
    returns      [B, T, N]

    The sums are float32, the result is rounded once. K up to 4096. No copy of the patches is made in HBM.
    """
    outer, inner = grid or _dense_grid(image.shape, weight.shape[-1])
    (images, _), (height, _), (width, _) = outer
    columns = weight.shape[0]
    patches = Patches(image, outer, inner)
    tokens = Tokens(images, height * width, columns, image.dtype, class_token, position)
    if class_token is not None and nl.program_id(0) == 0:
        tokens.store_class_token()

    tile_m = _tile_rows(height, width)
    rows, cols = share_block(images * height * width, columns, tile_m, nl.tile_size.psum_bank_fmax)
    # column tiles of one size, so that all columns of a row are one panel and patches are gathered once
    tile_n = _even_split(max(1, cols[1] - cols[0]), nl.tile_size.psum_bank_fmax)
    matmul(
        load_x=patches.load,
        weight=weight.reshape((columns, patches.depth)),
        store=tokens.store,
        row_range=rows,
        col_range=cols,
        bias=bias,
        load_addend=None if position is None else tokens.load_position,
        transposed_weight=True,
        tile_m=tile_m,
        tile_n=tile_n,
    )
    return tokens.out


def _dense_grid(shape, side):
    images, channels, height, width = shape
    outer = ((images, channels * height * width), (height // side, side * width), (width // side, side))
    return outer, ((channels, height * width), (side, width), (side, 1))


def _tile_rows(height, width):
    """Patches per tile: whole images or else whole rows of patches where they fit, so that few DMAs fill a tile."""
    pmax = nl.tile_size.pmax
    unit = height * width if height * width <= pmax else width
    return pmax // unit * unit if unit <= pmax else pmax


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
    """The patches of a batch of images as rows of a matrix, read from where they lie."""

    def __init__(self, image, outer, inner):
        self.memory = image.reshape((image.size,))
        self.outer = outer
        self.inner = inner
        self.depth = inner[0][0] * inner[1][0] * inner[2][0]

    def load(self, dst, row, k):
        """dst[r] = patch row + r, flattened in the order of `inner`."""
        assert k == 0 and dst.shape[1] == self.depth, "limits keep K within one panel"
        (_, image_step), (height, row_step), (width, step) = self.outer
        for start, b, patch, images, count in boxes(row, dst.shape[0], height * width):
            for inside, i, j, rows, run in boxes(patch, count, width):
                offset = b * image_step + i * row_step + j * step
                first, size = start + inside, images * rows * run
                self._load_box(dst[first : first + size], ((images, image_step), (rows, row_step), (run, step)), offset)

    def _load_box(self, dst, outer, offset):
        pattern = _pattern(outer + self.inner)
        if len(pattern) <= MAX_DIMS:
            # a patch is many short pieces: descriptors made before the run, as no queue could make them in time
            src = self.memory.ap(pattern, offset=offset)
            nisa.dma_copy(dst=dst, src=src, dge_mode=nisa.dge_mode.none)
            return
        (images, image_step), *rest = outer
        size = dst.shape[0] // images
        for b in range(images):
            self._load_box(dst[b * size : (b + 1) * size], ((1, 0), *rest), offset + b * image_step)


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
            nisa.dma_copy(dst=dst[start : start + images * count], src=src)

    def store_class_token(self):
        """Token 0 of every image: class token plus position 0."""
        pmax, columns = nl.tile_size.pmax, self.columns
        for b in range(0, self.images, pmax):
            count = min(pmax, self.images - b)
            token = nl.ndarray((count, columns), dtype=self.out.dtype, buffer=nl.sbuf)
            every_image = [[0, count], [1, columns]]
            nisa.dma_copy(dst=token, src=self.class_token.ap(every_image))

            if self.position is not None:
                place = nl.ndarray((count, columns), dtype=self.out.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=place, src=self.position.ap(every_image))
                nisa.tensor_tensor(dst=token, data1=token, data2=place, op=nl.add, engine=nisa.engine.gpsimd)

            nisa.dma_copy(dst=self.out[b : b + count, 0], src=token)
