"""nki.language functions built from instructions: each allocates its result and issues what a kernel could write."""

from collections.abc import Callable, Sequence
from typing import Any

from kernels_neuron.sim.context import current_core
from kernels_neuron.sim.isa import TABLE
from kernels_neuron.sim.isa.ops import OPS, Op
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.versions import ARGUMENTS, require_version


def new_like(like: NkiTensor, dtype: Any = None, buffer: MemoryRegion = MemoryRegion.sbuf) -> NkiTensor:
    """A new unwritten tile of `like`'s shape, and of its dtype unless told otherwise."""
    return current_core("nki.language").allocate(like.shape, like.dtype if dtype is None else dtype, buffer)


def apply(op: Op, *operands: Any, dtype: Any = None) -> NkiTensor:
    """op(x) or op(x, y): a new SBUF tile. Tiles have equal shapes, or y (or x) is a Python number."""
    if len(operands) == 1 and op.name == "copy":
        return copy(operands[0], dtype)
    if op.name == "sin":
        from .composite import sin

        return sin(operands[0], dtype)
    if op.act is not None and len(operands) == 1 and op.name != "rsqrt":
        result = new_like(operands[0], dtype)
        TABLE["activation"](dst=result, op=op, data=operands[0])
        return result
    if op.alu is None or len(operands) != (1 if op.unary else 2):
        fail("op-call", f"{op!r} cannot be called with {len(operands)} operands")
    tiles = [operand for operand in operands if isinstance(operand, NkiTensor)]
    if not tiles:
        fail("operand-type", f"{op!r} takes at least one tile")
    result = new_like(tiles[0], dtype)
    if len(tiles) == len(operands) == 2:
        TABLE["tensor_tensor"](dst=result, data1=operands[0], data2=operands[1], op=op)
    else:
        scalar = next((operand for operand in operands if not isinstance(operand, NkiTensor)), None)
        TABLE["tensor_scalar"](
            dst=result, data=tiles[0], op0=op, operand0=scalar, reverse0=len(operands) == 2 and operands[1] is tiles[0]
        )
    return result


def full(
    shape: Sequence[int], fill_value: float, dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = ""
) -> NkiTensor:
    """A new tile filled with one value."""
    tile = current_core("nl.full").allocate(shape, dtype, buffer, name)
    TABLE["memset"](dst=tile, value=fill_value)
    return tile


