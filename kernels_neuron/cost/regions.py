"""Regions of one address space by number, and how any two of them lie to each other."""

from collections.abc import Callable
from functools import lru_cache, partial

from kernels_neuron.sim.trace import Place, Region, Tile

APART, TOUCHES, COVERS = range(3)  # two regions share no byte; share some; the first has all of the second
REMEMBERED = 1 << 16  # pairs of regions
_ORIGIN = Place("", 0, 0)


class Space:
    """The addresses of one memory, or of one HBM tensor.

    regions   each region met, once, at its address in this space; its tile is of no account
    relation  (number of a region, number of another one) -> APART, TOUCHES or COVERS
    """

    __slots__ = ("_numbers", "regions", "relation")

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self.regions: list[Region] = []
        # tiles follow each other at the same addresses, so the same pairs are asked for again and again
        self.relation: Callable[[int, int], int] = lru_cache(REMEMBERED)(partial(_relation, self.regions))

    def number(self, region: Region, place: Place | None) -> int:
        """The number of a region of a tile that lies at `place`; None for the tile that the space is made of."""
        _, p0, p1, lo, width, steps = region
        _, partition, byte = place or _ORIGIN
        address = (p0 + partition, p1 + partition, lo + byte, width, steps)
        number = self._numbers.get(address)
        if number is None:
            number = self._numbers[address] = len(self.regions)
            self.regions.append(Region(0, *address))
        return number

    def box(self, tile: Tile, place: Place | None) -> int:
        """The number of the region that is all of a tile."""
        return self.number(Region(tile.id, 0, tile.partitions, 0, tile.nbytes), place)


def _relation(regions: list[Region], one: int, other: int) -> int:
    a, b = regions[one], regions[other]
    if a is not b and not overlap(a, b):
        return APART
    return COVERS if a.covers(b) else TOUCHES


def overlap(a: Region, b: Region) -> bool:
    """Whether two regions in one address space share a byte; tile ids are not looked at."""
    if a.p1 <= b.p0 or b.p1 <= a.p0:
        return False
    if not a.steps and not b.steps:
        return a.lo < b.lo + b.width and b.lo < a.lo + a.width
    if a.hi <= b.lo or b.hi <= a.lo:
        return False
    # rows of one pitch: if their columns are apart, so are they; Region.overlaps would list every row
    pitch = _pitch(a) or _pitch(b)
    if pitch and _pitch(a) in (0, pitch) and _pitch(b) in (0, pitch) and _apart(a, b, pitch):
        return False
    return a.overlaps(b)


def _pitch(region: Region) -> int:
    return region.steps[0][0] if region.steps else 0


def _apart(a: Region, b: Region, pitch: int) -> bool:
    width_a, width_b = _row_width(a), _row_width(b)
    offset = (b.lo - a.lo) % pitch
    return width_a <= offset and offset + width_b <= pitch


def _row_width(region: Region) -> int:
    """Bytes from the first to the last of one turn of the outermost step."""
    return region.width + sum(stride * (count - 1) for stride, count in region.steps[1:])
