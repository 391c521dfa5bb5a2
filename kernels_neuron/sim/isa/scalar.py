"""ScalarE instructions: a function of scaled and biased data, with sums along the way."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels_neuron.sim import array
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor

from .enums import reduce_cmd as ReduceCmd
from .ops import Op
from .prices import PRICES, facts
from .rules import require_generation, require_op, require_same_extent, require_tile, require_vector
from .table import instruction


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
    name: str | None = None,
) -> Iterator[Step]:
    """dst = op(data * scale + bias) in float32, and optionally the running sum of each partition's results.

    Operands: dst, data in SBUF or PSUM, one extent. scale: number or [P, 1] float32. bias: [P, 1] of any dtype but
    tfloat32, or a number from trn2 on. reduce_cmd: reset zeroes the engine's accumulators, reduce adds this row sum,
    reset_reduce replaces by it; reduce_res [P, 1] reads them out, which is a step of its own.
    Source: NKI ISA reference, activation (its pseudo-code adds the old value twice on reduce; the text is followed).
    """
    _check(core, "activation", dst, op, data, bias, scale)
    _check_reduction("activation", core, data, reduce_op, reduce_res, reduce_cmd)
    yield from _steps(core, "activation", dst, op, data, bias, scale, reduce_res, reduce_cmd)


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
    _check_reduction("activation_reduce", core, data, reduce_op, reduce_res, ReduceCmd.reset_reduce)
    yield from _steps(core, "activation_reduce", dst, op, data, bias, scale, reduce_res, ReduceCmd.reset_reduce)


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
    elif not isinstance(scale, (int, float)):
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
    elif isinstance(bias, (int, float)):
        require_generation(name, core, 3, f"{name} with a number as bias")
    else:
        fail("operand-type", f"{name} takes bias as a number or a [{partitions}, 1] tile, got {bias!r}")


def _check_reduction(
    name: str, core: NeuronCore, data: NkiTensor, reduce_op: Op | None, reduce_res: NkiTensor | None, command: ReduceCmd
) -> None:
    if command is ReduceCmd.load_reduce:
        fail("reduce-command", f"{name} takes reduce_cmd idle, reset, reduce or reset_reduce")
    if reduce_op is not None and reduce_op.name != "add":
        fail("reduce-op", f"{name} reduces with nl.add, got {reduce_op!r}")
    if command in (ReduceCmd.reduce, ReduceCmd.reset_reduce) and reduce_op is None:
        fail("reduce-op", f"{name} with reduce_cmd {command.name} needs reduce_op=nl.add")
    if reduce_res is not None:
        require_tile(name, "reduce_res", reduce_res, core)
        require_vector(name, "reduce_res", reduce_res, data.shape[0])


def _steps(
    core: NeuronCore,
    name: str,
    dst: NkiTensor,
    op: Op,
    data: NkiTensor,
    bias: Any,
    scale: Any,
    reduce_res: NkiTensor | None,
    command: ReduceCmd,
) -> Iterator[Step]:
    accumulators = core.accumulators["scalar"][: data.shape[0]]

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
        array.store(dst.array(), result, dst.dtype, core.switches["fp8_overflow"])

    columns = [operand for operand in (bias, scale) if isinstance(operand, NkiTensor)]
    price = PRICES[name](core.arch, facts("scalar", dst, data, op=op.name, pointer=bool(columns)))
    yield Step("scalar", price, reads=(data, *columns), writes=(dst,), effect=effect)
    if reduce_res is not None:
        readout = PRICES["reduce_readout"](core.arch, facts("scalar", reduce_res))
        yield Step(
            "scalar",
            readout,
            writes=(reduce_res,),
            effect=lambda: array.store(
                reduce_res.array(), accumulators.copy(), reduce_res.dtype, core.switches["fp8_overflow"]
            ),
        )


def _number_or_column(operand: Any) -> Any:
    return operand.f32() if isinstance(operand, NkiTensor) else np.float32(operand)
