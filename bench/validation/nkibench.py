"""Kernels of an agents' benchmark, written from the descriptions of its starting points, in the order of their loops.

Engines that the published active times settle are named here; everything else is left open, as it was there.
"""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS, BANK = 128, 512


@nki.jit
def silu(x):
    """y = x / (1 + exp(-x)) of [128, n, 7168], [128, 1024] a time and half of that an instruction.

    ScalarE's published active time holds two instructions for every half, so the reciprocal is there.
    """
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    wide = 2 * BANK
    for row in range(x.shape[1]):
        for start in range(0, x.shape[2], wide):
            tile, out = _sbuf(wide), _sbuf(wide)
            nisa.dma_copy(dst=tile, src=x[:, row, start : start + wide])
            for part in _halves():
                exps, sums, inverse = _sbuf(BANK), _sbuf(BANK), _sbuf(BANK)
                nisa.activation(dst=exps, op=nl.exp, data=tile[:, part], scale=-1.0)
                nisa.tensor_scalar(dst=sums, data=exps, op0=nl.add, operand0=1.0)
                nisa.activation(dst=inverse, op=nl.reciprocal, data=sums)
                nisa.tensor_tensor(dst=out[:, part], data1=tile[:, part], data2=inverse, op=nl.multiply)
            nisa.dma_copy(dst=y[:, row, start : start + wide], src=out)
    return y


@nki.jit
def silu_at_once(x, wide=1024):
    """The same by one instruction of ScalarE, `wide` columns a time, descriptors made beforehand as there."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(x.shape[1]):
        for start in range(0, x.shape[2], wide):
            part, (tile, out) = slice(start, start + wide), (_sbuf(wide) for _ in range(2))
            nisa.dma_copy(dst=tile, src=x[:, row, part], dge_mode=nisa.dge_mode.none)
            nisa.activation(dst=out, op=nl.silu, data=tile)
            nisa.dma_copy(dst=y[:, row, part], src=out, dge_mode=nisa.dge_mode.none)
    return y


@nki.jit
def rope(x, cos, sin):
    """Rotary embedding of [128, n], 512 columns a time: halves e and o give e cos - o sin and o cos + e sin."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    half = PARTITIONS // 2
    for start in range(0, x.shape[1], BANK):
        part = slice(start, start + BANK)
        tile, out, odd = _sbuf(BANK), _sbuf(BANK), _sbuf(BANK, half)
        angles = [_sbuf(BANK, half) for _ in range(2)]
        nisa.dma_copy(dst=tile, src=x[:, part])
        for angle, source in zip(angles, (cos, sin), strict=True):
            nisa.dma_copy(dst=angle, src=source[:, part])

        nisa.activation(dst=odd, op=nl.copy, data=tile[half:])
        products = [_times(value, angle) for angle in angles for value in (tile[:half], odd)]
        (e_cos, o_cos, e_sin, o_sin) = products
        nisa.tensor_tensor(dst=out[:half], data1=e_cos, data2=o_sin, op=nl.subtract)
        nisa.tensor_tensor(dst=out[half:], data1=o_cos, data2=e_sin, op=nl.add)

        nisa.dma_copy(dst=y[:, part], src=out)
    return y


