"""VectorE instructions that combine elements along the free axis: reductions, scans and batch-norm statistics."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernels_neuron.dtypes import ROWS
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor

from .enums import reduce_cmd as ReduceCmd
from .ops import Op
from .prices import PRICES, facts
from .rules import (
    require_alu,
    require_dtype,
    require_enum,
    require_integer,
    require_not_both_psum,
    require_one_width,
    require_op,
    require_same_extent,
    require_scalar,
    require_tile,
    require_vector,
)
from .table import instruction
from .vector import Scalar, apply_scalar, require_unary_operand, scalar_value, tensors, write

FLOATS = tuple(name for name, row in ROWS.items() if row.is_float and name != "float8_e8m0fnu")
_REGISTER_OPS = ("add", "multiply", "maximum", "minimum")
_CUMULATIVE_DTYPES = (*(name for name in FLOATS if name != "tfloat32"), "int8", "uint8", "int16", "uint16")


@instruction
def tensor_reduce(
    core: NeuronCore,
    dst: NkiTensor,
    op: Op,
    data: NkiTensor,
    axis: int | Sequence[int],
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> Iterator[Step]:
    """dst[p, kept] = op over the trailing free dims `axis` of data, times -1 if `negate`, in float32.

    Operands: SBUF or PSUM, any dtype (bit operations: integers); dst has one element per kept element, in any shape, so
    keepdims changes nothing.
    `axis` is a run of dims that ends with the last one and never holds dim 0.
    Engines: VectorE. Source: NKI ISA reference, tensor_reduce.
    """
    require_tile("tensor_reduce", "dst", dst, core)
    require_tile("tensor_reduce", "data", data, core)
    require_op("tensor_reduce", "op", op)
    if op.reduce is None:
        fail(
            "op-kind",
            f"tensor_reduce takes an operator that is a legal reduction, such as nl.add or nl.maximum, got {op!r}",
        )
    kept = _kept_elements(data, axis)
    if dst.shape[0] != data.shape[0] or dst.free_size != kept:
        fail(
            "operand-extent",
            f"tensor_reduce of {data!r} over axis {axis} gives {kept} elements on {data.shape[0]} partitions, "
            f"dst is {dst!r}",
        )
    if op.bitvec:
        require_integer("tensor_reduce", dst=dst, data=data)
        require_one_width("tensor_reduce", dst=dst, data=data)
        if negate:
            fail("op-kind", f"tensor_reduce negates arithmetic results only, got {op!r}")
    price = PRICES["tensor_reduce"](core.arch, facts("vector", dst, data, op=op.name))

    def effect() -> None:
        assert op.reduce is not None
        if op.bitvec:
            result = op.reduce.reduce(data.array().reshape(data.shape[0], kept, -1), axis=2)
            dst.target()[...] = result.view(dst.dtype.numpy).reshape(dst.shape)
            return
        with np.errstate(all="ignore"):
            result = op.reduce.reduce(data.f32().reshape(data.shape[0], kept, -1), axis=2).astype(
                np.float32, copy=False
            )
        write(core, dst, -result if negate else result)

    yield Step("vector", price, reads=(data,), writes=(dst,), effect=effect)


def _kept_elements(data: NkiTensor, axis: Any) -> int:
    """Elements per partition that are left, after checking `axis`."""
    axes = list(axis) if isinstance(axis, (tuple, list)) else [axis]
    whole = all(isinstance(dim, (int, np.integer)) and not isinstance(dim, bool) for dim in axes)
    axes = sorted(int(dim) + (data.ndim if dim < 0 else 0) for dim in axes) if whole else []
    if not axes or axes[0] < 1 or axes != list(range(axes[0], data.ndim)):
        hint = "reorder the free dims with permute so that the reduced ones come last"
        fail("reduce-axis", f"tensor_reduce takes trailing free dims of {data!r} as axis, got {axis!r}", hint)
    return int(np.prod(data.shape[1 : axes[0]], dtype=np.int64))


# ---- accumulator registers


def lanes(dst: NkiTensor) -> slice:
    """The partitions whose registers an instruction that writes `dst` uses."""
    return slice(dst.start_partition, dst.start_partition + dst.shape[0])


def accumulate(core: NeuronCore, dst: NkiTensor, op: Op, cmd: ReduceCmd, values: np.ndarray, init: Any = None) -> None:
    """Fold float32 `values` [P, N] into VectorE's registers of dst's partitions, after what `cmd` does to them."""
    assert op.reduce is not None
    registers = core.accumulators["vector"][lanes(dst)]
    with np.errstate(all="ignore"):
        folded = op.reduce.reduce(values, axis=1)
        if cmd is ReduceCmd.reduce:
            folded = op.reduce(registers, folded)
        elif cmd is ReduceCmd.load_reduce:
            folded = op.reduce(np.reshape(init, -1), folded)
    registers[...] = folded


def require_registers(
    core: NeuronCore, name: str, dst: NkiTensor, cmd: ReduceCmd, engine: str = "vector", use: str = "continues"
) -> None:
    """`reduce` continues a chain, so the engine's registers of dst's partitions hold a value."""
    if (cmd is ReduceCmd.reduce or use != "continues") and not core.defined[engine][lanes(dst)].all():
        fail(
            "accumulator-undefined",
            f"{name} with reduce_cmd {cmd.name} {use} accumulator registers that hold no defined value",
            "start the chain with reduce_cmd.reset_reduce",
        )


def require_result(name: str, core: NeuronCore, reduce_res: NkiTensor | None, partitions: int) -> None:
    """`reduce_res` is None or a float [P, 1] tile."""
    if reduce_res is not None:
        require_tile(name, "reduce_res", reduce_res, core)
        require_vector(name, "reduce_res", reduce_res, partitions)
        require_dtype(name, "reduce_res", reduce_res, FLOATS)


def readout(core: NeuronCore, dst: NkiTensor, reduce_res: NkiTensor, negate: bool = False) -> Step:
    """The extra step that copies VectorE's registers of dst's partitions into `reduce_res`."""
    price = PRICES["reduce_readout"](core.arch, facts("vector", reduce_res))

    def effect() -> None:
        values = core.accumulators["vector"][lanes(dst)]
        write(core, reduce_res, -values if negate else values)

    return Step("vector", price, writes=(reduce_res,), effect=effect)


@instruction
def tensor_scalar_reduce(
    core: NeuronCore,
    dst: NkiTensor,
    data: NkiTensor,
    op0: Op,
    operand0: Scalar,
    reduce_op: Op,
    reduce_res: NkiTensor | None = None,
    reverse0: bool = False,
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce,
    reduce_init: Scalar = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = op0(data, operand0[p]); registers[p] = reduce_op over dst[p, :]; reduce_res = registers or their negative.

    Operands: dst, data of one extent; operand0 a number or a float32 [P, 1] tile; reduce_res a float [P, 1] tile.
    reduce_cmd: reset_reduce starts at the identity, load_reduce at reduce_init, reduce goes on from the last call.
    Engines: VectorE. Arithmetic op0; reduce_op add, multiply, maximum or minimum.
    Source: NKI ISA reference, tensor_scalar_reduce (reverse0 is "not supported" there).
    """
    require_tile("tensor_scalar_reduce", "dst", dst, core)
    require_tile("tensor_scalar_reduce", "data", data, core)
    require_same_extent("tensor_scalar_reduce", dst=dst, data=data)
    partitions = data.shape[0]
    require_alu("tensor_scalar_reduce", "op0", op0, core, unary=True)
    if "vector" not in op0.engines:
        fail("engine", f"tensor_scalar_reduce runs on vector, which does not compute {op0!r}")
    require_unary_operand("tensor_scalar_reduce", op0, operand0)
    if not op0.unary:
        require_scalar("tensor_scalar_reduce", "operand0", operand0, partitions, core)
    if require_op("tensor_scalar_reduce", "reduce_op", reduce_op).name not in _REGISTER_OPS:
        fail("op-kind", f"tensor_scalar_reduce takes reduce_op {', '.join(_REGISTER_OPS)}, got {reduce_op!r}")
    if reverse0:
        fail(
            "reverse",
            "tensor_scalar_reduce does not take reverse0",
            "use tensor_scalar with reverse0, then tensor_reduce",
        )
    commands = (ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce)
    require_enum("tensor_scalar_reduce", "reduce_cmd", reduce_cmd, ReduceCmd, *commands)
    if (reduce_cmd is ReduceCmd.load_reduce) != (reduce_init is not None):
        fail(
            "reduce-init",
            f"tensor_scalar_reduce takes reduce_init with load_reduce and only then, "
            f"got {reduce_init!r} with {reduce_cmd.name}",
        )
    if reduce_init is not None:
        require_scalar("tensor_scalar_reduce", "reduce_init", reduce_init, partitions, core)
    require_result("tensor_scalar_reduce", core, reduce_res, partitions)
    require_registers(core, "tensor_scalar_reduce", dst, reduce_cmd)
    pointers = tensors(operand0, reduce_init)
    price = PRICES["tensor_scalar_reduce"](core.arch, facts("vector", dst, data, op=op0.name, pointer=bool(pointers)))

    def effect() -> None:
        values = apply_scalar(op0, data.f32(), operand0, False)
        start = scalar_value(reduce_init) if reduce_init is not None else None
        write(core, dst, values)
        accumulate(core, dst, reduce_op, reduce_cmd, accumulated(core, values, dst), start)

    yield Step("vector", price, reads=(data, *pointers), writes=(dst,), effect=effect)
    core.defined["vector"][lanes(dst)] = True
    if reduce_res is not None:
        yield readout(core, dst, reduce_res, reduce_res_negate)


