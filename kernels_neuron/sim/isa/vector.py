"""VectorE instructions, some of which ScalarE or GpSimdE run too."""

from collections.abc import Iterator

from kernels_neuron.arch import DEFAULT_ENGINE
from kernels_neuron.dtypes import ROWS
from kernels_neuron.sim import array
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.tensor import NkiTensor

from .enums import engine as Engine
from .ops import Op
from .prices import PRICES, facts
from .rules import (
    require_generation,
    require_integer,
    require_not_both_psum,
    require_op,
    require_same_extent,
    require_tile,
)
from .table import instruction


def write(core: NeuronCore, dst: NkiTensor, values: object) -> None:
    """Round float32 `values` into `dst`."""
    array.store(dst.array(), values, dst.dtype, core.switches["fp8_overflow"])  # type: ignore[arg-type]


def choose_engine(name: str, core: NeuronCore, asked: Engine, allowed: tuple[str, ...], *operands: NkiTensor) -> str:
    """The engine that runs the instruction: the one asked for, else arch.DEFAULT_ENGINE; GpSimdE reaches no PSUM."""
    chosen = DEFAULT_ENGINE[name] if asked is Engine.unknown else asked.name
    if chosen not in allowed:
        fail("engine", f"{name} runs on {', '.join(allowed)}, got {chosen}")
    if chosen == "gpsimd" and any(tensor.buffer is MemoryRegion.psum for tensor in operands):
        fail("gpsimd-psum", f"{name} on gpsimd cannot reach PSUM", "copy the tile to SBUF first, or use engine vector")
    return chosen


@instruction
def tensor_copy(
    core: NeuronCore, dst: NkiTensor, src: NkiTensor, engine: Engine = Engine.unknown, name: str | None = None
) -> Iterator[Step]:
    """dst = src, bit exact for one dtype, else rounded through float32.

    Operands: one extent; SBUF or PSUM (GpSimdE: SBUF).
    Engines: VectorE, ScalarE (trn2 on), GpSimdE; default arch.DEFAULT_ENGINE.
    Source: NKI ISA reference, tensor_copy.
    """
    require_tile("tensor_copy", "dst", dst, core)
    require_tile("tensor_copy", "src", src, core)
    require_same_extent("tensor_copy", dst=dst, src=src)
    chosen = choose_engine("tensor_copy", core, engine, ("vector", "scalar", "gpsimd"), dst, src)
    if chosen == "scalar":
        require_generation("tensor_copy", core, 3, "tensor_copy on scalar")
    price = PRICES["tensor_copy"](core.arch, facts(chosen, dst, src))

    def effect() -> None:
        if dst.dtype == src.dtype:
            dst.array()[...] = src.array().reshape(dst.shape)
        else:
            write(core, dst, src.f32())

    yield Step(chosen, price, reads=(src,), writes=(dst,), effect=effect)


@instruction
def tensor_tensor(
    core: NeuronCore,
    dst: NkiTensor,
    data1: NkiTensor,
    data2: NkiTensor,
    op: Op,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> Iterator[Step]:
    """dst[p, f] = op(data1[p, f], data2[p, f]), computed in float32, rounded into dst's dtype.

    Operands: SBUF or PSUM, at most one input in PSUM, one extent.
    Engines: VectorE; GpSimdE for power, and for add, subtract and multiply of 32-bit integers outside PSUM, which are exact.
    Source: NKI ISA reference, tensor_tensor; architecture guide, VectorE performance modes.
    """
    for operand, tensor in (("dst", dst), ("data1", data1), ("data2", data2)):
        require_tile("tensor_tensor", operand, tensor, core)
    require_op("tensor_tensor", "op", op)
    require_same_extent(
        "tensor_tensor",
        "use tensor_scalar to combine a tile with one value per partition",
        dst=dst,
        data1=data1,
        data2=data2,
    )
    require_not_both_psum("tensor_tensor", data1=data1, data2=data2)
    if op.alu is None or op.unary:
        fail("op-kind", f"tensor_tensor takes a binary ALU operator, got {op!r}")
    require_generation("tensor_tensor", core, op.min_generation, f"{op!r}")
    if op.bitvec:
        require_integer("tensor_tensor", dst=dst, data1=data1, data2=data2)
    chosen, exact = _tensor_tensor_engine(core, engine, op, dst, data1, data2)
    price = PRICES["tensor_tensor"](core.arch, facts(chosen, dst, data1, data2, op=op.name))

    def effect() -> None:
        if op.bitvec or exact:
            left, right = (tensor.array().reshape(dst.shape) for tensor in (data1, data2))
            dst.array()[...] = op.alu(left, right)  # type: ignore[misc]
        else:
            write(core, dst, op.alu(data1.f32(), data2.f32()))  # type: ignore[misc]

    yield Step(chosen, price, reads=(data1, data2), writes=(dst,), effect=effect)


def _tensor_tensor_engine(core: NeuronCore, asked: Engine, op: Op, *operands: NkiTensor) -> tuple[str, bool]:
    """(engine, whether integers are computed exactly)."""
    integers = all(tensor.dtype in ("int32", "uint32") for tensor in operands) and op.name in (
        "add",
        "subtract",
        "multiply",
    )
    in_psum = any(tensor.buffer is MemoryRegion.psum for tensor in operands)
    if asked is Engine.unknown and (op.name == "power" or (integers and not in_psum)):
        asked = Engine.gpsimd
    chosen = choose_engine("tensor_tensor", core, asked, ("vector", "gpsimd"), *operands)
    if op.name == "power" and chosen != "gpsimd":
        fail("engine", "tensor_tensor computes power on gpsimd")
    if op.bitvec and chosen != "vector":
        fail("engine", f"tensor_tensor computes {op!r} on vector")
    return chosen, integers and chosen == "gpsimd" and all(ROWS[tensor.dtype].is_integer for tensor in operands)
