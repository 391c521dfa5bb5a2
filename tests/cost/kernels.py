"""Small kernels whose timing is known."""

import itertools

import nki
import nki.isa as nisa
import nki.language as nl


def sbuf(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


@nki.jit
def copy(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=y, src=tile)
    return y


@nki.jit
def rows_doubled(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, x.shape[0], 128):
        tile = sbuf((128, x.shape[1]), x.dtype)
        doubled = sbuf((128, x.shape[1]), x.dtype)
        nisa.dma_copy(dst=tile, src=x[start : start + 128])
        nisa.tensor_scalar(dst=doubled, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=y[start : start + 128], src=doubled)
    return y


@nki.jit
def halves(x):
    """Two halves of one allocation in turn: the load of one while the other is worked on, turn by turn."""
    width = x.shape[1] // 8
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = sbuf((128, 2 * width), x.dtype)
    for turn in range(8):
        half = tile[:, (turn % 2) * width : (turn % 2 + 1) * width]
        columns = slice(turn * width, (turn + 1) * width)
        done = sbuf((128, width), x.dtype)
        nisa.dma_copy(dst=half, src=x[:, columns])
        nisa.tensor_tensor(dst=done, data1=half, data2=half, op=nl.add)
        nisa.dma_copy(dst=y[:, columns], src=done)
    return y


@nki.jit
def chain(x):
    """A dependent chain on one engine and an independent one of the same length."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [sbuf(x.shape, x.dtype) for _ in range(9)]
    nisa.dma_copy(dst=tiles[0], src=x)
    for before, after in itertools.pairwise(tiles):
        nisa.tensor_copy(dst=after, src=before)
    nisa.dma_copy(dst=y, src=tiles[-1])
    return y


@nki.jit
def spread(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    first, last = sbuf(x.shape, x.dtype), sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=first, src=x)
    for _ in range(7):
        nisa.tensor_copy(dst=sbuf(x.shape, x.dtype), src=first)
    nisa.tensor_copy(dst=last, src=first)
    nisa.dma_copy(dst=y, src=last)
    return y


@nki.jit
def matmuls(stationary, moving):
    """`stationary` [128, M], `moving` [128, N] in as many matmuls as fit, accumulated in one bank."""
    a, b = sbuf(stationary.shape, stationary.dtype), sbuf(moving.shape, moving.dtype)
    nisa.dma_copy(dst=a, src=stationary)
    nisa.dma_copy(dst=b, src=moving)
    bank = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for turn in range(stationary.shape[1] // 128):
        nisa.nc_matmul(dst=bank, stationary=a[:, turn * 128 : turn * 128 + 128], moving=b)
    out = sbuf((128, 512))
    nisa.tensor_copy(dst=out, src=bank)
    y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=out)
    return y


@nki.jit
def functions(x):
    """exp, exp, square, tanh, sqrt on ScalarE: two table loads."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    for op in (nl.exp, nl.exp, nl.square, nl.tanh, nl.sqrt):
        after = sbuf(x.shape, x.dtype)
        nisa.activation(dst=after, op=op, data=tile)
        tile = after
    nisa.dma_copy(dst=y, src=tile)
    return y


@nki.jit
def narrow_store(x):
    """A software transfer: the store casts."""
    y = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    tile = sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=y, src=tile)
    return y
