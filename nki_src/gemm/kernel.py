"""x @ w with bias, epilogue and residual, for a core or two; the work is done by common/matmul.py."""

import nki
import nki.isa as nisa
import nki.language as nl

from ..common.matmul import TILES, matmul, share_block
from ..common.tuning import tiles_for
from .tuned import TUNED


@nki.jit
def gemm(x, weight, bias=None, residual=None, epilogue="none", transpose_weight=False, tiles=None):
    """y[m, n] = epilogue(sum over k of x[m, k] * weight[k, n] + bias[n]) + residual[m, n], sums in float32.

    x         [M, K]  float32, bfloat16 or float16, HBM; any M, N and K from 1
    weight    [K, N], or [N, K] with transpose_weight; dtype of x, as have all the others, HBM
    bias      [N] or None
    residual  [M, N] or None
    epilogue  none, gelu (with erf), gelu_tanh or silu
    tiles     None, or values for some of common/matmul.py's TILES in place of those that tuned.py has for these sizes
    returns   [M, N]  dtype of x, HBM

    Two programs take a half of the rows or of the columns each, whichever are more.
    """
    rows, depth = x.shape
    cols = weight.shape[0] if transpose_weight else weight.shape[1]
    y = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)

    def load_x(dst, row, k):
        nisa.dma_copy(dst=dst, src=x[row : row + dst.shape[0], k : k + dst.shape[1]])

    def load_residual(dst, row, col):
        nisa.dma_copy(dst=dst, src=residual[row : row + dst.shape[0], col : col + dst.shape[1]])

    def store(src, row, col):
        nisa.dma_copy(dst=y[row : row + src.shape[0], col : col + src.shape[1]], src=src)

    tiles = {**tiles_for(TUNED, TILES, x.dtype, {"M": rows, "K": depth, "N": cols}), **(tiles or {})}
    row_range, col_range = share_block(rows, cols, tiles["tile_m"], tiles["tile_n"])
    matmul(
        load_x,
        weight,
        store,
        row_range,
        col_range,
        bias=bias,
        load_addend=None if residual is None else load_residual,
        epilogue=epilogue,
        transposed_weight=transpose_weight,
        x=x,
        tiles=tiles,
    )
    return y
