"""The transpose of a matrix on TensorE, tile by tile, written from the exercise of a university course."""

import nki
import nki.isa as nisa
import nki.language as nl

TILE = 128


@nki.jit
def tile_by_tile(x):
    """y = x^T: each [128, 128] tile is loaded, turned in PSUM, copied by ScalarE and stored, as the profile shows."""
    rows, cols = x.shape
    y = nl.ndarray((cols, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in range(0, rows, TILE):
        for n in range(0, cols, TILE):
            tile = nl.ndarray((TILE, TILE), dtype=x.dtype, buffer=nl.sbuf)
            bank = nl.ndarray((TILE, TILE), dtype=x.dtype, buffer=nl.psum)
            out = nl.ndarray((TILE, TILE), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[m : m + TILE, n : n + TILE], dge_mode=nisa.dge_mode.none)

            nisa.nc_transpose(dst=bank, data=tile, engine=nisa.engine.tensor)
            nisa.tensor_copy(dst=out, src=bank, engine=nisa.engine.scalar)

            nisa.dma_copy(dst=y[n : n + TILE, m : m + TILE], src=out, dge_mode=nisa.dge_mode.none)
    return y
