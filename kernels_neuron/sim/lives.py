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
        for region in record.reads + record.writes:
            tile = region.tile
            if tile not in last:
                first[tile] = index
            last[tile] = index
    on_chip = {tile.id: tile for tile in trace.tiles.values() if tile.on_chip}
    found = [Life(on_chip[tile], begin, last[tile]) for tile, begin in first.items() if tile in on_chip]
    return sorted(found, key=lambda life: (life.first, life.tile.id))
