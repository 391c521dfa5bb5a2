"""Indices of a view: what stands in the brackets of `tile[...]`, one a dim, checked against its size."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .locate import fail

if TYPE_CHECKING:
    from .tensor import NkiTensor


class Ds:
    """`nl.ds(start, size)`: the slice [start, start + size)."""

    __slots__ = ("size", "start")

    def __init__(self, start: int, size: int) -> None:
        self.start = start
        self.size = size


def whole_numbers(what: str, values: Sequence[Any]) -> tuple[int, ...]:
    """`values` as integers; fractions, and what the kernel's Python does not know, are refused."""
    try:
        return tuple(map(operator.index, values))
    except TypeError:
        fail("shape-type", f"{what} takes compile-time integers, got {values!r}", "use // rather than /")


_USUAL = frozenset((slice, int))


def indexed(tensor: NkiTensor, key: Any) -> tuple[list[int], list[int], int]:
    """(shape, strides, offset) of `tensor[key]`; an int drops its dim, but for the partitions of a tile."""
    keys: Sequence[Any] = key if type(key) is tuple else (key,)
    if len(keys) != len(tensor.shape) or not _USUAL.issuperset(map(type, keys)):
        keys = one_a_dim(key, tensor)
    shape: list[int] = []
    strides: list[int] = []
    offset, on_chip = tensor.offset, tensor.on_chip
    dropped: list[int] = []
    for item, size, stride in zip(keys, tensor.shape, tensor.strides, strict=True):
        dim = len(shape)
        if type(item) is slice and item.step is None:
            first, end = item.start, item.stop
            if first is None:
                first = 0
            if end is None:
                end = size
            if type(first) is int and type(end) is int and 0 <= first < end <= size:
                # the usual slice; all others are looked at one by one
                offset += first * stride
                shape.append(end - first)
                strides.append(stride)
                continue
        start, count, step, drop = bounds(item, size, dim, tensor)
        offset += start * stride
        shape.append(count)
        strides.append(stride * step)
        if drop and not (on_chip and dim == 0):
            dropped.append(dim)
    if dropped:
        keep_at_least = 2 if on_chip else 1
        for position in dropped[::-1][max(0, keep_at_least - (len(shape) - len(dropped))) :]:
            del shape[position], strides[position]
    return shape, strides, offset


def one_a_dim(key: Any, tensor: NkiTensor) -> list[Any]:
    """One index a dim."""
    keys, ndim = list(key) if isinstance(key, tuple) else [key], len(tensor.shape)
    for at, item in enumerate(keys):
        if item is Ellipsis:
            keys[at : at + 1] = [slice(None)] * (ndim - len(keys) + 1)
            break
    if len(keys) > ndim:
        fail("index-rank", f"{len(keys)} indices for {tensor!r}")
    return keys + [slice(None)] * (ndim - len(keys))


def bounds(item: Any, size: int, dim: int, tensor: NkiTensor) -> tuple[int, int, int, bool]:
    """(start, count, step, drops the dim) of one index into a dim of `size`."""
    if type(item) is int and 0 <= item < size:
        return item, 1, 1, True
    if isinstance(item, Ds):
        start, stop, step = item.start, item.start + item.size, 1
    elif isinstance(item, slice):
        step = 1 if item.step is None else item.step
        start = 0 if item.start is None else item.start
        stop = size if item.stop is None else item.stop
        if isinstance(start, int) and isinstance(stop, int):
            start, stop = start + size if start < 0 else start, stop + size if stop < 0 else stop
    elif isinstance(item, (int, np.integer)):
        index = int(item)
        if not -size <= index < size:
            fail("out-of-bounds", f"index {index} is outside dim {dim} of {tensor!r}")
        return index % size, 1, 1, True
    else:
        fail(
            "index-type",
            f"{tensor!r} takes ints, slices and nl.ds as indices, got {type(item).__name__}",
            "use .ap() or select for dynamic access",
        )
    for bound in (start, stop, step):
        if type(bound) is not int and not isinstance(bound, np.integer):
            fail("index-type", f"{tensor!r} takes whole numbers in slices, got {bound!r}", "use // rather than /")
    if step < 1 or not 0 <= start <= stop <= size:
        fail("out-of-bounds", f"slice {start}:{stop}:{step} leaves dim {dim} of {tensor!r}", "clamp the end with min()")
    if start == stop:
        fail("empty-slice", f"slice {start}:{stop} of dim {dim} of {tensor!r} holds no element", "skip the empty tile")
    return start, -(-(stop - start) // step), step, False


def ap_counts(pattern: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Counts of a pattern [[step, count], ...]."""
    if not isinstance(pattern, Sequence) or not pattern or any(len(pair) != 2 for pair in pattern):
        fail("pattern", f"ap takes [[step, count], ...] as pattern, got {pattern!r}")
    counts = whole_numbers("a pattern", [count for _, count in pattern])
    if min(counts) < 1:
        fail("pattern", f"ap takes counts of at least 1, got {pattern!r}")
    return counts
