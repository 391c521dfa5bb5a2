"""ScalarE instructions: a function of scaled and biased data, with sums along the way."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernels_neuron.sim import array
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.trace import Price

from .enums import engine as Engine
from .enums import reduce_cmd as ReduceCmd
from .ops import Op
from .prices import PRICES, facts
from .reduce import lanes, require_registers
from .rules import (
    once_per_layout,
    require_enum,
    require_generation,
    require_op,
    require_same_extent,
    require_scalar,
    require_tile,
    require_vector,
)
from .table import instruction
from .vector import choose_engine


@instruction
def activation(
    core: NeuronCore,
    dst: NkiTensor,
    op: Op,
    data: NkiTensor,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Op | None = None,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    engine: Engine = Engine.scalar,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = op(data * scale + bias) in float32, and optionally the running sum of each partition's results.

    Operands: dst, data in SBUF or PSUM, one extent. scale: number or [P, 1] float32. bias: [P, 1] of any dtype but
    tfloat32, or a number from trn2 on. reduce_cmd: reset zeroes the engine's accumulators, reduce adds this row sum,
    reset_reduce replaces by it; reduce_res [P, 1] reads them out, which is a step of its own.
    Engines: ScalarE; GpSimdE from NKI 0.7 and trn3 on, without accumulators.
    Source: NKI ISA reference, activation (its pseudo-code adds the old value twice on reduce; the text is followed).
    """
    _check(core, "activation", dst, op, data, bias, scale)
    runs_on = _on("activation", core, engine, reduce_cmd, dst, data, bias, scale, reduce_res)
    _check_reduction("activation", core, dst, reduce_op, reduce_res, reduce_cmd)
    yield from _steps(core, "activation", runs_on, dst, op, data, bias, scale, reduce_res, reduce_cmd)


