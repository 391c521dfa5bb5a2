"""Which records a record has to wait for: RAW, WAR and WAW through the bytes that tiles cover at their addresses.

Accesses are tracked per tile and by exact region. A tile placed where another one was waits for the former tile's last
accesses to the same bytes. Engines work in order, so of a compute engine only the latest access counts, and what an
engine did itself it waits for only to read it back.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from kernels_neuron.sim.trace import Place, Record, Region, Tile, Trace

Preds = list[tuple[int, ...]]


@dataclass(slots=True)
class _State:
    """What happened to the bytes of one tile so far, as far as it still matters.

    writes   region -> its last writer; regions that a later write covers are dropped
    reads    (region, queue) -> last reader since the region was written
    formers  tiles that lived at the same address, with the shift in bytes and partitions from this tile to them
    raw      region -> writers a read of it waits for; emptied by every write
    """

    writes: dict[Region, int] = field(default_factory=dict)
    reads: dict[tuple[Region, str], int] = field(default_factory=dict)
    formers: list[tuple["_State", int, int]] = field(default_factory=list)
    raw: dict[Region, tuple[int, ...]] = field(default_factory=dict)


def dependencies(trace: Trace) -> Preds:
    """For each record the earlier records it waits for, ascending. Tiles that nothing writes cause no wait."""
    written = {region.tile for record in trace.records for region in record.writes}
    residents = {"sbuf": _Residents(), "psum": _Residents()}
    states: dict[int, _State] = {}
    queues = [queue_of(record) for record in trace.records]
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
            _write(state, region, queue, index, queues, found)
        found.discard(index)
        preds.append(_latest(found, queues, queue) if len(found) > 1 else _single(found, queues, queue))
    return preds


def queue_of(record: Record) -> str:
    """The in-order unit whose completion a waiter looks at: an engine, or the DMA ring that an engine triggers."""
    return f"{record.engine}/dma" if record.price.transfer is not None else record.engine


def _single(found: set[int], queues: list[str], queue: str) -> tuple[int, ...]:
    if queue == "tensor" and found and queues[next(iter(found))] == queue:
        return ()
    return tuple(found)


def _latest(found: set[int], queues: list[str], queue: str) -> tuple[int, ...]:
    """Of each compute engine only the last record, of DMA rings all: transfers end out of order."""
    last: dict[str, int] = {}
    kept = []
    for index in found:
        unit = queues[index]
        if unit.endswith("/dma"):
            kept.append(index)
        elif index > last.get(unit, -1):
            last[unit] = index
    # matmuls that accumulate into one region follow each other without waiting
    kept += [index for unit, index in last.items() if not (unit == queue == "tensor")]
    return tuple(sorted(kept))


def _read(state: _State, region: Region, queue: str, index: int, found: set[int]) -> None:
    raw = state.raw.get(region)
    if raw is None:
        raw = tuple(writer for other, writer in state.writes.items() if overlap(region, other))
        state.raw[region] = raw
    found.update(raw)
    state.reads[region, queue] = index


def _write(state: _State, region: Region, queue: str, index: int, queues: list[str], found: set[int]) -> None:
    compute = not queue.endswith("/dma")
    if state.formers and region not in state.writes:
        for former, bytes_off, partitions_off in state.formers:
            _former(former, _moved(region, bytes_off, partitions_off), queue if compute else "", queues, found)
    covered = []
    for other, writer in state.writes.items():
        if other == region or overlap(region, other):
            if not (compute and queues[writer] == queue):
                found.add(writer)
            if other == region or region.covers(other):
                covered.append(other)
    for other in covered:
        del state.writes[other]
    if state.reads:
        done = []
        for key, reader in state.reads.items():
            other, unit = key
            if other == region or overlap(region, other):
                if not (compute and unit == queue):
                    found.add(reader)
                if other == region or region.covers(other):
                    done.append(key)
        for key in done:
            del state.reads[key]
    state.writes[region] = index
    state.raw.clear()


def _former(former: _State, region: Region, queue: str, queues: list[str], found: set[int]) -> None:
    for other, writer in former.writes.items():
        if queues[writer] != queue and overlap(region, other):
            found.add(writer)
    for (other, unit), reader in former.reads.items():
        if unit != queue and overlap(region, other):
            found.add(reader)


def _moved(region: Region, bytes_off: int, partitions_off: int) -> Region:
    return region._replace(p0=region.p0 + partitions_off, p1=region.p1 + partitions_off, lo=region.lo + bytes_off)


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
        state = states[tile] = _State()
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
            former.formers = []  # their waits are behind the former tile's own
            state.formers.append((former, place.byte - there.byte, place.partition - there.partition))


def _within(tenant: tuple[_State, Place, int], newcomer: tuple[_State, Place, int]) -> bool:
    low, high = newcomer[1].partition, newcomer[1].partition + newcomer[2]
    return low <= tenant[1].partition and tenant[1].partition + tenant[2] <= high


def _share_partitions(tenant: tuple[_State, Place, int], newcomer: tuple[_State, Place, int]) -> bool:
    low, high = newcomer[1].partition, newcomer[1].partition + newcomer[2]
    return tenant[1].partition < high and low < tenant[1].partition + tenant[2]
