"""Checks that several instructions share. Each raises KernelError with the rule's id before anything happens."""

import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from kernels_neuron.dtypes import ROWS
from kernels_neuron.sim.core import NeuronCore
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.versions import ALU_OPERATORS, require_version

from .enums import Member
from .ops import Op

Answer = TypeVar("Answer")
_MAX_ANSWERS = 16384
_UNKNOWN: Any = object()


def once_per_layout(check: Callable[..., Answer]) -> Callable[..., Answer]:
    """`check(core, *operands)`, run once for each combination of layouts and of other arguments.

    For checks and prices, whose answers depend on nothing of a tensor but its layout, and on chip and settings. What is
    refused is not remembered, so the error is made for the operands at hand.
    """

    @functools.wraps(check)
    def remembered(core: NeuronCore, *operands: Any) -> Answer:
        if (core.dynamic or core.indirect) and any(map(_is_more_than_a_view, operands)):
            return check(core, *operands)
        place = (
            check,
            *[operand if type(operand) in _ONE_OF_A_KIND else _key(operand) for operand in operands],
        )
        try:
            answer = core.answers.get(place, _UNKNOWN)
        except TypeError:  # an operand that cannot be a key, and that the check refuses
            return check(core, *operands)
        if answer is not _UNKNOWN:
            return answer
        answer = check(core, *operands)
        if len(core.answers) >= _MAX_ANSWERS:
            core.answers.clear()
        core.answers[place] = answer
        return answer

    return remembered


# what no value of another type is equal to
_ONE_OF_A_KIND = frozenset((type(None), bool, str, Op, *Member.__subclasses__()))


def _key(operand: Any) -> Any:
    """What an operand is looked up by: with its type, as True is no 1 and 1.0 no 1 to a check."""
    if isinstance(operand, NkiTensor):
        return operand._layout or operand.layout
    if isinstance(operand, tuple):
        return tuple, *map(_key, operand)
    return type(operand), operand


def _is_more_than_a_view(operand: Any) -> bool:
    return isinstance(operand, NkiTensor) and type(operand) is not NkiTensor