@instruction
def activation_reduce(
    core: NeuronCore,
    dst: NkiTensor,
    op: Op,
    data: NkiTensor,
    reduce_op: Op,
    reduce_res: NkiTensor | None,
    bias: Any = None,
    scale: Any = 1.0,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = op(data * scale + bias), reduce_res[p] = sum over the free axis of the results.

    As activation with reduce_cmd reset_reduce; reduce_res may be None inside a chain.
    Source: NKI ISA reference, activation_reduce.
    """
    _check(core, "activation_reduce", dst, op, data, bias, scale)
    command = ReduceCmd.reset_reduce
    _check_reduction("activation_reduce", core, dst, reduce_op, reduce_res, command)
    yield from _steps(core, "activation_reduce", "scalar", dst, op, data, bias, scale, reduce_res, command)


@once_per_layout
def _check(core: NeuronCore, name: str, dst: NkiTensor, op: Op, data: NkiTensor, bias: Any, scale: Any) -> None:
    require_tile(name, "dst", dst, core)
    require_tile(name, "data", data, core)
    require_same_extent(name, dst=dst, data=data)
    if require_op(name, "op", op).act is None:
        fail("activation-function", f"ScalarE has no function {op!r}", "see the table of activation functions")
    if isinstance(scale, NkiTensor):
        require_tile(name, "scale", scale, core)
        require_vector(name, "scale", scale, data.shape[0])
        if scale.dtype != "float32":
            fail("operand-dtype", f"{name} takes scale in float32, got {scale.dtype}")
    elif not isinstance(scale, (int, float, np.integer, np.floating)):
        fail("operand-type", f"{name} takes scale as a number or a [{data.shape[0]}, 1] tile, got {scale!r}")
    _check_bias(core, name, op, bias, data.shape[0])


def _check_bias(core: NeuronCore, name: str, op: Op, bias: Any, partitions: int) -> None:
    if bias is None:
        return
    if core.arch.generation < 3 and op.name == "reciprocal":
        fail("activation-bias", f"{name} of reciprocal takes no bias on {core.arch.name}")
    if isinstance(bias, NkiTensor):
        require_tile(name, "bias", bias, core)
        require_vector(name, "bias", bias, partitions)
        if bias.dtype == "tfloat32":
            fail("operand-dtype", f"{name} takes bias of any dtype but tfloat32")
    elif isinstance(bias, (int, float, np.integer, np.floating)):
        require_generation(name, core, 3, f"{name} with a number as bias")
    else:
        fail("operand-type", f"{name} takes bias as a number or a [{partitions}, 1] tile, got {bias!r}")


def _check_reduction(
    name: str,
    core: NeuronCore,
    dst: NkiTensor,
    reduce_op: Op | None,
    reduce_res: NkiTensor | None,
    command: ReduceCmd,
    allowed: Sequence[str] = ("add",),
) -> None:
    require_enum(name, "reduce_cmd", command, ReduceCmd)
    if command is ReduceCmd.load_reduce:
        fail("reduce-command", f"{name} takes reduce_cmd idle, reset, reduce or reset_reduce")
    if reduce_op is not None and require_op(name, "reduce_op", reduce_op).name not in allowed:
        fail("reduce-op", f"{name} reduces with {', '.join(f'nl.{op}' for op in allowed)}, got {reduce_op!r}")
    if command in (ReduceCmd.reduce, ReduceCmd.reset_reduce) and reduce_op is None:
        fail("reduce-op", f"{name} with reduce_cmd {command.name} needs reduce_op")
    require_registers(core, name, dst, command, "scalar")
    if reduce_res is not None:
        require_tile(name, "reduce_res", reduce_res, core)
        require_vector(name, "reduce_res", reduce_res, dst.shape[0])
        if command is ReduceCmd.idle:
            require_registers(core, name, dst, command, "scalar", "reads")


def _on(name: str, core: NeuronCore, engine: Engine, command: ReduceCmd, *operands: Any) -> str:
    """The engine that runs the function: ScalarE, or GpSimdE from trn3 on, which has no registers and no PSUM."""
    require_enum(name, "engine", engine, Engine, Engine.scalar, Engine.gpsimd)
    if engine is Engine.scalar:
        return "scalar"
    require_generation(name, core, 4, f"{name} on gpsimd")
    if command is not ReduceCmd.idle:
        fail("reduce-command", f"{name} on gpsimd has no accumulator registers, got reduce_cmd {command.name}")
    choose_engine(name, core, engine, ("gpsimd",), *[value for value in operands if isinstance(value, NkiTensor)])
    return "gpsimd"


def _steps(
    core: NeuronCore,
    name: str,
    engine: str,
    dst: NkiTensor,
    op: Op,
    data: NkiTensor,
    bias: Any,
    scale: Any,
    reduce_res: NkiTensor | None,
    command: ReduceCmd,
) -> Iterator[Step]:
    accumulators = core.accumulators["scalar"][lanes(dst)]

    def effect() -> None:
        with np.errstate(all="ignore"):
            values = data.f32() * _number_or_column(scale)
            if bias is not None:
                values = values + _number_or_column(bias)
        result = op.act(np.asarray(values, np.float32))  # type: ignore[misc]
        if command in (ReduceCmd.reset, ReduceCmd.reset_reduce):
            accumulators[...] = 0
        if command in (ReduceCmd.reduce, ReduceCmd.reset_reduce):
            with np.errstate(all="ignore"):
                accumulators[...] += result.sum(axis=1, dtype=np.float32)
        array.store(dst.target(), result, dst.dtype, core.switches["fp8_overflow"])

    columns = [operand for operand in (bias, scale) if isinstance(operand, NkiTensor)]
    price = _price(core, name, engine, dst, data, op, bool(columns))
    yield Step(engine, price, reads=(data, *columns), writes=(dst,), effect=effect)
    _define(core, dst, command)
    if reduce_res is not None:
        yield _readout(core, reduce_res, accumulators)


@once_per_layout
def _price(core: NeuronCore, name: str, engine: str, dst: NkiTensor, data: NkiTensor, op: Op, pointer: bool) -> Price:
    return PRICES[name](core.arch, facts(engine, dst, data, op=op.name, pointer=pointer))


def _define(core: NeuronCore, dst: NkiTensor, command: ReduceCmd) -> None:
    """The registers of dst's partitions hold a value from a reset or reduction on."""
    if command is not ReduceCmd.idle:
        core.defined["scalar"][lanes(dst)] = True


def _readout(core: NeuronCore, reduce_res: NkiTensor, accumulators: np.ndarray) -> Step:
    """The extra step that copies ScalarE's registers into `reduce_res`."""

    def effect() -> None:
        array.store(reduce_res.target(), accumulators.copy(), reduce_res.dtype, core.switches["fp8_overflow"])

    price = PRICES["reduce_readout"](core.arch, facts("scalar", reduce_res))
    return Step("scalar", price, writes=(reduce_res,), effect=effect)


def _number_or_column(operand: Any) -> Any:
    return operand.f32() if isinstance(operand, NkiTensor) else np.float32(operand)


# ---- activate2

_PAIRS = (
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
)
_REDUCE2 = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf, "abs_max": 0.0, "abs_min": np.inf}


