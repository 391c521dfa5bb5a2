"""VectorE instructions that choose between values element by element."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels_neuron.dtypes import ROWS
from kernels_neuron.sim import array
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor

from .enums import reduce_cmd as ReduceCmd
from .ops import OPS, Op
from .prices import PRICES, facts
from .reduce import FLOATS, accumulate, accumulated, lanes, readout, require_registers, require_result
from .rules import (
    mark_taken,
    require_dtype,
    require_enum,
    require_generation,
    require_not_both_psum,
    require_op,
    require_same_extent,
    require_scalar,
    require_tile,
    require_vector,
)
from .table import instruction
from .vector import Scalar, scalar_value, tensors, write

FP32_MIN = float(np.finfo(np.float32).min)
COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")


@instruction
def tensor_copy_predicated(
    core: NeuronCore,
    dst: NkiTensor,
    src: Scalar,
    predicate: NkiTensor,
    reverse_pred: bool = False,
    name: str | None = None,
) -> Iterator[Step]:
    """dst[p, f] = src[p, f] where predicate[p, f] != 0 (== 0 if reverse_pred); the other elements of dst are kept.

    Operands: dst, predicate of one extent; src such a tile of dst's dtype, or a number; predicate uint8, uint16 or
    uint32; src and predicate not both in PSUM. Engines: VectorE.
    Source: NKI ISA reference, tensor_copy_predicated.
    """
    require_tile("tensor_copy_predicated", "dst", dst, core)
    require_tile("tensor_copy_predicated", "predicate", predicate, core)
    require_same_extent("tensor_copy_predicated", dst=dst, predicate=predicate)
    require_dtype("tensor_copy_predicated", "predicate", predicate, ("uint8", "uint16", "uint32"))
    if isinstance(src, NkiTensor):
        require_tile("tensor_copy_predicated", "src", src, core)
        require_same_extent("tensor_copy_predicated", dst=dst, src=src)
        require_dtype("tensor_copy_predicated", "src", src, (dst.dtype,))
        require_not_both_psum("tensor_copy_predicated", src=src, predicate=predicate)
    else:
        require_scalar("tensor_copy_predicated", "src", src, dst.shape[0], core)
    price = PRICES["tensor_copy_predicated"](core.arch, facts("vector", dst, *tensors(src), predicate))
    written = dst.storage.written
    known = written.contains(dst.region())

    def effect() -> None:
        take = (predicate.array() != 0).reshape(dst.shape) != reverse_pred
        target = dst.target()
        if isinstance(src, NkiTensor):
            np.copyto(target, src.array().reshape(dst.shape), where=take)
        else:
            target[take] = number_as(core, src, dst)
        if not known:
            mark_taken(dst, take)

    # a complementary pair of predicated copies may fill a new tile, so only the bytes that were taken count as written
    yield Step(
        "vector",
        price,
        reads=(*tensors(src), predicate),
        writes=(dst,),
        effect=effect,
        marks=known or not core.has_values,
    )


def number_as(core: NeuronCore, value: Any, like: NkiTensor) -> Any:
    """A Python number as one element of `like`'s dtype, rounded as an engine does."""
    out = np.empty(1, ROWS[like.dtype].numpy)
    array.store(out, np.full(1, value, np.float32), like.dtype, core.switches["fp8_overflow"])
    return out[0]