def accumulated(core: NeuronCore, values: np.ndarray, dst: NkiTensor) -> np.ndarray:
    """What a reducing instruction accumulates by switch accumulated_value: the float32 result, or dst as rounded."""
    return values if core.switches["accumulated_value"] == "float32" else dst.f32()


# ---- scans


@instruction
def tensor_tensor_scan(
    core: NeuronCore,
    dst: NkiTensor,
    data0: NkiTensor,
    data1: NkiTensor,
    initial: Scalar,
    op0: Op,
    op1: Op,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> Iterator[Step]:
    """s = initial[p]; for f in order: s = op1(op0(data0[p, f], s), data1[p, f]); dst[p, f] = s. s stays float32.

    Operands: dst, data0, data1 of one extent, at most one input in PSUM; initial a number or a float32 [P, 1] tile.
    reverse0, reverse1 swap the two sides of an op. Engines: VectorE. Binary arithmetic operators only.
    Source: NKI ISA reference, tensor_tensor_scan.
    """
    for operand, tensor in (("dst", dst), ("data0", data0), ("data1", data1)):
        require_tile("tensor_tensor_scan", operand, tensor, core)
    require_same_extent("tensor_tensor_scan", dst=dst, data0=data0, data1=data1)
    require_not_both_psum("tensor_tensor_scan", data0=data0, data1=data1)
    for operand, op in (("op0", op0), ("op1", op1)):
        require_alu("tensor_tensor_scan", operand, op, core)
        if "vector" not in op.engines:
            fail("engine", f"tensor_tensor_scan runs on vector, which does not compute {op!r}")
    require_scalar("tensor_tensor_scan", "initial", initial, data0.shape[0], core)
    price = PRICES["tensor_tensor_scan"](core.arch, facts("vector", dst, data0, data1, op=op0.name))

    def effect() -> None:
        assert op0.alu is not None and op1.alu is not None
        first, second = (np.ascontiguousarray(tensor.f32().T) for tensor in (data0, data1))
        state = np.broadcast_to(np.reshape(scalar_value(initial), -1), first.shape[1:]).astype(np.float32)
        out = np.empty_like(first)
        for i in range(len(first)):
            inner = op0.alu(state, first[i]) if reverse0 else op0.alu(first[i], state)
            state = out[i] = op1.alu(second[i], inner) if reverse1 else op1.alu(inner, second[i])
        write(core, dst, out.T)

    yield Step("vector", price, reads=(data0, data1, *tensors(initial)), writes=(dst,), effect=effect)


_CUMULATIVE_OPS = ("add", "subtract", *_REGISTER_OPS[1:])
_CUMULATIVE_START = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}


