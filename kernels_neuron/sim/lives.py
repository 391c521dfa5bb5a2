"""When each on-chip tile is live: from its first write to its last use, in program order."""

from typing import NamedTuple

from .trace import Tile, Trace


class Life(NamedTuple):
    """A tile with the record indices of its first write and last use."""

    tile: Tile
    first: int
    last: int

    def meets(self, other: "Life") -> bool:
        """Whether both are live at one time."""
        return self.first <= other.last and other.first <= self.last


def lives(trace: Trace) -> list[Life]:
    """Life of every on-chip tile that is used, in order of first write."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, record in enumerate(trace.records):
        for region in (*record.reads, *record.writes):
            first.setdefault(region.tile, index)
            last[region.tile] = index
    on_chip = [tile for tile in trace.tiles.values() if tile.on_chip and tile.id in first]
    return sorted(
        (Life(tile, first[tile.id], last[tile.id]) for tile in on_chip), key=lambda life: (life.first, life.tile.id)
    )
