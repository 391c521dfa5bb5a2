"""Rules of allocation, of what lives at one time, of outputs and of calls, each with a legal twin."""

import ml_dtypes
import numpy as np
import pytest
from twins import Launch, Twin, X

from kernels_neuron.sim import shim
from kernels_neuron.sim.run import jit

shim.install()
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


def loaded(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    return tile


def stored(tile, buffer=nl.shared_hbm):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=buffer)
    nisa.dma_copy(out, tile)
    return out


def copied(x, buffer=nl.shared_hbm):
    return stored(loaded(x), buffer)


def live(shapes, buffer=nl.sbuf, addresses=None, at_once=True):
    """A kernel that adds its tiles up, all of them live at one time unless told otherwise."""

    def kernel(x):
        places = addresses or [None] * len(shapes)
        tiles = []
        for shape, address in zip(shapes, places, strict=True):
            tile = nl.ndarray(shape, dtype=nl.float32, buffer=buffer, address=address)
            nisa.memset(tile, 1.0)
            tiles.append(tile)
            if not at_once:
                nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        if at_once:
            for tile in tiles:
                nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        return copied(x)

    return kernel


def launches(kernel, *args):
    return lambda launch: launch(kernel, *args or (X,))


def reads_half(count):
    def kernel(x):
        tile = nl.ndarray(x.shape, dtype=x.dtype)
        nisa.dma_copy(tile[:count], x[:count])
        return stored(tile)

    return kernel


def writes(count):
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out[:count], loaded(x)[:count])
        return out

    return kernel


def sub_kernel(grid):
    def kernel(x):
        inner = jit(copied)
        return (inner[1] if grid else inner)(x)

    return kernel


class Sizes(nl.NKIObject):
    rows: int


