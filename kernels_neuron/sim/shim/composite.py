"""nki.language functions that take several instructions. Which ones the compiler issues is not documented."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from kernels_neuron.dtypes import ROWS
from kernels_neuron.sim.context import current_core
from kernels_neuron.sim.isa import TABLE
from kernels_neuron.sim.isa.ops import OPS
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.tensor import NkiTensor

from .elementwise import FUNCTIONS, mean, new_like

_TWO_PI = 2 * math.pi


def _with(data: NkiTensor, op: str, operand: Any, dtype: Any = "float32") -> NkiTensor:
    """op(data, operand) by tensor_tensor or tensor_scalar: a new tile."""
    result = new_like(data, dtype)
    if isinstance(operand, NkiTensor):
        TABLE["tensor_tensor"](dst=result, data1=data, data2=operand, op=OPS[op])
    else:
        TABLE["tensor_scalar"](dst=result, data=data, op0=OPS[op], operand0=operand)
    return result


def _activate(op: str, data: NkiTensor, dtype: Any = "float32") -> NkiTensor:
    result = new_like(data, dtype)
    TABLE["activation"](dst=result, op=OPS[op], data=data)
    return result


def _axes(x: NkiTensor, axis: Any) -> list[int]:
    axes = [axis] if isinstance(axis, int) else list(axis)
    return [a % x.ndim for a in axes]


def _stretched(kept: NkiTensor, like: NkiTensor) -> NkiTensor:
    """A reduction that kept its dims, repeated over the reduced ones."""
    for dim, size in enumerate(like.shape):
        if kept.shape[dim] != size:
            kept = kept.broadcast(dim, size)
    return kept


# ---- reductions


def var(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The population variance over trailing free axes, in float32; the dims are always kept."""
    axes = _axes(x, axis)
    middle = mean(x, axes, "float32", keepdims=True)
    away = _with(x, "subtract", _stretched(middle, x))
    return mean(_with(away, "multiply", away), axes, x.dtype if dtype is None else dtype, keepdims=True)


def all_(x: NkiTensor, axis: Any, dtype: Any = None) -> NkiTensor:
    """1 where every element over trailing free axes is not 0, else 0."""
    return FUNCTIONS["min"](_with(x, "not_equal", 0.0, x.dtype), axis, dtype)


# ---- composites


