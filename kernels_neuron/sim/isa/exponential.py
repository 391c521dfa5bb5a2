"""trn3's exponential on VectorE, with the running sum that softmax needs."""

from collections.abc import Iterator

import numpy as np

from kernels_neuron.dtypes import ROWS
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor

from .enums import reduce_cmd as ReduceCmd
from .ops import OPS
from .prices import PRICES, facts
from .reduce import accumulate, accumulated, lanes, readout, require_registers, require_result
from .rules import require_dtype, require_enum, require_generation, require_same_extent, require_scalar, require_tile
from .table import instruction
from .vector import Scalar, scalar_value, tensors, write

_MAX_DIMS = 4
_DST = tuple(
    name
    for name, row in ROWS.items()
    if row.kind in ("float", "int", "uint") and name not in ("uint32", "float8_e8m0fnu")
)
_SRC = tuple(name for name in (*_DST, "uint32") if name != "tfloat32")


@instruction
def exponential(
    core: NeuronCore,
    dst: NkiTensor,
    src: NkiTensor,
    max_value: Scalar = 0.0,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    reduce_init: Scalar = 0.0,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = exp(src - max_value[p]); registers[p] += sum of dst[p, :], unless reduce_cmd is idle.

    Operands: dst, src in SBUF or PSUM of one extent, at most 4-D; max_value a number or a float32 [P, 1] tile;
    reduce_res a float [P, 1] tile. reduce_cmd: idle leaves no defined value in the registers, reset_reduce starts at 0,
    load_reduce at reduce_init, reduce goes on. trn3 on. Engines: VectorE.
    Source: NKI ISA reference, exponential.
    """
    require_generation("exponential", core, 4)
    for operand, tensor, dtypes in (("dst", dst, _DST), ("src", src, _SRC)):
        require_tile("exponential", operand, tensor, core)
        require_dtype("exponential", operand, tensor, dtypes)
        if tensor.ndim > _MAX_DIMS:
            fail("operand-rank", f"exponential takes {operand} of at most {_MAX_DIMS} dims, got {tensor!r}")
    require_same_extent("exponential", dst=dst, src=src)
    partitions = src.shape[0]
    require_scalar("exponential", "max_value", max_value, partitions, core)
    require_scalar("exponential", "reduce_init", reduce_init, partitions, core)
    commands = (ReduceCmd.idle, ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce)
    require_enum("exponential", "reduce_cmd", reduce_cmd, ReduceCmd, *commands)
    if reduce_cmd is not ReduceCmd.load_reduce and (isinstance(reduce_init, NkiTensor) or reduce_init != 0):
        fail("reduce-init", f"exponential takes reduce_init with load_reduce and only then, got {reduce_init!r}")
    require_result("exponential", core, reduce_res, partitions)
    if reduce_res is not None and reduce_cmd is ReduceCmd.idle:
        fail("reduce-idle", "exponential with reduce_cmd idle has no result for reduce_res", "use reset_reduce")
    require_registers(core, "exponential", dst, reduce_cmd)
    pointers = tensors(max_value, reduce_init)
    price = PRICES["exponential"](core.arch, facts("vector", dst, src, pointer=bool(pointers)))

    def effect() -> None:
        exp = OPS["exp"].act
        assert exp is not None
        start = np.broadcast_to(scalar_value(reduce_init), (partitions, 1))
        values = exp(np.subtract(src.f32(), scalar_value(max_value), dtype=np.float32))
        write(core, dst, values)
        if reduce_cmd is not ReduceCmd.idle:
            accumulate(core, dst, OPS["add"], reduce_cmd, accumulated(core, values, dst), start)

    yield Step("vector", price, reads=(src, *pointers), writes=(dst,), effect=effect)
    core.defined["vector"][lanes(dst)] = reduce_cmd is not ReduceCmd.idle
    if reduce_res is not None:
        yield readout(core, dst, reduce_res)
