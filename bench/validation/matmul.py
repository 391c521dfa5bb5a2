"""Matmuls of the published ladder, written from their descriptions: lhsT [K, M] times rhs [K, N] gives [M, N]."""

import nki
import nki.isa as nisa
import nki.language as nl

TILE_K, TILE_M, TILE_N = 128, 128, 512


@nki.jit
def tiled(lhsT, rhs):
    """One result tile after the other; both operands come from HBM for every single product."""
    (depth, rows), cols = lhsT.shape, rhs.shape[1]
    y = nl.ndarray((rows, cols), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in range(0, rows, TILE_M):
        for n in range(0, cols, TILE_N):
            bank = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
            for k in range(0, depth, TILE_K):
                left = nl.ndarray((TILE_K, TILE_M), dtype=lhsT.dtype, buffer=nl.sbuf)
                right = nl.ndarray((TILE_K, TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=left, src=lhsT[k : k + TILE_K, m : m + TILE_M])
                nisa.dma_copy(dst=right, src=rhs[k : k + TILE_K, n : n + TILE_N])
                nisa.nc_matmul(dst=bank, stationary=left, moving=right)
            _store(y, bank, m, n)
    return y


@nki.jit
def hoisted(lhsT, rhs):
    """The columns of lhsT stay in SBUF for a row of results, those of rhs for one result tile."""
    (depth, rows), cols = lhsT.shape, rhs.shape[1]
    y = nl.ndarray((rows, cols), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in range(0, rows, TILE_M):
        lefts = [_load(lhsT, k, m, TILE_M) for k in range(0, depth, TILE_K)]
        for n in range(0, cols, TILE_N):
            rights = [_load(rhs, k, n, TILE_N) for k in range(0, depth, TILE_K)]
            bank = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
            for left, right in zip(lefts, rights, strict=True):
                nisa.nc_matmul(dst=bank, stationary=left, moving=right)
            _store(y, bank, m, n)
    return y


@nki.jit
def blocked(lhsT, rhs, block_m=1024, block_n=512, block_k=1024):
    """Blocks along all three axes: the results of a block of columns stay in SBUF, summed block by block of K."""
    (depth, rows), cols = lhsT.shape, rhs.shape[1]
    y = nl.ndarray((rows, cols), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for n0 in range(0, cols, block_n):
        sums = {}
        for k0 in range(0, depth, block_k):
            rights = [_load(rhs, k, n0, block_n) for k in range(k0, k0 + block_k, TILE_K)]
            for m0 in range(0, rows, block_m):
                lefts = [_load(lhsT, k, m0, block_m) for k in range(k0, k0 + block_k, TILE_K)]
                for m in range(0, block_m, TILE_M):
                    for n in range(0, block_n, TILE_N):
                        bank = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
                        for left, right in zip(lefts, rights, strict=True):
                            nisa.nc_matmul(
                                dst=bank, stationary=left[:, m : m + TILE_M], moving=right[:, n : n + TILE_N]
                            )
                        _add(sums, (m0 + m, n0 + n), bank)
        for (m, n), total in sums.items():
            _write(y, total, m, n)
    return y


def _load(x, row, col, width):
    tile = nl.ndarray((TILE_K, width), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[row : row + TILE_K, col : col + width])
    return tile


def _add(sums, key, bank):
    if key not in sums:
        sums[key] = nl.ndarray(bank.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=sums[key], src=bank)
    else:
        nisa.tensor_tensor(dst=sums[key], data1=sums[key], data2=bank, op=nl.add)


def _store(y, bank, m, n):
    out = nl.ndarray(bank.shape, dtype=y.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=out, src=bank)
    nisa.dma_copy(dst=y[m : m + TILE_M, n : n + TILE_N], src=out)


def _write(y, total, m, n):
    out = total
    if y.dtype != total.dtype:
        out = nl.ndarray(total.shape, dtype=y.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=out, src=total)
    nisa.dma_copy(dst=y[m : m + TILE_M, n : n + TILE_N], src=out)
