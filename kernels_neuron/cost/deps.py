"""Which records a record has to wait for: RAW, WAR and WAW through the bytes that tiles cover at their addresses.

Accesses are tracked per tile and by exact region. A tile placed where another one was waits for the former tile's last
accesses to the same bytes. Engines work in order, so of a compute engine only the latest access counts, and what an
engine did itself it waits for only to read it back.

Regions, queues and accesses are small numbers here, because this runs for every access of a long kernel.
"""

from collections.abc import Iterable, Sequence

from kernels_neuron.sim.trace import Place, Record, Region, Tile, Trace

from .regions import COVERS, Space
from .residents import Residents

Preds = list[tuple[int, ...]]

_ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
_NUMBER = {name: number for number, name in enumerate(_ENGINES)}
_TENSOR = _NUMBER["tensor"]
_DMA = len(_ENGINES)  # queues from here on are the DMA rings that the engines trigger
_NOBODY = -1

# an access is a region, a kind and a queue, packed into one number
_QUEUES = 16
_READ, _WRITE, _FORMER = 0, _QUEUES, 2 * _QUEUES  # the last: by a tile that lived at the same addresses before
_KIND = 3 * _QUEUES
_REGION = 4 * _QUEUES

GRID_FROM = 24  # accesses from which a grid is quicker than looking at all of them
GRID_CELLS = 256


def dependencies(trace: Trace) -> Preds:
    """For each record the earlier records it waits for, ascending. Tiles that nothing writes cause no wait."""
    written, last = _uses(trace)
    queues = bytes([_NUMBER[record.engine] + _DMA * (record.price.transfer is not None) for record in trace.records])
    tiles = _Tiles(trace)
    states = tiles.states
    preds: Preds = []
    for index, record in enumerate(trace.records):
        queue = queues[index]
        found: set[int] = set()
        for region in record.reads:
            if region.tile in written:
                state = states.get(region.tile) or tiles.enter(region.tile)
                _read(state, region, queue, index, found)
        for region in record.writes:
            state = states.get(region.tile) or tiles.enter(region.tile)
            _write(state, region, queue, index, found)
        for region in (*record.reads, *record.writes):
            if last[region.tile] == index:
                # from here on only a tile at the same address may look at it
                states.pop(region.tile, None)
        found.discard(index)
        preds.append(_latest(found, queues, queue) if found else ())
    return preds


def queue_of(record: Record) -> str:
    """The in-order unit whose completion a waiter looks at: an engine, or the DMA ring that an engine triggers."""
    return f"{record.engine}/dma" if record.price.transfer is not None else record.engine


def _uses(trace: Trace) -> tuple[set[int], dict[int, int]]:
    """The tiles that are written, and the last record that touches each tile."""
    written, last = set[int](), dict[int, int]()
    for index, record in enumerate(trace.records):
        for region in record.reads:
            last[region.tile] = index
        for region in record.writes:
            last[region.tile] = index
            written.add(region.tile)
    return written, last


def _latest(found: set[int], queues: Sequence[int], queue: int) -> tuple[int, ...]:
    """Of each compute engine only the last record, of DMA rings all: transfers end out of order."""
    last: dict[int, int] = {}
    kept = []
    for index in found:
        unit = queues[index]
        if unit >= _DMA:
            kept.append(index)
        elif index > last.get(unit, -1):
            last[unit] = index
    if queue == _TENSOR:
        # matmuls that accumulate into one region follow each other without waiting
        last.pop(_TENSOR, None)
    kept += last.values()
    kept.sort()
    return tuple(kept)