KIB, F32 = 1024 // 4, "float32"
TWINS = [
    Twin("shape-type", "compile-time integers", lambda b: nl.ndarray((8, 4), F32), lambda b: nl.ndarray((8, 4.5), F32)),
    Twin("shape-empty", "at least one element", lambda b: nl.ndarray((8, 1), F32), lambda b: nl.ndarray((8, 0), F32)),
    Twin(
        "tile-rank",
        "a partition and a free axis",
        lambda b: nl.ndarray((8,), F32, buffer=nl.shared_hbm),
        lambda b: nl.ndarray((8,), F32),
    ),
    Twin(
        "partition-limit",
        "at most 128 partitions",
        lambda b: nl.ndarray((128, 2), F32),
        lambda b: nl.ndarray((129, 2), F32),
    ),
    Twin(
        "buffer-type",
        "takes nl.sbuf, nl.psum or an HBM region",
        lambda b: nl.ndarray((8, 4), F32, buffer=nl.sbuf),
        lambda b: nl.ndarray((8, 4), F32, buffer="sbuf"),
    ),
    Twin(
        "constant-dtype",
        "got float8_e4m3",
        lambda b: nl.shared_constant(np.zeros((2, 2), ml_dtypes.float8_e5m2)),
        lambda b: nl.shared_constant(np.zeros((2, 2), ml_dtypes.float8_e4m3)),
    ),
    # 192, 224 and 256 KiB a partition
    *[
        Launch(
            "sbuf-capacity",
            f"sbuf on {chip} holds {size * 1024} bytes per partition",
            launches(live([(128, (size - 64) * KIB), (128, 48 * KIB)])),
            launches(live([(128, (size - 64) * KIB), (128, 64 * KIB), (128, 2)])),
            arch=chip,
        )
        for chip, size in (("trn1", 192), ("trn2", 224), ("trn3", 256))
    ],
    Launch(
        "psum-capacity",
        "in 8 banks of 2048",
        launches(live([(128, 512)] * 8, nl.psum)),
        launches(live([(128, 512)] * 9, nl.psum)),
    ),
    Launch(
        "address",
        "leaves sbuf",
        launches(live([(64, 2)], addresses=[(64, 0)])),
        launches(live([(64, 2)], addresses=[(96, 0)])),
    ),
    Launch(
        "address-overlap",
        "while both are live",
        launches(live([(8, 16)] * 2, addresses=[(0, 0), (0, 32)], at_once=False)),
        launches(live([(8, 16)] * 2, addresses=[(0, 0), (0, 32)])),
    ),
    Launch("unwritten-read", "of 128 bytes", launches(reads_half(8)), launches(reads_half(4))),
    Launch("unwritten-output", "of 128 bytes never written", launches(writes(8)), launches(writes(4))),
    Launch(
        "output-buffer",
        "outputs live in shared HBM",
        launches(copied),
        launches(lambda x: copied(x, nl.private_hbm)),
    ),
    Launch(
        "return-type",
        "one tensor or a tuple of tensors",
        launches(lambda x: (copied(x), copied(x))),
        launches(lambda x: (copied(x), 3)),
    ),
    Launch("nested-jit", "has its cores already", launches(sub_kernel(False)), launches(sub_kernel(True))),
    Launch(
        "platform-target",
        "the run is on trn1",
        launches(jit(copied, platform_target="trn2")),
        launches(jit(copied, platform_target="trn2")),
        broken_arch="trn1",
    ),
    Launch(
        "grid-axis",
        "got axis 1",
        launches(lambda x: (nl.program_id(0), copied(x))[1]),
        launches(lambda x: (nl.program_id(1), copied(x))[1]),
    ),
    Launch("outside-kernel", "outside a running kernel", launches(copied), lambda launch: nl.ndarray((8, 4), F32)),
    Twin("field-left-out", "Sizes.rows has no value", lambda b: Sizes(rows=2).rows + 1, lambda b: Sizes().rows + 1),
    Twin(
        "api-version",
        "nl.fori_loop exists from NKI 0.6 on",
        lambda b: nl.fori_loop,
        lambda b: nl.fori_loop,
        settings={"nki": "0.6"},
        broken_settings={"nki": "0.5"},
    ),
    Twin(
        "not-on-device",
        "nl.divide has no instruction",
        lambda b: nl.multiply(b.tile(X), b.tile(X)),
        lambda b: nl.divide(b.tile(X), b.tile(X)),
    ),
    Twin(
        "op-call",
        "with 1 operands",
        lambda b: nl.add(b.tile(X), b.tile(X)),
        lambda b: nl.add(b.tile(X)),
    ),
    Twin(
        "gather-piece",
        "num_elem_per_idx",
        lambda b: gathers(b, pieces=4),
        lambda b: gathers(b, pieces=3),
    ),
    Twin("gather-count", "valid indices", lambda b: gathers(b, valid=16), lambda b: gathers(b, valid=17)),
    Twin("gather-index", "reaches element 8", lambda b: gathers(b, index=7), lambda b: gathers(b, index=8)),
    Twin("gpsimd-cores", "a multiple of 16", lambda b: gathers(b), lambda b: gathers(b, partitions=8)),
    Twin(
        "dma-cast",
        "does not cast packed dtypes",
        lambda b: nisa.dma_copy(b.empty((4, 8), nl.float8_e5m2_x4), packed(b)),
        lambda b: nisa.dma_copy(b.empty((4, 8), nl.float32), packed(b)),
        arch="trn3",
    ),
    Twin(
        "mx-partitions",
        "a multiple of 32 partitions",
        lambda b: quantizes(b, 64),
        lambda b: quantizes(b, 48),
        arch="trn3",
    ),
    Twin("mx-scale", "start partition 2", lambda b: quantizes(b, 32, 4), lambda b: quantizes(b, 32, 2), arch="trn3"),
]


def gathers(b, partitions=16, index=0, pieces=1, valid=None):
    data, indices = b.tile(np.ones((partitions, 8))), b.tile(np.full((partitions, 1), index, np.uint16))
    nisa.local_gather(b.empty((partitions, (valid or partitions) * pieces)), data, indices, pieces, valid)


def packed(b):
    tile = b.empty((4, 8), nl.float8_e5m2_x4)
    nisa.memset(tile, 0)
    return tile


def quantizes(b, partitions, offset=0):
    scale = b.empty((128, 4), nl.uint8)
    scale = scale[offset : offset + partitions // 8] if partitions <= 32 else scale[:partitions]
    nisa.quantize_mx(
        b.empty((partitions, 4), nl.float8_e4m3fn_x4), b.tile(np.ones((partitions, 16)), nl.bfloat16), scale
    )


@pytest.mark.parametrize("twin", TWINS, ids=str)
def test_a_legal_kernel_runs_and_its_broken_twin_is_refused(machine, twin):
    twin.holds(machine)