def softmax(x: NkiTensor, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """exp(x - max) / sum of it, over trailing free axes, in float32."""
    axes = _axes(x, axis)
    most = FUNCTIONS["max"](x, axes, "float32", keepdims=True)
    power = _activate("exp", _with(x, "subtract", _stretched(most, x)))
    total = FUNCTIONS["sum"](power, axes, "float32", keepdims=True)
    inverse = new_like(total)
    TABLE["reciprocal"](dst=inverse, data=total)
    return _with(power, "multiply", _stretched(inverse, x), x.dtype if dtype is None else dtype)


def rms_norm(
    x: NkiTensor,
    w: NkiTensor,
    axis: Any,
    n: int,
    epsilon: float = 1e-06,
    dtype: Any = None,
    compute_dtype: Any = None,
) -> NkiTensor:
    """x / sqrt(sum(x * x) / n + epsilon) * w over trailing free axes; where epsilon goes is a switch."""
    kind = "float32" if compute_dtype is None else compute_dtype
    axes = _axes(x, axis)
    squares = FUNCTIONS["sum"](_with(x, "multiply", x, kind), axes, "float32", keepdims=True)
    inside = current_core("nl.rms_norm").switches["rms_norm_epsilon"] == "inside"
    root, shifted = new_like(squares), new_like(squares)
    TABLE["tensor_scalar"](
        dst=shifted, data=squares, op0=OPS["multiply"], operand0=1.0 / n, op1=OPS["add"], operand1=epsilon * inside
    )
    TABLE["activation"](dst=root, op=OPS["sqrt"], data=shifted)
    if not inside:
        root = _with(root, "add", epsilon)
    inverse = new_like(root)
    TABLE["reciprocal"](dst=inverse, data=root)
    normed = _with(x, "multiply", _stretched(inverse, x), kind)
    return _with(normed, "multiply", w, x.dtype if dtype is None else dtype)


def where(condition: NkiTensor, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x where condition is not 0, else y; x and y tiles of condition's shape, or numbers."""
    given = next((operand for operand in (x, y) if isinstance(operand, NkiTensor)), condition)
    result = new_like(condition, given.dtype if dtype is None else dtype)
    take = _with(condition, "not_equal", 0.0, "uint8")
    if isinstance(y, NkiTensor):
        TABLE["tensor_copy"](dst=result, src=y)
    else:
        TABLE["memset"](dst=result, value=y)
    if isinstance(x, NkiTensor) and x.dtype != result.dtype:
        cast = new_like(result)
        TABLE["tensor_copy"](dst=cast, src=x)
        x = cast
    TABLE["tensor_copy_predicated"](dst=result, src=x, predicate=take)
    return result


# ---- functions without an instruction of their own


def _rounded(x: NkiTensor) -> NkiTensor:
    """x to the nearest integer, as float32, through an int32 tile."""
    whole = new_like(x, "int32")
    TABLE["tensor_copy"](dst=whole, src=x)
    back = new_like(x, "float32")
    TABLE["tensor_copy"](dst=back, src=whole)
    return back


def floor(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The greatest integer up to x, for x within int32."""
    near = _rounded(x)
    return _with(near, "subtract", _with(near, "greater", x), x.dtype if dtype is None else dtype)


def ceil(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The least integer from x on, for x within int32."""
    near = _rounded(x)
    return _with(near, "add", _with(near, "less", x), x.dtype if dtype is None else dtype)


def trunc(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """x without its fraction, for x within int32."""
    size = _activate("abs", x)
    near = _rounded(size)
    whole = _with(near, "subtract", _with(near, "greater", size))
    return _with(whole, "multiply", _activate("sign", x), x.dtype if dtype is None else dtype)


def _reduced_sin(x: NkiTensor, shift: float, dtype: Any) -> NkiTensor:
    """sin(x + shift), x brought into [-pi, pi] before the function table."""
    turned = new_like(x, "float32")
    TABLE["tensor_scalar"](dst=turned, data=x, op0=OPS["add"], operand0=shift)
    turns = _rounded(_with(turned, "multiply", 1 / _TWO_PI))
    inside = new_like(x, "float32")
    TABLE["scalar_tensor_tensor"](
        dst=inside, data=turns, op0=OPS["multiply"], operand0=-_TWO_PI, op1=OPS["add"], operand1=turned
    )
    return _activate("sin", inside, x.dtype if dtype is None else dtype)


def sin(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """sin x for every x: the argument is brought into [-pi, pi] first."""
    return _reduced_sin(x, 0.0, dtype)


def cos(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """cos x, as sin(x + pi / 2)."""
    return _reduced_sin(x, math.pi / 2, dtype)


def tan(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """tan x, as sin x / cos x."""
    inverse = new_like(x, "float32")
    TABLE["reciprocal"](dst=inverse, data=_reduced_sin(x, math.pi / 2, "float32"))
    return _with(_reduced_sin(x, 0.0, "float32"), "multiply", inverse, x.dtype if dtype is None else dtype)


def logical_not(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """x XOR 1, which is `not x` for 0 and 1 and for nothing else."""
    if ROWS[x.dtype].is_integer:
        return _with(x, "bitwise_xor", 1, x.dtype if dtype is None else dtype)
    return _with(x, "equal", 0.0, x.dtype if dtype is None else dtype)


def dropout(x: NkiTensor, rate: Any, dtype: Any = None) -> NkiTensor:
    """x with each element set to 0 with probability `rate`."""
    result = new_like(x, dtype)
    TABLE["dropout"](dst=result, data=x, prob=rate)
    return result


def _absent(name: str, instead: str) -> Callable[..., Any]:
    def refuse(x: Any, y: Any, dtype: Any = None) -> Any:
        fail("not-on-device", f"nl.{name} has no instruction on any chip", instead)

    refuse.__name__ = name
    refuse.instead = instead  # type: ignore[attr-defined]  # read where the function stands for an operator
    refuse.__doc__ = f"Documented, and refused: the device has no {name}."
    return refuse


divide = _absent("divide", "multiply by nl.reciprocal(y)")
mod = _absent("mod", "subtract nl.floor(x * reciprocal(y)) * y")
fmod = _absent("fmod", "subtract nl.trunc(x * reciprocal(y)) * y")


# ---- movement and creation


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """result[p, i] = data[p, indices[p, i]], the free dims of data read as one."""
    if axis != 0:
        fail("not-simulated", f"nl.gather_flattened with axis={axis} is not supported by this simulator", "use axis=0")
    gathered = current_core("nl.gather_flattened").allocate(indices.shape, data.dtype, MemoryRegion.sbuf)
    TABLE["nc_n_gather"](dst=gathered, data=data, indices=indices)
    if dtype is None or gathered.dtype == dtype:
        return gathered
    result = new_like(gathered, dtype)
    TABLE["tensor_copy"](dst=result, src=gathered)
    return result


def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the transpose of a 2-D HBM view: element by element, so much slower than a load."""
    if src.ndim != 2:
        fail("operand-rank", f"nl.load_transpose2d takes a 2-D tensor, got {src!r}")
    turned = src.permute((1, 0))
    tile = current_core("nl.load_transpose2d").allocate(turned.shape, dtype or src.dtype, MemoryRegion.sbuf)
    TABLE["dma_copy"](dst=tile, src=turned)
    return tile


def rand(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """A new tile of uniform values from 0 to 1: rand2 on trn3, random bits scaled before."""
    core = current_core("nl.rand")
    tile = core.allocate(shape, dtype, buffer, name)
    if core.arch.generation >= 4:
        TABLE["rand2"](dst=tile, min=0.0, max=1.0)
        return tile
    bits = core.allocate(shape, "uint32", MemoryRegion.sbuf)
    TABLE["rng"](dst=bits)
    upper = core.allocate(shape, "uint32", MemoryRegion.sbuf)
    # 24 bits, which float32 holds exactly
    TABLE["tensor_scalar"](dst=upper, data=bits, op0=OPS["right_shift"], operand0=8)
    TABLE["tensor_scalar"](dst=tile, data=upper, op0=OPS["multiply"], operand0=2.0**-24)
    return tile


def random_seed(seed: NkiTensor) -> None:
    """Restart VectorE's random numbers from a [1, 1] tile."""
    TABLE["set_rng_seed"](src_seeds=seed)


COMPOSITES: dict[str, Callable[..., Any]] = {
    "all": all_,
    "ceil": ceil,
    "cos": cos,
    "divide": divide,
    "dropout": dropout,
    "floor": floor,
    "fmod": fmod,
    "gather_flattened": gather_flattened,
    "load_transpose2d": load_transpose2d,
    "logical_not": logical_not,
    "mod": mod,
    "rand": rand,
    "random_seed": random_seed,
    "rms_norm": rms_norm,
    "softmax": softmax,
    "tan": tan,
    "trunc": trunc,
    "var": var,
    "where": where,
}