SBUF = (MemoryRegion.sbuf,)
PSUM = (MemoryRegion.psum,)
ON_CHIP = (MemoryRegion.sbuf, MemoryRegion.psum)
HBM = (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


def require_tensor(name: str, operand: str, value: Any) -> NkiTensor:
    """`value` is a tensor."""
    if not isinstance(value, NkiTensor):
        fail("operand-type", f"{name} takes a tensor as {operand}, got {value!r}")
    return value


def require_buffer(
    name: str, operand: str, tensor: NkiTensor, allowed: Sequence[MemoryRegion], hint: str | None = None
) -> None:
    """`tensor` lives in one of the `allowed` memories."""
    if tensor.buffer not in allowed:
        places = " or ".join(dict.fromkeys("HBM" if region in HBM else region.value.upper() for region in allowed))
        fail("operand-buffer", f"{name} takes {operand} in {places}, got {tensor!r}", hint)


def require_tile(
    name: str, operand: str, value: Any, core: NeuronCore, allowed: Sequence[MemoryRegion] = ON_CHIP
) -> NkiTensor:
    """`value` is an on-chip operand: in `allowed`, at most 128 partitions, starting where the engines can address."""
    if type(value) is NkiTensor and value.buffer in allowed:
        # the usual case in one line: whole partitions from 0 on, of a tile that no limit of an access pattern reaches
        whole = value.strides[0] == value.partition_stride <= _PSUM_FREE_SIZE
        if whole and value.offset < value.partition_stride and value.shape[0] <= core.arch.partitions:
            return value
    tensor = require_tensor(name, operand, value)
    hint = "load it into SBUF with dma_copy first" if tensor.buffer in HBM else None
    require_buffer(name, operand, tensor, allowed, hint)
    if tensor.shape[0] > core.arch.partitions:
        fail(
            "partition-limit",
            f"{name} takes at most {core.arch.partitions} partitions, {operand} has {tensor.shape[0]}",
            "split the partition axis into tiles of nl.tile_size.pmax",
        )
    if tensor.strides[0] != tensor.partition_stride and tensor.shape[0] > 1:
        fail("partition-step", f"{name} takes contiguous partitions, {operand} {tensor!r} steps over them")
    require_start_partition(name, operand, tensor)
    _require_pattern(name, operand, tensor)
    return tensor


# architecture guide 1, access patterns: elements per partition of an operand in SBUF and in PSUM, and the largest step
_SBUF_FREE_SIZE, _PSUM_FREE_SIZE, _FREE_STRIDE = 65536, 4096, 32767


def _require_pattern(name: str, operand: str, tensor: NkiTensor) -> None:
    """The free dims fit an access pattern: so many elements, steps of 16 bits."""
    in_psum = tensor.buffer is MemoryRegion.psum
    limit = _PSUM_FREE_SIZE if in_psum else _SBUF_FREE_SIZE
    # TensorE writes what fits into the banks of PSUM, which has a rule of its own
    if tensor.free_size > limit and not (in_psum and name.startswith("nc_matmul")):
        fail(
            "free-size",
            f"{name} takes {operand} of at most {limit} elements per partition in {tensor.buffer.value.upper()}, "
            f"got {tensor!r}",
            "call it on slices of the free axis",
        )
    steps = [stride for stride, count in zip(tensor.strides[1:], tensor.shape[1:], strict=True) if count > 1]
    if max(steps, default=0) > _FREE_STRIDE:
        fail(
            "free-stride",
            f"{name} takes {operand} with steps of at most {_FREE_STRIDE} elements, got {steps} of {tensor!r}",
            "copy it to a tile of its own with dma_copy, or call it once for each index of the outer dim",
        )


def require_start_partition(name: str, operand: str, tensor: NkiTensor) -> None:
    """Engines address spans from partitions 0, 32, 64, 96 that fit. Source: architecture guide 2, access patterns."""
    start, count = tensor.start_partition, tensor.shape[0]
    allowed = {0} if count > 64 else {0, 64} if count > 32 else {0, 32, 64, 96}
    if start not in allowed:
        fail(
            "start-partition",
            f"{name} takes {operand} of {count} partitions starting at {', '.join(map(str, sorted(allowed)))}, "
            f"got start {start}",
            "copy it to a tile of its own with dma_copy, which has no such rule",
        )


def require_same_extent(name: str, hint: str | None = None, **operands: NkiTensor) -> None:
    """All operands have one partition count and one number of elements per partition; ranks may differ."""
    (first_name, first), *rest = operands.items()
    for other_name, other in rest:
        if other.shape[0] != first.shape[0] or other.free_size != first.free_size:
            fail(
                "operand-extent",
                f"{name} takes operands of one extent, {first_name} is {first!r} and {other_name} is {other!r}",
                hint,
            )


def require_vector(name: str, operand: str, tensor: NkiTensor, partitions: int) -> None:
    """`tensor` holds one value per partition: [partitions, 1]."""
    if tensor.shape[0] != partitions or tensor.free_size != 1:
        fail("operand-extent", f"{name} takes {operand} of shape [{partitions}, 1], got {tensor!r}")


def require_dtype(name: str, operand: str, tensor: NkiTensor, allowed: Sequence[str]) -> None:
    """The tensor's dtype is one of `allowed`."""
    if tensor.dtype not in allowed:
        fail("operand-dtype", f"{name} takes {operand} of {', '.join(allowed)}, got {tensor.dtype}")


def require_integer(name: str, **operands: NkiTensor) -> None:
    """All operands are integers, as bit operations demand."""
    for operand, tensor in operands.items():
        if not ROWS[tensor.dtype].is_integer:
            fail("bitvec-dtype", f"{name} with a bit operation takes integer dtypes, {operand} is {tensor.dtype}")


def require_op(name: str, operand: str, op: Any) -> Op:
    """`op` is an operator token such as nl.add."""
    if isinstance(op, Op):
        return op
    if instead := getattr(op, "instead", None):  # nl.divide, nl.mod and nl.fmod, which are documented
        fail("not-on-device", f"{name} takes no nl.{op.__name__} as {operand}: no chip has it", instead)
    fail("op-type", f"{name} takes an operator such as nl.add as {operand}, got {op!r}")


def require_generation(name: str, core: NeuronCore, generation: int, what: str | None = None) -> None:
    """The chip is of `generation` or later."""
    if core.arch.generation < generation:
        first = {3: "trn2", 4: "trn3"}[generation]
        fail("chip-generation", f"{what or name} exists from {first} on, this is {core.arch.name}")


def require_not_both_psum(name: str, **operands: Any) -> None:
    """At most one of two inputs is read from PSUM. Source: NKI reference, engine access table."""
    in_psum = [
        operand
        for operand, tensor in operands.items()
        if isinstance(tensor, NkiTensor) and tensor.buffer is MemoryRegion.psum
    ]
    if len(in_psum) > 1:
        fail(
            "two-psum-inputs",
            f"{name} reads at most one operand from PSUM, got {' and '.join(in_psum)}",
            "copy one to SBUF with tensor_copy",
        )


def require_scalar(
    name: str, operand: str, value: Any, partitions: int, core: NeuronCore, dtypes: Sequence[str] | None = ("float32",)
) -> None:
    """`value` is a Python number or a [partitions, 1] tile of one of `dtypes` (None: any)."""
    if isinstance(value, NkiTensor):
        require_tile(name, operand, value, core)
        require_vector(name, operand, value, partitions)
        if dtypes is not None:
            require_dtype(name, operand, value, dtypes)
    elif not isinstance(value, (int, float, np.integer, np.floating)):
        fail("operand-type", f"{name} takes a number or a [{partitions}, 1] tile as {operand}, got {value!r}")


def require_enum(name: str, operand: str, value: Any, kind: type[enum.Enum], *allowed: enum.Enum) -> None:
    """`value` is a member of `kind`, one of `allowed` if any are given; the integer behind it is refused."""
    if not isinstance(value, kind):
        fail("enum-type", f"{name} takes a member of nisa.{kind.__name__} as {operand}, got {value!r}")
    if allowed and value not in allowed:
        fail("enum-value", f"{name} takes {operand} {', '.join(member.name for member in allowed)}, got {value.name}")


def require_alu(name: str, operand: str, op: Any, core: NeuronCore, *, unary: bool = False, bitvec: bool = False) -> Op:
    """`op` is an ALU operator of this chip, binary unless `unary` allows both, arithmetic unless `bitvec` does."""
    found = require_op(name, operand, op)
    if found.alu is None or (found.unary and not unary) or (found.bitvec and not bitvec):
        kind = f"{'an' if unary else 'a binary'} {'ALU' if bitvec else 'arithmetic'}"
        fail("op-kind", f"{name} takes {kind} operator as {operand}, got {op!r}")
    require_generation(name, core, found.min_generation, f"{name} with {operand}={op!r}")
    if found.name in ALU_OPERATORS:
        require_version(core, f"{name} with {operand}={op!r}", ALU_OPERATORS[found.name])
    return found


def require_one_width(name: str, **operands: NkiTensor) -> None:
    """All operands have elements of one size, as bit operations, which do not cast, demand."""
    if len({tensor.itemsize for tensor in operands.values()}) > 1:
        sizes = ", ".join(f"{operand} {tensor.dtype}" for operand, tensor in operands.items())
        fail("bitvec-dtype", f"{name} with a bit operation does not cast, its operands differ in width: {sizes}")


def mark_taken(dst: NkiTensor, take: np.ndarray) -> None:
    """Mark the bytes of those elements of `dst` that `take` selects as written."""
    item = dst.itemsize
    strides = [stride * item for stride in dst.strides]
    tile = dst.storage.tile
    mask = np.zeros((tile.partitions, tile.nbytes), bool)
    elements = np.ndarray((*dst.shape, item), bool, mask.data, dst.offset * item, (*strides, 1))
    elements[...] = take[..., None]
    dst.storage.written.add_mask(mask)
