"""LayerNorm over the last axis: rows on partitions, statistics on VectorE, the affine part on GpSimdE."""

import nki
import nki.isa as nisa
import nki.language as nl

# a DMA below 2 KiB per partition takes as long as one of 2 KiB; two such make up for the issue cost
DMA_PARTITION_BYTES = 4096
# row blocks in SBUF at once: one being computed, one being stored, two on their way
MAX_BLOCKS = 4


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
    the normalized row and its product with weight are rounded to x's dtype on the way.
    Source: Ba, Kiros and Hinton 2016.
    """
    outer, outer_stride, inner, inner_stride, width = spacing or (1, 0, x.shape[0], x.shape[1], x.shape[1])
    y = nl.ndarray((outer * inner, width), dtype=x.dtype, buffer=nl.shared_hbm)
    row_bytes = width * _itemsize(x.dtype)
    vectors = [vector for vector in (weight, bias) if vector is not None]
    room = nl.tile_size.sbuf_fmax_bytes - sum(width * _itemsize(vector.dtype) for vector in vectors)
    blocks = _blocks(outer, outer_stride, inner, inner_stride, width, most=-(-DMA_PARTITION_BYTES // row_bytes))
    if not blocks:
        return y
    depth = max(1, min(MAX_BLOCKS, room // (row_bytes * max(block[2] for block in blocks)) - 1))

    tiles, gain, shift = [], None, None
    for i, (row, partitions, rows, _, _) in enumerate(blocks):
        for block in blocks[len(tiles) : i + depth]:
            tiles.append(_load(x, width, block))
        if i == 0:
            gain, shift = _broadcast(weight), _broadcast(bias)

        tile = tiles[i]
        if x.dtype == nl.float32:
            _center(tile, rows)
        mean, rstd = _statistics(tile, rows, eps)
        _normalize(tile, rows, mean, rstd)
        _affine(tile, gain, shift)

        count = partitions * rows
        nisa.dma_copy(dst=y[row : row + count], src=tile)
    return y


def _itemsize(dtype):
    return 4 if dtype == nl.float32 else 2


def _share(count):
    """The part of range(count) that this program does."""
    program, programs = nl.program_id(0), nl.num_programs()
    return count * program // programs, count * (program + 1) // programs


def _blocks(outer, outer_stride, inner, inner_stride, width, most):
    """Blocks of rows for this program: (first row, partitions, rows per partition, access pattern, offset).

    Several rows, at most `most`, lie in one partition where that makes a DMA long and leaves no partition idle.
    """
    pmax = nl.tile_size.pmax
    if outer == 1:
        first, last = _share(inner)
        return _even_blocks(0, 0, first, last, inner_stride, width, most)
    first, last = _share(outer)
    if 2 * inner > pmax:
        blocks = []
        for a in range(first, last):
            blocks += _even_blocks(a * inner, a * outer_stride, 0, inner, inner_stride, width, most)
        return blocks
    blocks = []
    step = pmax // inner
    for a in range(first, last, step):
        count = min(step, last - a)
        pattern = [[outer_stride, count], [inner_stride, inner], [1, width]]
        blocks.append((a * inner, count * inner, 1, pattern, a * outer_stride))
    return blocks


def _even_blocks(row, offset, first, last, stride, width, most):
    """Blocks of rows first..last that are `stride` elements apart; row 0 is row `row` of the result."""
    pmax = nl.tile_size.pmax
    blocks = []
    while first < last:
        rows = max(1, min(most, (last - first) // pmax))
        partitions = min(pmax, (last - first) // rows)
        pattern = [[rows * stride, partitions], [stride, rows], [1, width]]
        blocks.append((row + first, partitions, rows, pattern, offset + first * stride))
        first += partitions * rows
    return blocks


def _load(x, width, block):
    _, partitions, rows, pattern, offset = block
    tile = nl.ndarray((partitions, rows, width), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x.ap(pattern, offset=offset))
    return tile


def _broadcast(vector):
    """[H] in HBM -> [P, H] in SBUF, the same on every partition."""
    if vector is None:
        return None
    pmax, width = nl.tile_size.pmax, vector.shape[0]
    tile = nl.ndarray((pmax, width), dtype=vector.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=vector.ap([[0, pmax], [1, width]]))
    return tile


def _center(tile, rows):
    """Take its mean, as float32 sees it, from each row, in place."""
    partitions, _, width = tile.shape
    total = nl.ndarray((partitions, rows), dtype=nl.float32, buffer=nl.sbuf)
    minus_mean = nl.ndarray((partitions, rows), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=total, op=nl.add, data=tile, axis=2)
    nisa.tensor_scalar(dst=minus_mean, data=total, op0=nl.multiply, operand0=-1.0 / width)
    for j in range(rows):
        nisa.activation(dst=tile[:, j], op=nl.copy, data=tile[:, j], bias=minus_mean[:, j : j + 1])


def _statistics(tile, rows, eps):
    """(mean, 1 / sqrt(variance + eps)) of every row, float32 [P, rows, 1] and [P, rows]."""
    partitions, _, width = tile.shape
    fmax = nl.tile_size.bn_stats_fmax
    parts = -(-width // fmax)
    moments = nl.ndarray((partitions, rows, 2), dtype=nl.float32, buffer=nl.sbuf)
    for j in range(rows):
        stats = nl.ndarray((partitions, parts, 6), dtype=nl.float32, buffer=nl.sbuf)
        for part in range(parts):
            piece = tile[:, j, part * fmax : min(width, (part + 1) * fmax)]
            nisa.bn_stats(dst=stats[:, part], data=piece)
        nisa.bn_aggr(dst=moments[:, j], data=stats)

    shifted = nl.ndarray((partitions, rows), dtype=nl.float32, buffer=nl.sbuf)
    rstd = nl.ndarray((partitions, rows), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=shifted, data=moments[:, :, 1], op0=nl.add, operand0=eps)
    nisa.tensor_scalar(dst=rstd, data=shifted, op0=nl.rsqrt, operand0=None, engine=nisa.engine.gpsimd)
    return moments, rstd


def _normalize(tile, rows, moments, rstd):
    """tile = (tile - mean) * rstd, in place."""
    for j in range(rows):
        nisa.tensor_scalar(
            dst=tile[:, j],
            data=tile[:, j],
            op0=nl.subtract,
            operand0=moments[:, j, 0:1],
            op1=nl.multiply,
            operand1=rstd[:, j : j + 1],
        )


def _affine(tile, gain, shift):
    """tile = tile * gain + shift, in place."""
    partitions, rows, _ = tile.shape
    for vector, op in ((gain, nl.multiply), (shift, nl.add)):
        if vector is not None:
            every_row = vector[:partitions].expand_dim(1).broadcast(1, rows)
            nisa.tensor_tensor(dst=tile, data1=tile, data2=every_row, op=op, engine=nisa.engine.gpsimd)
