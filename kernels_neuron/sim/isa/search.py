"""VectorE instructions that look for values along the free axis, eight at a time."""

from collections.abc import Iterator

import numpy as np

from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor

from .prices import PRICES, facts
from .rules import require_dtype, require_same_extent, require_scalar, require_tile
from .table import instruction
from .vector import write

SLOTS = 8
MAX_ELEMENTS = 16384


def _require_searched(name: str, operand: str, tensor: NkiTensor, dims: int = 3) -> None:
    if tensor.ndim > dims:
        fail("operand-rank", f"{name} takes {operand} of at most {dims} dims, got {tensor!r}")
    if not SLOTS <= tensor.free_size <= MAX_ELEMENTS:
        limits = f"{SLOTS} to {MAX_ELEMENTS}"
        fail("operand-extent", f"{name} takes {operand} of {limits} elements per partition, got {tensor!r}")


def _require_slots(name: str, operand: str, tensor: NkiTensor, partitions: int) -> None:
    if tensor.shape[0] != partitions or tensor.free_size != SLOTS:
        fail("operand-extent", f"{name} takes {operand} of shape [{partitions}, {SLOTS}], got {tensor!r}")


@instruction
def max8(core: NeuronCore, dst: NkiTensor, src: NkiTensor, name: str | None = None) -> Iterator[Step]:
    """dst[p, :] = the 8 largest of src[p, :], descending, compared in float32.

    Operands: SBUF or PSUM; src at most 3-D, 8 to 16384 elements per partition. Engines: VectorE.
    Source: NKI ISA reference, max8.
    """
    require_tile("max8", "dst", dst, core)
    require_tile("max8", "src", src, core)
    _require_searched("max8", "src", src)
    _require_slots("max8", "dst", dst, src.shape[0])
    price = PRICES["max8"](core.arch, facts("vector", dst, src))

    def effect() -> None:
        largest = np.partition(src.f32(), -SLOTS, axis=1)[:, -SLOTS:]
        write(core, dst, np.sort(largest, axis=1)[:, ::-1])

    yield Step("vector", price, reads=(src,), writes=(dst,), effect=effect)


@instruction
def nc_find_index8(
    core: NeuronCore, dst: NkiTensor, data: NkiTensor, vals: NkiTensor, name: str | None = None
) -> Iterator[Step]:
    """dst[p, j] = index of the first element of data[p, :] equal to vals[p, j]; equal vals take successive occurrences.

    Operands: data at most 3-D, 8 to 16384 elements per partition; vals [P, 8]; dst [P, 8] uint16 or uint32, all ones
    where nothing matches. Engines: VectorE. Source: NKI ISA reference, nc_find_index8.
    """
    for operand, tensor in (("dst", dst), ("data", data), ("vals", vals)):
        require_tile("nc_find_index8", operand, tensor, core)
    _require_searched("nc_find_index8", "data", data)
    _require_slots("nc_find_index8", "dst", dst, data.shape[0])
    _require_slots("nc_find_index8", "vals", vals, data.shape[0])
    require_dtype("nc_find_index8", "dst", dst, ("uint16", "uint32"))
    price = PRICES["nc_find_index8"](core.arch, facts("vector", dst, data, vals))

    def effect() -> None:
        found = matches(data.f32(), vals.f32(), range(SLOTS))
        missing = np.iinfo(dst.dtype.numpy).max
        dst.target()[...] = np.where(found < 0, missing, found).astype(dst.dtype.numpy).reshape(dst.shape)

    yield Step("vector", price, reads=(data, vals), writes=(dst,), effect=effect)


@instruction
def nc_match_replace8(
    core: NeuronCore,
    dst: NkiTensor,
    data: NkiTensor,
    vals: NkiTensor,
    imm: float,
    dst_idx: NkiTensor | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = data with the first element equal to each of vals[p, 7], .., vals[p, 0] replaced by imm.

    Operands: dst, data of one extent, 8 to 16384 elements per partition; vals [P, 8]; dst_idx [P, 8] uint16 or uint32
    gets the indices, 0 where nothing matches, or is None. Engines: VectorE.
    Source: NKI ISA reference, nc_match_replace8.
    """
    for operand, tensor in (("dst", dst), ("data", data), ("vals", vals)):
        require_tile("nc_match_replace8", operand, tensor, core)
    require_same_extent("nc_match_replace8", dst=dst, data=data)
    _require_searched("nc_match_replace8", "data", data, dims=5)
    _require_slots("nc_match_replace8", "vals", vals, data.shape[0])
    if isinstance(imm, NkiTensor):
        fail("operand-type", f"nc_match_replace8 takes a number as imm, got {imm!r}")
    require_scalar("nc_match_replace8", "imm", imm, data.shape[0], core)
    if dst_idx is not None:
        require_tile("nc_match_replace8", "dst_idx", dst_idx, core)
        _require_slots("nc_match_replace8", "dst_idx", dst_idx, data.shape[0])
        require_dtype("nc_match_replace8", "dst_idx", dst_idx, ("uint16", "uint32"))
    price = PRICES["nc_match_replace8"](core.arch, facts("vector", dst, data, vals))

    def effect() -> None:
        values = data.f32().copy()
        found = matches(values, vals.f32(), range(SLOTS - 1, -1, -1))
        rows, slots = np.nonzero(found >= 0)
        values[rows, found[rows, slots]] = np.float32(imm)
        write(core, dst, values)
        if dst_idx is not None:
            dst_idx.target()[...] = np.maximum(found, 0).astype(dst_idx.dtype.numpy).reshape(dst_idx.shape)

    writes = (dst,) if dst_idx is None else (dst, dst_idx)
    yield Step("vector", price, reads=(data, vals), writes=writes, effect=effect)


_FEW = 32  # candidates a row that are quicker to compare by themselves


def matches(data: np.ndarray, vals: np.ndarray, order: range) -> np.ndarray:
    """Index of an unused element equal to each value, the slots taken in `order`; -1 where there is none."""
    # the usual values are the largest of a row: only what is no smaller than the least of them is compared
    least = np.fmin.reduce(vals, axis=1)
    large = data >= least[:, None]
    if np.count_nonzero(large) > _FEW * len(data):
        return _compared(data.copy(), vals, order)
    # fifteen times faster than np.nonzero of two dims
    rows, columns = np.divmod(np.flatnonzero(large), data.shape[1])
    counts = np.bincount(rows, minlength=len(data))
    places = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
    left = np.full((len(data), max(1, counts.max(initial=0))), np.nan, np.float32)
    column_of = np.zeros(left.shape, np.int64)
    left[rows, places], column_of[rows, places] = data[rows, columns], columns
    found = _compared(left, vals, order)
    return np.where(found < 0, -1, np.take_along_axis(column_of, np.maximum(found, 0), axis=1))


def _compared(left: np.ndarray, vals: np.ndarray, order: range) -> np.ndarray:
    """The same by comparing each value with all elements `left`, of which those found become NaN."""
    found = np.full(vals.shape, -1, np.int64)
    rows = np.arange(len(left))
    for slot in order:
        equal = left == vals[:, slot : slot + 1]
        first = equal.argmax(axis=1)
        hit = equal[rows, first]
        found[hit, slot] = first[hit]
        left[rows[hit], first[hit]] = np.nan  # equal to no value, so it is found once
    return found