@instruction
def tensor_scalar_cumulative(
    core: NeuronCore,
    dst: NkiTensor,
    src: NkiTensor,
    op0: Op,
    op1: Op,
    imm0: Scalar,
    imm1: Scalar = None,
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce,
    name: str | None = None,
) -> Iterator[Step]:
    """r = registers[p]; for f in order: r = op1(op0(src[p, f], imm0[p]), r); dst[p, f] = r; registers[p] = r.

    Operands: dst, src of one extent, no int32 or uint32; imm0, imm1 numbers or float32 [P, 1] tiles.
    reduce_cmd: reset_reduce starts at op1's identity (0 for subtract), load_reduce at imm1, reduce goes on.
    Engines: VectorE. Arithmetic op0; op1 add, subtract, multiply, maximum or minimum.
    Source: NKI ISA reference, tensor_scalar_cumulative.
    """
    for operand, tensor in (("dst", dst), ("src", src)):
        require_tile("tensor_scalar_cumulative", operand, tensor, core)
        require_dtype("tensor_scalar_cumulative", operand, tensor, _CUMULATIVE_DTYPES)
    require_same_extent("tensor_scalar_cumulative", dst=dst, src=src)
    require_alu("tensor_scalar_cumulative", "op0", op0, core)
    if require_op("tensor_scalar_cumulative", "op1", op1).name not in _CUMULATIVE_OPS:
        fail("op-kind", f"tensor_scalar_cumulative takes op1 {', '.join(_CUMULATIVE_OPS)}, got {op1!r}")
    commands = (ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce)
    require_enum("tensor_scalar_cumulative", "reduce_cmd", reduce_cmd, ReduceCmd, *commands)
    require_scalar("tensor_scalar_cumulative", "imm0", imm0, src.shape[0], core)
    if (reduce_cmd is ReduceCmd.load_reduce) != (imm1 is not None):
        fail("reduce-init", f"tensor_scalar_cumulative takes imm1 with load_reduce and only then, got {imm1!r}")
    if imm1 is not None:
        require_scalar("tensor_scalar_cumulative", "imm1", imm1, src.shape[0], core)
    require_registers(core, "tensor_scalar_cumulative", dst, reduce_cmd)
    price = PRICES["tensor_scalar_cumulative"](core.arch, facts("vector", dst, src, op=op0.name))

    def effect() -> None:
        assert op1.alu is not None
        registers = core.accumulators["vector"][lanes(dst)]
        if reduce_cmd is not ReduceCmd.reduce:
            start = scalar_value(imm1) if imm1 is not None else _CUMULATIVE_START[op1.name]
            registers[...] = np.reshape(start, -1)
        values = np.ascontiguousarray(apply_scalar(op0, src.f32(), imm0, False).T)
        state = registers.copy()
        for i in range(len(values)):
            state = values[i] = op1.alu(values[i], state)
        registers[...] = state
        write(core, dst, values.T)

    yield Step("vector", price, reads=(src, *tensors(imm0, imm1)), writes=(dst,), effect=effect)
    core.defined["vector"][lanes(dst)] = True