@instruction
def activate2(
    core: NeuronCore,
    dst: NkiTensor,
    op: Op,
    data: NkiTensor,
    imm0: Any,
    imm1: Any,
    op0: Op,
    op1: Op,
    relu_param: Any = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: Op | None = None,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    engine: Engine = Engine.scalar,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = op(op1(op0(data, imm0), imm1), relu_param) in float32, and optionally a running reduction of each row.

    Operands: dst, data in SBUF or PSUM, one extent; imm0, imm1, relu_param numbers or [P, 1] tiles, two tiles of one
    dtype. (op0, op1): multiply and add, subtract or bypass; add, subtract or bypass with bypass. reverse0, reverse1
    swap the sides of an operator that is not bypass. op: a ScalarE function, or prelu with its slope in relu_param.
    reduce_op: add, maximum, minimum, abs_max or abs_min; reduce_cmd as activation, starting at its identity.
    trn3 on. Engines: ScalarE; GpSimdE from NKI 0.7 on, without accumulators. Source: NKI ISA reference, activate2.
    """
    require_generation("activate2", core, 4)
    require_tile("activate2", "dst", dst, core)
    require_tile("activate2", "data", data, core)
    require_same_extent("activate2", dst=dst, data=data)
    if require_op("activate2", "op", op).act is None and op.name not in ("prelu", "bypass"):
        fail("activation-function", f"ScalarE has no function {op!r}", "see the table of activation functions")
    pair = (require_op("activate2", "op0", op0).name, require_op("activate2", "op1", op1).name)
    if pair not in _PAIRS:
        fail("op-kind", f"activate2 takes op0 and op1 of {', '.join(' and '.join(p) for p in _PAIRS)}, got {pair}")
    if (reverse0 and pair[0] == "bypass") or (reverse1 and pair[1] == "bypass"):
        fail("reverse", f"activate2 reverses operators, not nl.bypass, got op0={op0!r} and op1={op1!r}")
    _check_immediates(core, data.shape[0], imm0=imm0, imm1=imm1, relu_param=relu_param)
    runs_on = _on("activate2", core, engine, reduce_cmd, dst, data, imm0, imm1, relu_param, reduce_res)
    _check_reduction("activate2", core, dst, reduce_op, reduce_res, reduce_cmd, tuple(_REDUCE2))
    if reduce_cmd is ReduceCmd.reset and reduce_op is None:
        fail("reduce-op", "activate2 with reduce_cmd reset needs reduce_op, which says what to reset to")
    columns = [operand for operand in (imm0, imm1, relu_param) if isinstance(operand, NkiTensor)]
    accumulators = core.accumulators["scalar"][lanes(dst)]

    def effect() -> None:
        values = _apply2(op0, data.f32(), imm0, reverse0)
        values = _apply2(op1, values, imm1, reverse1)
        if op.name == "prelu":
            values = np.where(values >= 0, values, values * _number_or_column(relu_param))
        elif op.name != "bypass":
            values = op.act(np.asarray(values, np.float32))  # type: ignore[misc]
        values = values.astype(np.float32, copy=False)
        if reduce_op is not None:
            _reduce2(accumulators, values, reduce_op, reduce_cmd)
        array.store(dst.target(), values, dst.dtype, core.switches["fp8_overflow"])

    price = PRICES["activate2"](core.arch, facts(runs_on, dst, data, op=op.name, pointer=bool(columns)))
    yield Step(runs_on, price, reads=(data, *columns), writes=(dst,), effect=effect)
    _define(core, dst, reduce_cmd)
    if reduce_res is not None:
        yield _readout(core, reduce_res, accumulators)


def _check_immediates(core: NeuronCore, partitions: int, **operands: Any) -> None:
    tiles = {}
    for operand, value in operands.items():
        require_scalar("activate2", operand, value, partitions, core, None)
        if isinstance(value, NkiTensor):
            tiles[operand] = value.dtype
    if len(set(tiles.values())) > 1:
        fail("operand-dtype", f"activate2 takes tiles of one dtype as immediates, got {tiles}")


def _apply2(op: Op, data: np.ndarray, operand: Any, reverse: bool) -> np.ndarray:
    if op.name == "bypass":
        return data
    assert op.alu is not None
    value = _number_or_column(operand)
    return op.alu(value, data) if reverse else op.alu(data, value)


def _reduce2(accumulators: np.ndarray, values: np.ndarray, op: Op, command: ReduceCmd) -> None:
    if command in (ReduceCmd.reset, ReduceCmd.reset_reduce):
        accumulators[...] = _REDUCE2[op.name]
    if command in (ReduceCmd.reduce, ReduceCmd.reset_reduce):
        if op.name in ("abs_max", "abs_min"):
            # the signed value of the largest or smallest magnitude
            place = (np.argmax if op.name == "abs_max" else np.argmin)(np.abs(values), axis=1)
            row = values[np.arange(len(values)), place]
            assert op.alu is not None
            accumulators[...] = op.alu(row, accumulators)
        else:
            assert op.reduce is not None
            accumulators[...] = op.reduce(accumulators, op.reduce.reduce(values, axis=1))
