"""Whose tile was last at each byte of an on-chip memory."""

from bisect import bisect_left, bisect_right
from typing import Generic, Protocol, TypeVar

from kernels_neuron.sim.trace import Region


class Boxed(Protocol):
    """What takes all bytes of a box, a region without steps."""

    @property
    def box(self) -> Region:
        """The box."""


T = TypeVar("T", bound=Boxed)


class Residents(Generic[T]):
    """Disjoint segments of bytes, each with the tiles last seen there, newest first.

    An older tile stays in a segment while it has partitions that no newer one took.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._segments: list[tuple[int, int, tuple[T, ...]]] = []

    def move_in(self, tile: T) -> list[T]:
        """Enter a tile, and give the former ones of its bytes and partitions."""
        _, p0, p1, low, width, _ = tile.box
        high = low + width
        first, last = bisect_right(self._starts, low) - 1, bisect_left(self._starts, high)
        if first < 0 or self._segments[first][1] <= low:
            first += 1
        met = self._segments[first:last]
        former: dict[T, None] = {}
        shared: list[tuple[int, int, tuple[T, ...]]] = []
        for start, end, tiles in met:
            staying: tuple[T, ...] = ()
            for other in tiles:
                _, q0, q1, _, _, _ = other.box
                if q0 < p1 and p0 < q1:
                    former[other] = None
                if q0 < p0 or p1 < q1:
                    staying += (other,)
            if staying:
                shared.append((max(start, low), min(end, high), staying))
        segments = _in_its_segments(tile, low, high, shared)
        if met and met[0][0] < low:
            segments.insert(0, (met[0][0], low, met[0][2]))
        if met and met[-1][1] > high:
            segments.append((high, met[-1][1], met[-1][2]))
        self._segments[first:last] = segments
        self._starts[first:last] = [start for start, _, _ in segments]
        return list(former)


def _in_its_segments(
    tile: T, low: int, high: int, shared: list[tuple[int, int, tuple[T, ...]]]
) -> list[tuple[int, int, tuple[T, ...]]]:
    """[low, high) as segments of `tile`, in those of `shared` with others behind it."""
    segments: list[tuple[int, int, tuple[T, ...]]] = []
    for start, end, others in shared:
        if low < start:
            segments.append((low, start, (tile,)))
        segments.append((start, end, (tile, *others)))
        low = end
    if low < high:
        segments.append((low, high, (tile,)))
    return segments
