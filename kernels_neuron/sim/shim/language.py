"""nki.language: dtypes, memories, operators, allocation and the functions built on nki.isa."""

import sys
from collections.abc import Sequence
from typing import Any

from kernels_neuron.dtypes import ROWS, DType
from kernels_neuron.sim.context import core_or_none, current_arch, current_core
from kernels_neuron.sim.index import Ds
from kernels_neuron.sim.isa.ops import OPS
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.show import shown
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.versions import SINCE, require_name

from . import elementwise, gone
from .composite import COMPOSITES
from .constants import shared_constant, shared_identity_matrix
from .elementwise import broadcast_to, expand_dims, full, load, matmul, ones, store, transpose, zeros
from .grids import NkiBlockGrid, NkiGrid, NkiTileGrid, alloc_blocks, alloc_tiles, blocks, tiles
from .loops import (
    affine_range,
    dynamic_range,
    fori_loop,
    no_reorder,
    sequential_range,
    static_range,
    while_loop,
)
from .objects import NKIObject

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = MemoryRegion.private_hbm
hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm
ds = Ds


class _TileSize:
    """`nl.tile_size`: the limits of the chip the kernel is run for."""

    def __getattr__(self, name: str) -> int:
        limits = current_arch().tile_size
        if name not in limits:
            raise AttributeError(f"nl.tile_size has no {name}, it has {', '.join(limits)}")
        if f"nl.tile_size.{name}" in SINCE:
            require_name(f"nl.tile_size.{name}")
        return limits[name]


tile_size = _TileSize()


def ndarray(
    shape: Sequence[int],
    dtype: Any,
    buffer: MemoryRegion = sbuf,
    name: str = "",
    address: tuple[int, int] | None = None,
) -> NkiTensor:
    """A new tensor whose bytes are unwritten. address = (partition, byte within the partition) pins an on-chip tile."""
    return current_core("nl.ndarray").allocate(shape, dtype, buffer, name, address)


def program_id(axis: int = 0) -> int:
    """Index of this program in the launch grid."""
    _require_axis_zero(axis)
    return current_core("nl.program_id").program


def num_programs(axes: int = 0) -> int:
    """Programs in the launch grid; 1 without a grid."""
    _require_axis_zero(axes)
    return current_core("nl.num_programs").programs


def program_ndim() -> int:
    """Dims of the launch grid; 0 without one."""
    return 1 if current_core("nl.program_ndim").programs > 1 else 0


def _require_axis_zero(axis: int) -> None:
    if axis != 0:
        fail("grid-axis", f"a launch grid has one axis, got axis {axis}")


def is_sbuf(buffer: MemoryRegion) -> bool:
    """Whether `buffer` is SBUF."""
    return buffer is sbuf


def is_psum(buffer: MemoryRegion) -> bool:
    """Whether `buffer` is PSUM."""
    return buffer is psum


def is_hbm(buffer: MemoryRegion) -> bool:
    """Whether `buffer` is HBM."""
    return buffer in (private_hbm, shared_hbm)


def is_on_chip(buffer: MemoryRegion) -> bool:
    """Whether `buffer` is SBUF or PSUM."""
    return buffer.on_chip


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print a tensor's values, as the device does at run time."""
    core = core_or_none()
    if core is not None and core.has_values:
        sys.stdout.write(f"{print_prefix} {shown(tensor)}\n")


int64 = "int64"  # named by the reference from 0.7 on for scalars; making a tensor of it is an error that says so
globals().update({name: row.name for name, row in ROWS.items()})
globals().update(OPS)
# functions that are not operator tokens
globals().update(elementwise.FUNCTIONS)
globals().update(COMPOSITES)
globals().update(gone.names("nl", gone.LANGUAGE))

__all__ = [
    *ROWS,
    *OPS,
    *elementwise.FUNCTIONS,
    *COMPOSITES,
    *gone.LANGUAGE,
    "DType",
    "MemoryRegion",
    "NKIObject",
    "NkiBlockGrid",
    "NkiGrid",
    "NkiTensor",
    "NkiTileGrid",
    "affine_range",
    "alloc_blocks",
    "alloc_tiles",
    "blocks",
    "broadcast_to",
    "device_print",
    "ds",
    "dynamic_range",
    "expand_dims",
    "fori_loop",
    "full",
    "hbm",
    "int64",
    "is_hbm",
    "is_on_chip",
    "is_psum",
    "is_sbuf",
    "load",
    "matmul",
    "ndarray",
    "no_reorder",
    "num_programs",
    "ones",
    "private_hbm",
    "program_id",
    "program_ndim",
    "psum",
    "sbuf",
    "sequential_range",
    "shared_constant",
    "shared_hbm",
    "shared_identity_matrix",
    "static_range",
    "store",
    "tile_size",
    "tiles",
    "transpose",
    "while_loop",
    "zeros",
]
