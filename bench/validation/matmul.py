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
            bank = _bank()
            for k in range(0, depth, TILE_K):
                left = nl.ndarray((TILE_K, TILE_M), dtype=lhsT.dtype, buffer=nl.sbuf)
                right = nl.ndarray((TILE_K, TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=left, src=lhsT[k : k + TILE_K, m : m + TILE_M])
                nisa.dma_copy(dst=right, src=rhs[k : k + TILE_K, n : n + TILE_N])
                nisa.nc_matmul(dst=bank, stationary=left, moving=right)
            _store(y, bank, m, n)
    return y


@nki.jit
def grouped(lhsT, rhs, group_m=1, group_n=2, rows_a_load=1, cols_a_load=1):
    """`group_m` by `group_n` result tiles at a time, each operand tile loaded once for all of them.

    rows_a_load, cols_a_load  neighbouring operand tiles that come in one transfer
    """
    (depth, rows), cols = lhsT.shape, rhs.shape[1]
    y = nl.ndarray((rows, cols), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m0 in range(0, rows, group_m * TILE_M):
        for n0 in range(0, cols, group_n * TILE_N):
            banks = [[_bank() for _ in range(group_n)] for _ in range(group_m)]
            for k in range(0, depth, TILE_K):
                rights = []
                for n in range(0, group_n, cols_a_load):
                    wide = _load(rhs, k, n0 + n * TILE_N, cols_a_load * TILE_N)
                    rights += [wide[:, part * TILE_N : (part + 1) * TILE_N] for part in range(cols_a_load)]
                for m in range(0, group_m, rows_a_load):
                    wide = _load(lhsT, k, m0 + m * TILE_M, rows_a_load * TILE_M)
                    for part in range(rows_a_load):
                        left = wide[:, part * TILE_M : (part + 1) * TILE_M]
                        for bank, right in zip(banks[m + part], rights, strict=True):
                            nisa.nc_matmul(dst=bank, stationary=left, moving=right)
            for m, row in enumerate(banks):
                for n, bank in enumerate(row):
                    _store(y, bank, m0 + m * TILE_M, n0 + n * TILE_N)
    return y


@nki.jit
def resident(lhsT, rhs, banks=1, by_column=False):
    """Both operands in SBUF at once, each loaded once, results through `banks` banks of PSUM in turn.

    by_column  the columns of rhs come as they are needed, not all before the first product
    """
    (depth, rows), cols = lhsT.shape, rhs.shape[1]
    y = nl.ndarray((rows, cols), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    lefts = [_load(lhsT, k, 0, rows) for k in range(0, depth, TILE_K)]
    width = TILE_N if by_column else cols
    turns = [_bank() for _ in range(banks)]
    for n0 in range(0, cols, width):
        rights = [_load(rhs, k, n0, width) for k in range(0, depth, TILE_K)]
        for n in range(0, width, TILE_N):
            for m in range(0, rows, TILE_M):
                bank = turns[(m // TILE_M) % banks]
                for left, right in zip(lefts, rights, strict=True):
                    nisa.nc_matmul(dst=bank, stationary=left[:, m : m + TILE_M], moving=right[:, n : n + TILE_N])
                _store(y, bank, m, n0 + n)
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
            bank = _bank()
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
                        bank = _bank()
                        for left, right in zip(lefts, rights, strict=True):
                            nisa.nc_matmul(
                                dst=bank, stationary=left[:, m : m + TILE_M], moving=right[:, n : n + TILE_N]
                            )
                        _add(sums, (m0 + m, n0 + n), bank)
        for (m, n), total in sums.items():
            _write(y, total, m, n)
    return y


def _bank():
    return nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)


def _sbuf(shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def _load(x, row, col, width):
    tile = _sbuf((TILE_K, width), x.dtype)
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
