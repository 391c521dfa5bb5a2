"""Which records a record has to wait for: RAW, WAR and WAW through the bytes that tiles cover at their addresses.

Accesses are tracked per tile and by exact region. A tile placed where another one was waits for the former tile's last
accesses to the same bytes. Engines work in order, so of a compute engine only the latest access counts, and what an
engine did itself it waits for only to read it back.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from kernels_neuron.sim.trace import Place, Record, Region, Tile, Trace

Preds = list[tuple[int, ...]]


Key = tuple[Region, int]  # a region and the number of the queue that touched it
GRID_FROM = 24  # entries from which a grid is quicker than looking at all of them
GRID_CELLS = 256


class _Entries:
    """Accesses to one tile by (region, queue), each with its record; finds those near a region by a grid of bytes."""

    __slots__ = ("cell", "grid", "items", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.items: dict[Key, int] = {}
        self.nbytes = nbytes
        self.cell = 0  # bytes of a cell of the grid, 0 while there is none

    def near(self, region: Region) -> Iterable[Key]:
        """The entries that may overlap `region`, as a snapshot."""
        if not self.cell:
            return list(self.items)
        found: dict[Key, None] = {}
        for cell in self._cells(region):
            found.update(self.grid.get(cell, {}))
        return found

    def add(self, key: Key, index: int) -> None:
        """Enter an access, in place of an earlier one of the same key."""
        known = key in self.items
        self.items[key] = index
        if self.cell and not known:
            for cell in self._cells(key[0]):
                self.grid.setdefault(cell, {})[key] = None
        elif not self.cell and len(self.items) > GRID_FROM:
            self.cell = max(1, self.nbytes // GRID_CELLS)
            self.grid: dict[int, dict[Key, None]] = {}
            for each in self.items:
                for cell in self._cells(each[0]):
                    self.grid.setdefault(cell, {})[each] = None

    def drop(self, key: Key) -> None:
        """Forget an access."""
        del self.items[key]
        if self.cell:
            for cell in self._cells(key[0]):
                del self.grid[cell][key]

    def _cells(self, region: Region) -> range:
        # a region of a former tile may stick out on either side
        return range(max(0, region.lo) // self.cell, (min(region.hi, self.nbytes) - 1) // self.cell + 1)


class _State:
    """What happened to the bytes of one tile so far, as far as it still matters.

    tile     itself
    writes   last writers; those that a later write covers are dropped
    reads    last readers since their region was written
    former   accesses to the same addresses by tiles that lived there before, until a write of this tile covers them
    tenants  such tiles whose accesses were not looked at yet, with the way from their addresses to those of this one
    raw      region -> writers a read of it waits for; emptied by every write
    """

    __slots__ = ("former", "raw", "reads", "tenants", "tile", "writes")

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        self.writes = _Entries(tile.nbytes)
        self.reads = _Entries(tile.nbytes)
        self.former = _Entries(tile.nbytes)
        self.tenants: list[tuple[_State, int, int]] = []
        self.raw: dict[Region, tuple[int, ...]] = {}

    def is_whole(self, region: Region) -> bool:
        """Whether a region is the entire tile."""
        _, p0, p1, lo, width, steps = region
        return not lo and not p0 and not steps and width >= self.tile.nbytes and p1 >= self.tile.partitions

    def left_by_tenants(self) -> Iterator[tuple[int, int]]:
        """(queue, record) of what its tenants left on any byte of this tile; they are done with then."""
        if all(other.tile.nbytes == self.tile.nbytes and not off and not lower for other, off, lower in self.tenants):
            # the usual case, a tile in the place of another one of its size
            tenants, self.tenants = self.tenants, []
            for other, _, _ in tenants:
                other.settle()
                for entries in (other.former, other.writes, other.reads):
                    for (region, queue), index in entries.items.items():
                        if region[1] < self.tile.partitions:
                            yield queue, index
            return
        whole = Region(self.tile.id, 0, self.tile.partitions, 0, self.tile.nbytes)
        for region, queue, index in self.moved_in():
            if not region.steps or overlap(whole, region):
                yield queue, index

    def moved_in(self) -> Iterator[tuple[Region, int, int]]:
        """(region in this tile, queue, record) of what its tenants left on its bytes; they are done with then."""
        number, partitions, nbytes = self.tile.id, self.tile.partitions, self.tile.nbytes
        tenants, self.tenants = self.tenants, []
        for other, bytes_off, partitions_off in tenants:
            other.settle()
            for entries in (other.former, other.writes, other.reads):
                for ((_, p0, p1, lo, width, steps), queue), index in entries.items.items():
                    p0, p1, lo = p0 + partitions_off, p1 + partitions_off, lo + bytes_off
                    region = Region(number, p0, p1, lo, width, steps)
                    if p1 > 0 and p0 < partitions and lo < nbytes and (region.hi if steps else lo + width) > 0:
                        yield region, queue, index

    def settle(self) -> None:
        """Take over what the tenants left."""
        if self.tenants:
            known = self.former.items
            for region, queue, index in self.moved_in():
                key = region, queue
                self.former.add(key, max(index, known.get(key, -1)))


def dependencies(trace: Trace) -> Preds:
    """For each record the earlier records it waits for, ascending. Tiles that nothing writes cause no wait."""
    written, last = set(), dict[int, int]()
    for index, record in enumerate(trace.records):
        for region in record.reads:
            last[region.tile] = index
        for region in record.writes:
            last[region.tile] = index
            written.add(region.tile)
    residents = {"sbuf": _Residents(), "psum": _Residents()}
    states: dict[int, _State] = {}
    queues = bytes([_NUMBER[queue_of(record)] for record in trace.records])
    preds: Preds = []
    for index, record in enumerate(trace.records):
        found: set[int] = set()
        queue = queues[index]
        for region in record.reads:
            if region.tile in written:
                state = _state(region.tile, states, trace, residents)
                _read(state, region, queue, index, found)
        for region in record.writes:
            state = _state(region.tile, states, trace, residents)
            _write(state, region, queue, index, found)
        for region in (*record.reads, *record.writes):
            if last[region.tile] == index:
                # from here on only a tile at the same address may look at it
                states.pop(region.tile, None)
        found.discard(index)
        preds.append(_latest(found, queues, queue) if len(found) > 1 else _single(found, queues, queue))
    return preds


def queue_of(record: Record) -> str:
    """The in-order unit whose completion a waiter looks at: an engine, or the DMA ring that an engine triggers."""
    return f"{record.engine}/dma" if record.price.transfer is not None else record.engine


_ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
_NUMBER = {name: number for number, name in enumerate((*_ENGINES, *(f"{name}/dma" for name in _ENGINES)))}
_TENSOR = _NUMBER["tensor"]
_DMA = len(_ENGINES)  # numbers from here on are rings
_NOBODY = -1


def _single(found: set[int], queues: Sequence[int], queue: int) -> tuple[int, ...]:
    if queue == _TENSOR and found and queues[next(iter(found))] == queue:
        return ()
    return tuple(found)


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
    # matmuls that accumulate into one region follow each other without waiting
    kept += [index for unit, index in last.items() if not (unit == queue == _TENSOR)]
    return tuple(sorted(kept))


def _read(state: _State, region: Region, queue: int, index: int, found: set[int]) -> None:
    raw = state.raw.get(region)
    if raw is None:
        writes = state.writes
        raw = tuple(writes.items[key] for key in writes.near(region) if overlap(region, key[0]))
        state.raw[region] = raw
    found.update(raw)
    state.reads.add((region, queue), index)


def _write(state: _State, region: Region, queue: int, index: int, found: set[int]) -> None:
    own = _NOBODY if queue >= _DMA else queue  # what a compute engine did before needs no wait
    if state.tenants and state.is_whole(region):
        # the usual first access: all of it is waited for, and none of it matters afterwards
        for other, before in state.left_by_tenants():
            if other != own:
                found.add(before)
    else:
        state.settle()
    for entries in (state.former, state.reads, state.writes):
        if entries.items:
            _wait(entries, region, own, found)
    state.writes.add((region, queue), index)
    state.raw.clear()


def _wait(entries: _Entries, region: Region, own: int, found: set[int]) -> None:
    """Wait for the accesses of other queues to these bytes; forget those whose bytes `region` takes over entirely."""
    for key in entries.near(region):
        other, queue = key
        same = other == region
        if same or overlap(region, other):
            if queue != own:
                found.add(entries.items[key])
            if same or region.covers(other):
                entries.drop(key)


def overlap(a: Region, b: Region) -> bool:
    """Whether two regions in one address space share a byte; tile ids are not looked at."""
    if a[2] <= b[1] or b[2] <= a[1]:
        return False
    if not a[5] and not b[5]:
        return a[3] < b[3] + b[4] and b[3] < a[3] + a[4]
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


# ---- addresses


def _state(tile: int, states: dict[int, _State], trace: Trace, residents: dict[str, "_Residents"]) -> _State:
    state = states.get(tile)
    if state is None:
        state = states[tile] = _State(trace.tiles[tile])
        place = trace.places.get(tile)
        if place is not None:
            residents[place.memory].move_in(state, trace.tiles[tile], place)
    return state


class _Residents:
    """Who was last at each byte of a partition: disjoint segments, each with the tiles seen there, newest first."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.segments: list[tuple[int, int, tuple[tuple[_State, Place, int], ...]]] = []

    def move_in(self, state: _State, tile: Tile, place: Place) -> None:
        """Enter a tile at its first access, with the former tiles of its bytes."""
        low, high = place.byte, place.byte + tile.nbytes
        first = max(bisect_right(self.starts, low) - 1, 0)
        last = bisect_left(self.starts, high)
        kept: list[tuple[int, int, tuple[tuple[_State, Place, int], ...]]] = []
        seen: dict[int, tuple[_State, Place]] = {}
        newcomer = (state, place, tile.partitions)
        if last - first == 1:
            start, end, tenants = self.segments[first]
            if start == low and end == high and len(tenants) == 1 and _within(tenants[0], newcomer):
                # the place of exactly one former tile
                self.segments[first] = (low, high, (newcomer,))
                former, there, _ = tenants[0]
                state.tenants.append((former, 0, there.partition - place.partition))
                return
        gap = low
        for start, end, tenants in self.segments[first:last]:
            if end <= low or start >= high:
                kept.append((start, end, tenants))
                continue
            inside = max(start, low), min(end, high)
            if gap < inside[0]:
                kept.append((gap, inside[0], (newcomer,)))
            if start < low:
                kept.append((start, low, tenants))
            staying = tuple(tenant for tenant in tenants if not _within(tenant, newcomer))
            kept.append((*inside, (newcomer, *staying)))
            gap = inside[1]
            if end > high:
                kept.append((high, end, tenants))
            for tenant in tenants:
                if _share_partitions(tenant, newcomer):
                    seen[id(tenant[0])] = tenant[0], tenant[1]
        if gap < high:
            kept.append((gap, high, (newcomer,)))
        kept.sort(key=lambda segment: segment[0])
        self.segments[first:last] = kept
        self.starts[first:last] = [segment[0] for segment in kept]
        for former, there in seen.values():
            state.tenants.append((former, there.byte - place.byte, there.partition - place.partition))


def _within(tenant: tuple[_State, Place, int], newcomer: tuple[_State, Place, int]) -> bool:
    low, high = newcomer[1].partition, newcomer[1].partition + newcomer[2]
    return low <= tenant[1].partition and tenant[1].partition + tenant[2] <= high


def _share_partitions(tenant: tuple[_State, Place, int], newcomer: tuple[_State, Place, int]) -> bool:
    low, high = newcomer[1].partition, newcomer[1].partition + newcomer[2]
    return tenant[1].partition < high and low < tenant[1].partition + tenant[2]
