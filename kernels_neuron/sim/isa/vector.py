"""Elementwise VectorE instructions, some of which ScalarE or GpSimdE run too."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels_neuron.dtypes import ROWS, Row
from kernels_neuron.sim import array
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.trace import Price

from .enums import engine as Engine
from .ops import Op
from .prices import PRICES, facts
from .rules import (
    once_per_layout,
    require_alu,
    require_enum,
    require_generation,
    require_integer,
    require_not_both_psum,
    require_one_width,
    require_same_extent,
    require_scalar,
    require_tile,
)
from .table import instruction


def write(core: NeuronCore, dst: NkiTensor, values: object) -> None:
    """Round float32 `values` into `dst`."""
    array.store(dst.target(), values, dst.dtype, core.switches["fp8_overflow"])  # type: ignore[arg-type]


# dtypes whose f32() is a view of the tile rather than a temporary
STORED_AS_FLOAT32 = ("float32", "tfloat32")


def alu(op: Op, left: np.ndarray, right: Any, owned: bool = False) -> np.ndarray:
    """op(left, right) in float32, in place where `left` is `owned`, a temporary: fresh memory costs more."""
    assert op.alu is not None
    if owned and isinstance(op.alu, np.ufunc):
        return op.alu(left, right, out=left)
    return op.alu(left, right)


def choose_engine(name: str, core: NeuronCore, asked: Engine, allowed: tuple[str, ...], *operands: NkiTensor) -> str:
    """The engine that runs the instruction: the one asked for, else arch.default_engine; GpSimdE reaches no PSUM."""
    require_enum(name, "engine", asked, Engine)
    chosen = core.arch.default_engine[name] if asked is Engine.unknown else asked.name
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
    chosen, price, same = _copy_plan(core, dst, src, engine)

    def effect() -> None:
        if same and src.shape[0] == src.storage.tile.partitions and dst.shape[0] == dst.storage.tile.partitions:
            there = src.storage.look()
            there.shared = True
            dst.storage.lie_on(there)
        elif dst.dtype == src.dtype:
            dst.target()[...] = src.array().reshape(dst.shape)
        else:
            write(core, dst, src.f32())

    yield Step(chosen, price, (src,), (dst,), effect)


@once_per_layout
def _copy_plan(core: NeuronCore, dst: NkiTensor, src: NkiTensor, engine: Engine) -> tuple[str, Price, bool]:
    """(engine, price, whether a tile in SBUF that is as high as `dst` can lie on the bytes of `src`)."""
    require_tile("tensor_copy", "dst", dst, core)
    require_tile("tensor_copy", "src", src, core)
    require_same_extent("tensor_copy", dst=dst, src=src)
    chosen = choose_engine("tensor_copy", core, engine, ("vector", "scalar", "gpsimd"), dst, src)
    if chosen == "scalar":
        require_generation("tensor_copy", core, 3, "tensor_copy on scalar")
    same = dst.dtype == src.dtype and dst.covers_partitions() and src.covers_partitions()
    same = same and dst.buffer is MemoryRegion.sbuf  # in PSUM products may wait for the old bytes
    return chosen, PRICES["tensor_copy"](core.arch, facts(chosen, dst, src)), same


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
    Engines: VectorE; GpSimdE for power, and for exact add, subtract and multiply of 32-bit integers outside PSUM.
    Source: NKI ISA reference, tensor_tensor; architecture guide, VectorE performance modes.
    """
    chosen, exact, price = _tensor_tensor_plan(core, dst, data1, data2, op, engine)

    def effect() -> None:
        if op.bitvec or exact:
            left, right = (tensor.array().reshape(dst.shape) for tensor in (data1, data2))
            dst.target()[...] = op.alu(left, right).view(dst.dtype.numpy)  # type: ignore[misc]
        else:
            write(core, dst, alu(op, data1.f32(), data2.f32(), owned=data1.dtype not in STORED_AS_FLOAT32))

    yield Step(chosen, price, reads=(data1, data2), writes=(dst,), effect=effect)