@nki.jit
def batched_matmul(lhs, rhs):
    """y[b] = lhs[b] rhs[b], lhs [b, M, 64], rhs [b, 64, N].

    ScalarE's published active time holds all copies from PSUM.
    """
    batch, rows, depth = lhs.shape
    cols, block = rhs.shape[2], 2 * BANK
    y = nl.ndarray((batch, rows, cols), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for b in range(batch):
        for n in range(0, cols, block):
            right = _sbuf(block, depth)
            nisa.dma_copy(dst=right, src=rhs[b, :, n : n + block])
            for m in range(0, rows, block):
                turned = _sbuf(block, depth)
                for row in range(0, block, PARTITIONS):
                    tile, bank = _sbuf(depth), _psum(PARTITIONS, depth)
                    nisa.dma_copy(dst=tile, src=lhs[b, m + row : m + row + PARTITIONS])
                    nisa.nc_transpose(dst=bank, data=tile, engine=nisa.engine.tensor)
                    nisa.activation(dst=turned[:, row : row + PARTITIONS], op=nl.copy, data=bank)
                for row in range(0, block, PARTITIONS):
                    out = _sbuf(block)
                    for part in _halves():
                        bank = _psum(BANK)
                        nisa.nc_matmul(dst=bank, stationary=turned[:, row : row + PARTITIONS], moving=right[:, part])
                        nisa.activation(dst=out[:, part], op=nl.copy, data=bank)
                    first = m + row
                    nisa.dma_copy(dst=y[b, first : first + PARTITIONS, n : n + block], src=out)
    return y


@nki.jit
def rmsnorm_matmul(x, w, together=8):
    """y = (x / sqrt(mean of x squared)) w, x [n, 128, 1024], w [8, 128, N], `together` row tiles at a time.

    VectorE's published active time holds little more than the sums, so everything else by element is on ScalarE.
    """
    tiles = x.shape[0]
    y = nl.ndarray((tiles, PARTITIONS, w.shape[2]), dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, tiles, together):
        rows = range(first, first + together)
        turned = {row: _turned(_normed(x[row])) for row in rows}
        for n in range(0, w.shape[2], 2 * BANK):
            weights = [_load(w[k, :, n : n + 2 * BANK]) for k in range(w.shape[0])]
            for row in rows:
                out = _sbuf(2 * BANK)
                for part in _halves():
                    bank = _psum(BANK)
                    for k, weight in enumerate(weights):
                        nisa.nc_matmul(dst=bank, stationary=turned[row][k], moving=weight[:, part])
                    nisa.activation(dst=out[:, part], op=nl.copy, data=bank)
                nisa.dma_copy(dst=y[row, :, n : n + 2 * BANK], src=out)
    return y


def _normed(x):
    tile, sums, total, scale = _load(x), _sbuf(2), _sbuf(1), _sbuf(1)
    for at, part in enumerate(_halves()):
        squares, shares = _sbuf(BANK), _sbuf(BANK)
        nisa.activation(dst=squares, op=nl.square, data=tile[:, part])
        nisa.activation(dst=shares, op=nl.copy, data=squares, scale=1.0 / x.shape[1])
        nisa.tensor_reduce(dst=sums[:, at : at + 1], op=nl.add, data=shares, axis=1)
    nisa.tensor_reduce(dst=total, op=nl.add, data=sums, axis=1)
    nisa.activation(dst=scale, op=nl.rsqrt, data=total)
    again, out = _load(x), _sbuf(x.shape[1])
    for part in _halves():
        nisa.activation(dst=out[:, part], op=nl.copy, data=again[:, part], scale=scale)
    return out


def _turned(tile):
    """The transposes of the 128-column tiles of a tile."""
    found = []
    for start in range(0, tile.shape[1], PARTITIONS):
        bank, out = _psum(PARTITIONS), _sbuf(PARTITIONS)
        nisa.nc_transpose(dst=bank, data=tile[:, start : start + PARTITIONS], engine=nisa.engine.tensor)
        nisa.activation(dst=out, op=nl.copy, data=bank)
        found.append(out)
    return found


def _load(x):
    tile = _sbuf(x.shape[1])
    nisa.dma_copy(dst=tile, src=x)
    return tile


def _halves():
    return [slice(start, start + BANK) for start in range(0, 2 * BANK, BANK)]


def _sbuf(width, partitions=PARTITIONS):
    return nl.ndarray((partitions, width), dtype=nl.float32, buffer=nl.sbuf)


def _psum(width, partitions=PARTITIONS):
    return nl.ndarray((partitions, width), dtype=nl.float32, buffer=nl.psum)


def _times(a, b):
    out = _sbuf(BANK, a.shape[0])
    nisa.tensor_tensor(dst=out, data1=a, data2=b, op=nl.multiply)
    return out