def zeros(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """A new tile of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """A new tile of ones."""
    return full(shape, 1, dtype, buffer, name)


def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the values of an HBM view of at most 128 rows."""
    tile = new_like(src, dtype)
    TABLE["dma_copy"](dst=tile, src=src)
    return tile


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Write an SBUF tile to HBM."""
    TABLE["dma_copy"](dst=dst, src=value)


def copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF copy of a tile."""
    result = new_like(x, dtype)
    TABLE["tensor_copy"](dst=result, src=x)
    return result


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """x.T of a 2-D SBUF tile, in PSUM."""
    core = current_core("nl.transpose")
    result = core.allocate((x.free_size, x.shape[0]), x.dtype if dtype is None else dtype, MemoryRegion.psum)
    TABLE["nc_transpose"](dst=result, data=x)
    return result


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """x.T @ y in PSUM; only transpose_x=True exists on the device."""
    if not transpose_x:
        fail(
            "not-simulated",
            "nl.matmul with transpose_x=False is listed as unsupported",
            "pass x transposed and transpose_x=True",
        )
    result = current_core("nl.matmul").allocate((x.free_size, y.free_size), "float32", MemoryRegion.psum)
    TABLE["nc_matmul"](dst=result, stationary=x, moving=y)
    return result


def broadcast_to(x: NkiTensor, shape: Sequence[int], dtype: Any = None) -> NkiTensor:
    """x with its dims of size 1 repeated; x itself where the shape is equal already.

    Free dims become a view with stride 0. The partition axis of an SBUF tile is repeated by a product with ones.
    """
    if len(shape) != x.ndim:
        fail("view-broadcast", f"nl.broadcast_to takes a shape of {x.ndim} dims for {x!r}, got {list(shape)}")
    if x.on_chip and x.shape[0] == 1 and shape[0] != 1:
        x = _over_partitions(x, shape[0])
    for dim, size in enumerate(shape):
        if x.shape[dim] != size:
            x = x.broadcast(dim, size)
    if dtype is None or x.dtype == dtype:
        return x
    result = new_like(x, dtype)
    TABLE["tensor_copy"](dst=result, src=x)
    return result


def _over_partitions(x: NkiTensor, partitions: int) -> NkiTensor:
    core = current_core("nl.broadcast_to")
    result = core.allocate((partitions, *x.shape[1:]), x.dtype, MemoryRegion.sbuf)
    row, target = x.reshape((1, x.free_size)), result.reshape((partitions, x.free_size))
    one = full((1, partitions), 1, x.dtype)
    bank = core.arch.psum_bank_bytes // 4
    for start in range(0, x.free_size, bank):
        size = min(bank, x.free_size - start)
        product = core.allocate((partitions, size), "float32", MemoryRegion.psum)
        TABLE["nc_matmul"](dst=product, stationary=one, moving=row[:, start : start + size])
        TABLE["tensor_copy"](dst=target[:, start : start + size], src=product)
    return result


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """A view of x with a new dim of size 1."""
    return x.expand_dim(axis)


def negative(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """-x."""
    return apply(OPS["multiply"], x, -1.0, dtype=dtype)


def _reduction(op: Op, negate: bool = False) -> Callable[..., NkiTensor]:
    def reduce(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
        axes = [axis] if isinstance(axis, int) else list(axis)
        kept = [size for dim, size in enumerate(x.shape) if dim not in axes]
        shape = [1 if dim in axes else size for dim, size in enumerate(x.shape)] if keepdims or len(kept) < 2 else kept
        result = current_core("nki.language").allocate(shape, x.dtype if dtype is None else dtype, MemoryRegion.sbuf)
        TABLE["tensor_reduce"](dst=result, op=op, data=x, axis=tuple(axes), negate=negate)
        return result

    reduce.__doc__ = f"{op.name} over trailing free axes: a new SBUF tile."
    return reduce


def mean(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The mean over trailing free axes, summed and divided in float32: a new SBUF tile."""
    total = FUNCTIONS["sum"](x, axis, dtype="float32", keepdims=keepdims)
    result = new_like(total, x.dtype if dtype is None else dtype)
    scale = total.size / x.size
    TABLE["tensor_scalar"](dst=result, data=total, op0=OPS["multiply"], operand0=scale)
    return result


# what dma_transpose can make of x
_TRANSPOSED = ((1, 0), (2, 1, 0), (3, 1, 2, 0))


def empty_like(
    x: Any,
    dtype: Any = None,
    buffer: MemoryRegion | None = None,
    name: str = "",
    *,
    transpose_axes: tuple[int, ...] | None = None,
    address: tuple[int, int] | None = None,
) -> Any:
    """A new unwritten tensor or grid of x's shape, and of its dtype and memory unless told otherwise.

    transpose_axes, address  from NKI 0.7 on: the axes of a later dma_transpose of x into it; where it lies on chip
    """
    core = current_core("nl.empty_like")
    for argument, value in (("transpose_axes", transpose_axes), ("address", address)):
        if value is not None:
            require_version(core, f"nl.empty_like with {argument}", ARGUMENTS["nl.empty_like"][argument])
    shape = x.shape if isinstance(x, NkiTensor) else x.element_shape
    if transpose_axes is not None:
        if tuple(transpose_axes) not in _TRANSPOSED or len(transpose_axes) != len(shape):
            fail("view-permute", f"nl.empty_like takes transpose_axes of dma_transpose, got {transpose_axes} for {x!r}")
        shape = tuple(shape[axis] for axis in transpose_axes)
    tensor = core.allocate(shape, x.dtype if dtype is None else dtype, buffer or x.buffer, name, address)
    return tensor if isinstance(x, NkiTensor) else x.like(tensor)


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """A new tile of zeros of x's shape, and of its dtype and memory unless told otherwise."""
    tile = empty_like(x, dtype, buffer, name)
    TABLE["memset"](dst=tile, value=0)
    return tile


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "negative": negative,
    "empty_like": empty_like,
    "mean": mean,
    "prod": _reduction(OPS["multiply"]),
    "sum": _reduction(OPS["add"]),
    "max": _reduction(OPS["maximum"]),
    "min": _reduction(OPS["minimum"]),
    "zeros_like": zeros_like,
}
