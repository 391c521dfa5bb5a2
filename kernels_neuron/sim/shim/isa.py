"""nki.isa: every instruction of the table, with the enumerations it takes."""

from kernels_neuron.errors import KernelError as NkiValidationError
from kernels_neuron.sim.context import current_arch
from kernels_neuron.sim.isa import TABLE
from kernels_neuron.sim.isa.enums import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from kernels_neuron.sim.isa.registers import register_alloc
from kernels_neuron.sim.isa.scalars import NkiScalar, scalar_load, scalar_store
from kernels_neuron.sim.isa.table import public
from kernels_neuron.sim.order import NkiInstruction
from kernels_neuron.sim.register import VirtualRegister

from . import gone

tensor_engine, vector_engine, scalar_engine, gpsimd_engine, unknown_engine = (
    engine.tensor,
    engine.vector,
    engine.scalar,
    engine.gpsimd,
    engine.unknown,
)


def get_nc_version() -> nc_version:
    """The generation of the chip the kernel is run for."""
    return nc_version(current_arch().generation)


def get_nc_sub_version() -> int:
    """The silicon revision: 0 is the first one, which the simulator models."""
    return 0


globals().update(gone.names("nisa", gone.ISA))
globals().update({name: public(entry) for name, entry in TABLE.items()})

__all__ = [
    *TABLE,
    *gone.ISA,
    "NkiInstruction",
    "NkiScalar",
    "NkiValidationError",
    "VirtualRegister",
    "dge_mode",
    "dma_engine",
    "engine",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "register_alloc",
    "scalar_engine",
    "scalar_load",
    "scalar_store",
    "tensor_engine",
    "unknown_engine",
    "vector_engine",
]
