"""What views have in common: how one lies in memory, as an object to look answers up by, and as runs of bytes."""

import functools
from collections.abc import Sequence
from typing import Any

Key = tuple[object, ...]

_LAYOUTS: dict[Key, "Layout"] = {}
_MAX_LAYOUTS = 16384


class Layout:
    """What views of one shape, strides, dtype, memory and start share; one object, which is quicker to hash than those.

    extent  the fields of their trace.Region after the tile, None until somebody asks
    """

    __slots__ = ("extent",)

    def __init__(self) -> None:
        self.extent: tuple[Any, ...] | None = None


def layout(key: Key) -> Layout:
    """The one object that stands for `key`."""
    found = _LAYOUTS.get(key)
    if found is None:
        if len(_LAYOUTS) >= _MAX_LAYOUTS:
            _LAYOUTS.clear()
        found = _LAYOUTS[key] = Layout()
    return found


@functools.lru_cache(maxsize=16384)
def runs(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """(interval width, outer steps) in bytes of a set of elements, whatever the order of its dims."""
    if any(count == 0 for count in shape):
        return 0, ()
    dims = sorted(
        ((stride * itemsize, count) for stride, count in zip(strides, shape, strict=True) if count > 1 and stride),
        reverse=True,
    )
    width = itemsize
    while dims and dims[-1][0] <= width:
        stride, count = dims.pop()
        width = stride * (count - 1) + width
    steps: list[tuple[int, int]] = []
    for stride, count in reversed(dims):
        if steps and steps[-1][0] * steps[-1][1] == stride:
            steps[-1] = (steps[-1][0], steps[-1][1] * count)
        else:
            steps.append((stride, count))
    return width, tuple(reversed(steps))


def row_major(shape: Sequence[int], innermost: int = 1) -> tuple[int, ...]:
    """Strides of a dense row-major tensor whose last dim has the stride `innermost`."""
    strides = []
    for count in reversed(shape):
        strides.append(innermost)
        innermost *= count
    return tuple(reversed(strides))