# ---- batch-norm statistics


@instruction
def bn_stats(core: NeuronCore, dst: NkiTensor, data: NkiTensor, name: str | None = None) -> Iterator[Step]:
    """dst[p] = count, mean, variance * count of the elements of data[p] at even positions, then of those at odd ones.

    Operands: SBUF or PSUM, any dtype; at most 512 elements per partition in, 6 out.
    Engines: VectorE, in float32. Source: NKI ISA reference, bn_stats.
    """
    require_tile("bn_stats", "dst", dst, core)
    require_tile("bn_stats", "data", data, core)
    limit = core.arch.bn_stats_fmax
    if data.free_size > limit:
        hint = "call it on parts of nl.tile_size.bn_stats_fmax elements and join them with bn_aggr"
        fail(
            "bn-stats-limit", f"bn_stats takes at most {limit} elements per partition, data has {data.free_size}", hint
        )
    _require_statistics("bn_stats", dst, data, 6)
    price = PRICES["bn_stats"](core.arch, facts("vector", dst, data))

    def effect() -> None:
        values, out = data.f32(), np.zeros((data.shape[0], 6), np.float32)
        with np.errstate(all="ignore"):
            for column, half in ((0, values[:, 0::2]), (3, values[:, 1::2])):
                if half.shape[1]:
                    mean = half.mean(axis=1, dtype=np.float32, keepdims=True)
                    out[:, column] = half.shape[1]
                    out[:, column + 1] = mean[:, 0]
                    out[:, column + 2] = np.square(half - mean).sum(axis=1)
        write(core, dst, out)

    yield Step("vector", price, reads=(data,), writes=(dst,), effect=effect)


@instruction
def bn_aggr(core: NeuronCore, dst: NkiTensor, data: NkiTensor, name: str | None = None) -> Iterator[Step]:
    """dst[p] = mean, population variance of all groups whose count, mean, variance * count are the triples of data[p].

    Operands: SBUF or PSUM; a multiple of 3 elements per partition in, 2 out.
    Engines: VectorE, in float32. Source: NKI ISA reference, bn_aggr.
    """
    require_tile("bn_aggr", "dst", dst, core)
    require_tile("bn_aggr", "data", data, core)
    if data.free_size % 3:
        fail(
            "bn-aggr-triples",
            f"bn_aggr takes triples of count, mean, variance * count, data has {data.free_size} elements per partition",
        )
    _require_statistics("bn_aggr", dst, data, 2)
    price = PRICES["bn_aggr"](core.arch, facts("vector", dst, data))

    def effect() -> None:
        count, mean, squares = np.moveaxis(data.f32().reshape(data.shape[0], -1, 3), 2, 0)
        with np.errstate(all="ignore"):
            total = count.sum(axis=1, keepdims=True)
            overall = (count * mean).sum(axis=1, keepdims=True) / total
            variance = (squares + count * np.square(mean - overall)).sum(axis=1, keepdims=True) / total
        write(core, dst, np.concatenate([overall, variance], axis=1))

    yield Step("vector", price, reads=(data,), writes=(dst,), effect=effect)


def _require_statistics(name: str, dst: NkiTensor, data: NkiTensor, count: int) -> None:
    if dst.shape[0] != data.shape[0] or dst.free_size != count:
        fail(
            "operand-extent", f"{name} of {data!r} gives {count} elements on {data.shape[0]} partitions, dst is {dst!r}"
        )