@once_per_layout
def _tensor_tensor_plan(
    core: NeuronCore, dst: NkiTensor, data1: NkiTensor, data2: NkiTensor, op: Op, engine: Engine
) -> tuple[str, bool, Price]:
    """(engine, whether integers are computed exactly, price)."""
    for operand, tensor in (("dst", dst), ("data1", data1), ("data2", data2)):
        require_tile("tensor_tensor", operand, tensor, core)
    require_alu("tensor_tensor", "op", op, core, bitvec=True)
    require_same_extent(
        "tensor_tensor",
        "use tensor_scalar to combine a tile with one value per partition",
        dst=dst,
        data1=data1,
        data2=data2,
    )
    require_not_both_psum("tensor_tensor", data1=data1, data2=data2)
    if op.bitvec:
        require_integer("tensor_tensor", dst=dst, data1=data1, data2=data2)
        require_one_width("tensor_tensor", dst=dst, data1=data1, data2=data2)
    chosen, exact = _tensor_tensor_engine(core, engine, op, dst, data1, data2)
    return chosen, exact, PRICES["tensor_tensor"](core.arch, facts(chosen, dst, data1, data2, op=op.name))


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


# ---- scalar operands: a number, or one value per partition

Scalar = float | NkiTensor | None
_SCALAR_ENGINE_OPS = {("multiply", "add"), ("multiply", None), ("add", None)}


def scalar_value(operand: Any) -> Any:
    """A scalar operand as the engine reads it: float32, or a [P, 1] float32 array."""
    return operand.f32() if isinstance(operand, NkiTensor) else np.float32(operand)


def tensors(*operands: Any) -> tuple[NkiTensor, ...]:
    """Those operands that are tensors."""
    return tuple(operand for operand in operands if isinstance(operand, NkiTensor))


def apply_scalar(op: Op, data: np.ndarray, operand: Any, reverse: bool, owned: bool = False) -> np.ndarray:
    """op(data, operand) in float32, the other way round if `reverse`; a unary op looks at data alone."""
    assert op.alu is not None
    if op.unary:
        return op.alu(data)
    value = scalar_value(operand)
    return op.alu(value, data) if reverse else alu(op, data, value, owned)


def require_unary_operand(name: str, op: Op, operand: Any) -> None:
    """A unary operator comes with operand None or 0."""
    if op.unary and not (operand is None or (not isinstance(operand, NkiTensor) and operand == 0)):
        fail("op-kind", f"{name} with op0={op!r}, which is unary, takes operand0 None or 0, got {operand!r}")