def _read(state: "_State", region: Region, queue: int, index: int, found: set[int]) -> None:
    number = state.space.number(region, state.place)
    writers = state.writers.get(number)
    if writers is None:
        relation = state.space.relation
        writers = state.writers[number] = [
            before
            for access, before in state.near(number)
            if access & _KIND == _WRITE and relation(number, access // _REGION)
        ]
    found.update(writers)
    state.enter(number * _REGION + _READ + queue, index)


def _write(state: "_State", region: Region, queue: int, index: int, found: set[int]) -> None:
    own = queue if queue < _DMA else _NOBODY  # what a compute engine did before needs no wait
    relation, number = state.space.relation, state.space.number(region, state.place)
    if state.tenants:
        if relation(number, state.whole) == COVERS:
            # the usual first access: all of it is waited for, and none of it matters afterwards
            found.update([before for access, before in state.inherited() if access % _QUEUES != own])
        else:
            state.settle()
    for access, before in state.near(number) if state.accesses else ():
        if how := relation(number, access // _REGION):
            if access % _QUEUES != own:
                found.add(before)
            if how == COVERS:
                state.drop(access)
    state.enter(number * _REGION + _WRITE + queue, index)
    state.writers.clear()


class _State:
    """What happened to the bytes of one tile so far, as far as it still matters.

    box       all of the tile at its address, and `whole` the number of that region
    accesses  access -> its last record; a write drops those it covers entirely
    grid      finds the accesses near a region, None while there are few
    tenants   tiles that lived at its addresses before, until its first write takes over what they left
    writers   number of a region -> the writers a read of it waits for; emptied by every write
    """

    __slots__ = ("accesses", "box", "grid", "place", "space", "tenants", "whole", "writers")

    def __init__(self, tile: Tile, place: Place | None, space: Space) -> None:
        self.space, self.place = space, place
        self.whole = space.box(tile, place)
        self.box = space.regions[self.whole]
        self.accesses: dict[int, int] = {}
        self.grid: _Grid | None = None
        self.tenants: list[_State] = []
        self.writers: dict[int, list[int]] = {}

    def near(self, number: int) -> list[tuple[int, int]]:
        """The accesses that may overlap a region, and their records."""
        if self.grid is None:
            return list(self.accesses.items())
        return [(access, self.accesses[access]) for access in self.grid.near(number)]

    def enter(self, access: int, index: int) -> None:
        """Take note of an access, in place of an earlier one like it."""
        known = len(self.accesses)
        self.accesses[access] = index
        if self.grid is not None:
            if len(self.accesses) > known:
                self.grid.add(access)
        elif known >= GRID_FROM:
            self.grid = _Grid(self.space.regions, self.box, self.accesses)

    def drop(self, access: int) -> None:
        """Forget an access."""
        del self.accesses[access]
        if self.grid is not None:
            self.grid.drop(access)

    def inherited(self) -> list[tuple[int, int]]:
        """The accesses that its tenants left on any of its bytes, and their records; they are done with then."""
        relation, whole = self.space.relation, self.whole
        tenants, self.tenants = self.tenants, []
        found = []
        for other in tenants:
            other.settle()
            found += [pair for pair in other.accesses.items() if relation(whole, pair[0] // _REGION)]
        return found

    def settle(self) -> None:
        """Keep what the tenants left, until writes cover it."""
        if self.tenants:
            for access, index in self.inherited():
                former = access & ~_KIND | _FORMER
                self.enter(former, max(index, self.accesses.get(former, -1)))


class _Grid:
    """Accesses to a tile by the bytes of their regions, in cells of equal width."""

    __slots__ = ("cell", "cells", "high", "low", "regions")

    def __init__(self, regions: Sequence[Region], box: Region, accesses: Iterable[int]) -> None:
        self.regions = regions
        self.low, self.high = box.lo, box.lo + box.width
        self.cell = max(1, box.width // GRID_CELLS)
        self.cells: dict[int, dict[int, None]] = {}
        for access in accesses:
            self.add(access)

    def near(self, number: int) -> dict[int, None]:
        """The accesses that may overlap a region."""
        found: dict[int, None] = {}
        for cell in self._of(number):
            found.update(self.cells.get(cell, {}))
        return found

    def add(self, access: int) -> None:
        """Enter an access."""
        for cell in self._of(access // _REGION):
            self.cells.setdefault(cell, {})[access] = None

    def drop(self, access: int) -> None:
        """Forget an access."""
        for cell in self._of(access // _REGION):
            del self.cells[cell][access]

    def _of(self, number: int) -> range:
        region = self.regions[number]
        # a region of a former tile may stick out on either side
        low, high = max(region.lo, self.low) - self.low, min(region.hi, self.high) - self.low
        return range(low // self.cell, (high - 1) // self.cell + 1)


class _Tiles:
    """The states of the tiles in use, on-chip ones next to those that lived at their addresses before."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.states: dict[int, _State] = {}
        self.memories = {name: (Space(), Residents[_State]()) for name in ("sbuf", "psum")}

    def enter(self, tile: int) -> _State:
        """The state of a tile, which moves in with its first access."""
        place = self.trace.places.get(tile)
        space, residents = self.memories[place.memory] if place else (Space(), None)
        state = self.states[tile] = _State(self.trace.tiles[tile], place, space)
        if residents is not None:
            state.tenants = residents.move_in(state)
        return state