@instruction
def select_reduce(
    core: NeuronCore,
    dst: NkiTensor,
    predicate: NkiTensor,
    on_true: NkiTensor,
    on_false: Scalar,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    reduce_op: Op = OPS["maximum"],
    reverse_pred: bool = False,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = on_true where predicate != 0 (== 0 if reverse_pred), else on_false[p]; registers[p] = max over dst[p, :].

    Operands: dst, predicate, on_true of one extent; predicate (u)int8 or (u)int16; on_true not tfloat32, int32, uint32;
    on_false a number or a [P, 1] tile; on_true and predicate not both in PSUM; reduce_res a float [P, 1] tile.
    reduce_cmd: idle leaves no defined value in the registers, reset_reduce starts at -inf, reduce goes on.
    Engines: VectorE.
    Source: NKI ISA reference, select_reduce.
    """
    for operand, tensor in (("dst", dst), ("predicate", predicate), ("on_true", on_true)):
        require_tile("select_reduce", operand, tensor, core)
    require_same_extent("select_reduce", dst=dst, predicate=predicate, on_true=on_true)
    require_dtype("select_reduce", "predicate", predicate, ("int8", "uint8", "int16", "uint16"))
    require_dtype(
        "select_reduce", "on_true", on_true, [row for row in ROWS if row not in ("tfloat32", "int32", "uint32")]
    )
    require_scalar("select_reduce", "on_false", on_false, dst.shape[0], core, None)
    require_not_both_psum("select_reduce", on_true=on_true, predicate=predicate)
    _require_max("select_reduce", reduce_op)
    require_enum(
        "select_reduce", "reduce_cmd", reduce_cmd, ReduceCmd, ReduceCmd.idle, ReduceCmd.reset_reduce, ReduceCmd.reduce
    )
    require_result("select_reduce", core, reduce_res, dst.shape[0])
    if reduce_res is not None and reduce_cmd is ReduceCmd.idle:
        fail(
            "reduce-idle",
            "select_reduce with reduce_cmd idle has no result for reduce_res",
            "use reduce_cmd.reset_reduce",
        )
    require_registers(core, "select_reduce", dst, reduce_cmd)
    price = PRICES["select_reduce"](core.arch, facts("vector", dst, on_true, predicate))

    def effect() -> None:
        take = (predicate.array() != 0).reshape(dst.shape[0], -1) != reverse_pred
        _select(core, dst, take, on_true, scalar_value(on_false), reduce_cmd, reduce_op)

    yield Step("vector", price, reads=(predicate, on_true, *tensors(on_false)), writes=(dst,), effect=effect)
    core.defined["vector"][lanes(dst)] = reduce_cmd is not ReduceCmd.idle
    if reduce_res is not None:
        yield readout(core, dst, reduce_res)


def _require_max(name: str, op: Any) -> None:
    if require_op(name, "reduce_op", op).name != "maximum":
        fail("op-kind", f"{name} reduces with nl.maximum alone, got {op!r}")


def _select(
    core: NeuronCore, dst: NkiTensor, take: np.ndarray, on_true: NkiTensor, on_false: Any, cmd: ReduceCmd, op: Op
) -> None:
    values = np.where(take, on_true.f32(), on_false).astype(np.float32, copy=False)
    write(core, dst, values)
    if cmd is not ReduceCmd.idle:
        accumulate(core, dst, op, cmd, accumulated(core, values, dst))


@instruction
def range_select(
    core: NeuronCore,
    dst: NkiTensor,
    on_true_tile: NkiTensor,
    comp_op0: Op,
    comp_op1: Op,
    bound0: NkiTensor,
    bound1: NkiTensor,
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce,
    reduce_res: NkiTensor | None = None,
    reduce_op: Op = OPS["maximum"],
    range_start: int = 0,
    on_false_value: float = FP32_MIN,
    name: str | None = None,
) -> Iterator[Step]:
    """i = range_start + f; dst = on_true_tile where comp_op0(i, bound0[p]) and comp_op1(i, bound1[p]), else FP32_MIN.

    Operands: dst, on_true_tile of one extent, on_true_tile float; bounds float32 [P, 1] tiles; reduce_res, which gets
    the max over dst[p, :], a float [P, 1] tile or None.
    The index is compared in float32, so range_start + f stays within 2**24. trn2 on. Engines: VectorE.
    Source: NKI ISA reference, range_select.
    """
    require_generation("range_select", core, 3)
    require_tile("range_select", "dst", dst, core)
    require_tile("range_select", "on_true_tile", on_true_tile, core)
    require_same_extent("range_select", dst=dst, on_true_tile=on_true_tile)
    require_dtype("range_select", "on_true_tile", on_true_tile, FLOATS)
    for operand, bound in (("bound0", bound0), ("bound1", bound1)):
        require_tile("range_select", operand, bound, core)
        require_vector("range_select", operand, bound, dst.shape[0])
        require_dtype("range_select", operand, bound, ("float32",))
    for operand, op in (("comp_op0", comp_op0), ("comp_op1", comp_op1)):
        if require_op("range_select", operand, op).name not in COMPARISONS:
            fail("op-kind", f"range_select takes {', '.join(COMPARISONS)} as {operand}, got {op!r}")
    _require_max("range_select", reduce_op)
    require_enum("range_select", "reduce_cmd", reduce_cmd, ReduceCmd, ReduceCmd.reset_reduce, ReduceCmd.reduce)
    require_result("range_select", core, reduce_res, dst.shape[0])
    require_registers(core, "range_select", dst, reduce_cmd)
    if not isinstance(range_start, (int, np.integer)) or abs(range_start) + dst.free_size > 2**24:
        fail(
            "range-start",
            f"range_select takes an integer range_start that keeps indices within 2**24, got {range_start!r}",
        )
    number = isinstance(on_false_value, (int, float, np.integer, np.floating))
    if not number or np.float32(on_false_value) != np.float32(FP32_MIN):
        fail("on-false-value", f"range_select takes on_false_value {FP32_MIN!r} alone, got {on_false_value!r}")
    price = PRICES["range_select"](core.arch, facts("vector", dst, on_true_tile))

    def effect() -> None:
        assert comp_op0.alu is not None and comp_op1.alu is not None
        index = np.arange(range_start, range_start + dst.free_size, dtype=np.float32)[None]
        take = (comp_op0.alu(index, bound0.f32()) != 0) & (comp_op1.alu(index, bound1.f32()) != 0)
        _select(core, dst, take, on_true_tile, np.float32(FP32_MIN), reduce_cmd, reduce_op)

    yield Step("vector", price, reads=(on_true_tile, bound0, bound1), writes=(dst,), effect=effect)
    core.defined["vector"][lanes(dst)] = True
    if reduce_res is not None:
        yield readout(core, dst, reduce_res)