@instruction
def tensor_scalar(
    core: NeuronCore,
    dst: NkiTensor,
    data: NkiTensor,
    op0: Op,
    operand0: Scalar,
    reverse0: bool = False,
    op1: Op | None = None,
    operand1: Scalar = None,
    reverse1: bool = False,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> Iterator[Step]:
    """dst[p, f] = op1(op0(data[p, f], operand0[p]), operand1[p]) in float32; reverse0, reverse1 swap sides of an op.

    Operands: dst and data of one extent; operand0, operand1 numbers or float32 [P, 1] tiles. Bit operations: integers.
    Engines: VectorE; GpSimdE for rsqrt; ScalarE for multiply-add, multiply and add on trn2, all arithmetic on trn3.
    Source: NKI ISA reference, tensor_scalar and its table of operators.
    """
    pointers = tensors(operand0, operand1)
    chosen, price = _tensor_scalar_plan(core, dst, data, op0, operand0, op1, operand1, engine)

    def effect() -> None:
        if op0.bitvec:
            values = _apply_bits(op0, data.array().reshape(data.shape[0], -1), operand0, reverse0)
            values = values if op1 is None else _apply_bits(op1, values, operand1, reverse1)
            dst.target()[...] = values.view(dst.dtype.numpy).reshape(dst.shape)
        else:
            values = apply_scalar(op0, data.f32(), operand0, reverse0, owned=data.dtype not in STORED_AS_FLOAT32)
            write(core, dst, values if op1 is None else apply_scalar(op1, values, operand1, reverse1, owned=True))

    yield Step(chosen, price, reads=(data, *pointers), writes=(dst,), effect=effect)


@once_per_layout
def _tensor_scalar_plan(
    core: NeuronCore,
    dst: NkiTensor,
    data: NkiTensor,
    op0: Op,
    operand0: Scalar,
    op1: Op | None,
    operand1: Scalar,
    engine: Engine,
) -> tuple[str, Price]:
    require_tile("tensor_scalar", "dst", dst, core)
    require_tile("tensor_scalar", "data", data, core)
    require_same_extent("tensor_scalar", dst=dst, data=data)
    require_alu("tensor_scalar", "op0", op0, core, unary=True, bitvec=True)
    require_unary_operand("tensor_scalar", op0, operand0)
    if (op1 is None) != (operand1 is None):
        fail("op-kind", f"tensor_scalar takes op1 and operand1 together, got op1={op1!r} and operand1={operand1!r}")
    if op1 is not None:
        require_alu("tensor_scalar", "op1", op1, core, bitvec=True)
        if op1.bitvec != op0.bitvec:
            fail("op-kind", f"tensor_scalar takes two arithmetic or two bit operators, got {op0!r} and {op1!r}")
    dtypes = [name for name, row in ROWS.items() if row.is_integer] if op0.bitvec else ("float32",)
    for label, op, operand in (("operand0", op0, operand0), ("operand1", op1, operand1)):
        if op is not None and not op.unary:
            require_scalar("tensor_scalar", label, operand, data.shape[0], core, dtypes)
    if op0.bitvec:
        _require_bits("tensor_scalar", dst, data, operand0, operand1)
    pointers = tensors(operand0, operand1)
    chosen = _tensor_scalar_engine(core, engine, op0, op1, dst, data, *pointers)
    return chosen, PRICES["tensor_scalar"](core.arch, facts(chosen, dst, data, op=op0.name, pointer=bool(pointers)))


def _require_bits(name: str, dst: NkiTensor, data: NkiTensor, *operands: Scalar) -> None:
    tiles = {f"operand{i}": operand for i, operand in enumerate(operands) if isinstance(operand, NkiTensor)}
    require_integer(name, dst=dst, data=data)
    require_one_width(name, dst=dst, data=data, **tiles)
    for i, operand in enumerate(operands):
        if isinstance(operand, (float, np.floating)):
            fail("bitvec-dtype", f"{name} with a bit operation takes integers, operand{i} is {operand!r}")


def _apply_bits(op: Op, data: np.ndarray, operand: Any, reverse: bool) -> np.ndarray:
    """op on raw bits; a Python integer is cut to the width of the elements."""
    assert op.alu is not None
    if op.unary:
        return op.alu(data)
    if isinstance(operand, NkiTensor):
        value = operand.array().reshape(-1, 1).view(data.dtype)
    else:
        bits = data.dtype.itemsize * 8
        value = np.full((1, 1), int(operand) & (2**bits - 1), f"uint{bits}").view(data.dtype)
    left, right = (value, data) if reverse else (data, value)
    return op.alu(*(np.ascontiguousarray(side) for side in np.broadcast_arrays(left, right)))


def _tensor_scalar_engine(core: NeuronCore, asked: Engine, op0: Op, op1: Op | None, *operands: NkiTensor) -> str:
    if asked is Engine.unknown and op0.name == "rsqrt":
        asked = Engine.gpsimd
    chosen = choose_engine("tensor_scalar", core, asked, ("vector", "scalar", "gpsimd"), *operands)
    ops = tuple(op for op in (op0, op1) if op is not None)
    names = " and ".join(map(repr, ops))
    if chosen == "gpsimd" and op0.name != "rsqrt":
        fail("engine", f"tensor_scalar on gpsimd computes nl.rsqrt alone, got {names}", "use engine vector")
    if chosen == "vector" and not all("vector" in op.engines for op in ops):
        fail("engine", f"tensor_scalar on vector does not compute {names}")
    if chosen == "scalar":
        require_generation("tensor_scalar", core, 3, "tensor_scalar on scalar")
        if any(op.bitvec for op in ops):
            fail("engine", f"tensor_scalar computes {names} on vector")
        if core.arch.generation == 3 and (op0.name, op1.name if op1 else None) not in _SCALAR_ENGINE_OPS:
            fail(
                "engine",
                f"tensor_scalar on scalar of {core.arch.name} computes multiply and add, multiply, or add, got {names}",
            )
    return chosen


@instruction
def scalar_tensor_tensor(
    core: NeuronCore,
    dst: NkiTensor,
    data: NkiTensor,
    op0: Op,
    operand0: Scalar,
    op1: Op,
    operand1: NkiTensor,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> Iterator[Step]:
    """dst[p, f] = op1(op0(data[p, f], operand0[p]), operand1[p, f]) in float32; reverse0, reverse1 swap sides of an op.

    Operands: dst, data, operand1 of one extent, any dtype; operand0 a number or a [P, 1] tile; data and operand1 not
    both in PSUM.
    Engines: VectorE. Binary arithmetic operators only.
    Source: NKI ISA reference, scalar_tensor_tensor.
    """
    for operand, tensor in (("dst", dst), ("data", data), ("operand1", operand1)):
        require_tile("scalar_tensor_tensor", operand, tensor, core)
    require_same_extent("scalar_tensor_tensor", dst=dst, data=data, operand1=operand1)
    require_not_both_psum("scalar_tensor_tensor", data=data, operand1=operand1)
    for operand, op in (("op0", op0), ("op1", op1)):
        require_alu("scalar_tensor_tensor", operand, op, core)
        _require_vector_op("scalar_tensor_tensor", op)
    require_scalar("scalar_tensor_tensor", "operand0", operand0, data.shape[0], core, None)
    pointers = tensors(operand0)
    price = PRICES["scalar_tensor_tensor"](
        core.arch, facts("vector", dst, data, operand1, op=f"{op0.name} {op1.name}", pointer=bool(pointers))
    )

    def effect() -> None:
        values, other = apply_scalar(op0, data.f32(), operand0, reverse0), operand1.f32()
        assert op1.alu is not None
        write(core, dst, op1.alu(other, values) if reverse1 else alu(op1, values, other, owned=True))

    yield Step("vector", price, reads=(data, *pointers, operand1), writes=(dst,), effect=effect)


def _require_vector_op(name: str, op: Op) -> None:
    if "vector" not in op.engines:
        fail("engine", f"{name} runs on vector, which does not compute {op!r}")


@instruction
def reciprocal(core: NeuronCore, dst: NkiTensor, data: NkiTensor, name: str | None = None) -> Iterator[Step]:
    """dst = 1 / data in float32.

    Operands: one extent, SBUF or PSUM, any dtype. Engines: VectorE.
    Source: NKI ISA reference, reciprocal.
    """
    require_tile("reciprocal", "dst", dst, core)
    require_tile("reciprocal", "data", data, core)
    require_same_extent("reciprocal", dst=dst, data=data)
    price = PRICES["reciprocal"](core.arch, facts("vector", dst, data))

    def effect() -> None:
        write(core, dst, np.reciprocal(data.f32()))

    yield Step("vector", price, reads=(data,), writes=(dst,), effect=effect)


@instruction
def memset(
    core: NeuronCore, dst: NkiTensor, value: float, engine: Engine = Engine.unknown, name: str | None = None
) -> Iterator[Step]:
    """dst = value everywhere.

    Operands: dst in SBUF or PSUM (GpSimdE: SBUF); value a number known while tracing, a whole one for integer dtypes,
    0 for packed ones.
    Engines: VectorE, GpSimdE; default arch.DEFAULT_ENGINE.
    Source: NKI ISA reference, memset; NKI 0.3 migration guide.
    """
    require_tile("memset", "dst", dst, core)
    row = ROWS[dst.dtype]
    if not isinstance(value, (int, float, np.integer, np.floating)):
        fail("operand-type", f"memset takes a number as value, got {value!r}")
    if row.is_integer and isinstance(value, (float, np.floating)):
        # the migration guide asks for an integer literal; public kernels clear integer tiles with 0.0
        if not float(value).is_integer():
            fail("memset-value", f"memset of {dst!r} takes a whole number, got {value!r}")
        value = int(value)
    if row.is_integer and not _integer_range(row)[0] <= value <= _integer_range(row)[1]:
        fail(
            "memset-value",
            f"memset of {dst!r} takes a value from {_integer_range(row)[0]} to {_integer_range(row)[1]}, got {value!r}",
        )
    if row.kind == "packed" and value != 0:
        fail("memset-value", f"memset of {dst!r} takes 0 alone, got {value!r}")
    chosen = choose_engine("memset", core, engine, ("vector", "gpsimd"), dst)
    price = PRICES["memset"](core.arch, facts(chosen, dst, op="zero" if value == 0 else ""))

    def effect() -> None:
        if row.is_float:
            write(core, dst, np.broadcast_to(np.float32(value), dst.shape))
        else:
            dst.target()[...] = value

    yield Step(chosen, price, writes=(dst,), effect=effect)


def _integer_range(row: Row) -> tuple[int, int]:
    if row.kind == "bool":
        return 0, 1
    info = np.iinfo(row.numpy)
    return int(info.min), int(info.max)
