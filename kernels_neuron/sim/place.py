"""Addresses: every on-chip tile gets one after tracing, from which capacity, overlap and the waits of the clock follow.

A tile is live from its first write to its last use in program order. Pinned tiles (`address=`) go where they say. PSUM
tiles take whole banks in rotation. SBUF tiles take the next free bytes above the previous tile, around the end, as a
compiler that rotates buffers does; when that leaves too many holes, first fit from the bottom is tried instead, then
the largest tiles first, then tiles side by side across partitions (pack.py).
Source: NKI release notes 0.3.0 (address rotation cannot be turned off); rotation order assumed.
"""

import bisect
import heapq

import numpy as np

from kernels_neuron.arch import Arch
from kernels_neuron.errors import KernelError

from .lives import Life, lives
from .pack import pack
from .trace import Place, Trace

Span = tuple[int, int]  # [first byte, end) on every partition


def place(trace: Trace, arch: Arch, *, spill: bool = False) -> None:
    """Fill `trace.places`; raises KernelError when live tiles do not fit or pinned tiles overlap.

    With `spill`, SBUF tiles that do not fit get no address and `trace.spills` is set, unless the operands of one
    instruction alone are too much, which the vendor's compiler refuses (GCA035, aws-neuron-sdk issue 1060).
    """
    everything = lives(trace)
    sbuf = [life for life in everything if life.tile.buffer == "sbuf"]
    psum = [life for life in everything if life.tile.buffer == "psum"]
    trace.places.update(_place_psum(trace, psum, arch))
    try:
        trace.places.update(_place_sbuf(trace, sbuf, arch))
    except KernelError as error:
        if not spill or error.rule != "sbuf-capacity":
            raise
        _require_room_for_operands(trace, sbuf, arch)
        trace.spills = True


# ---- PSUM


def _place_psum(trace: Trace, psum: list[Life], arch: Arch) -> dict[int, Place]:
    pinned, free = _split(psum)
    places = _place_pinned(trace, pinned, arch)
    live: list[Life] = []
    next_bank = 0
    for life in free:
        live = [other for other in live if other.last >= life.first]
        around = live + [other for other in pinned if other.meets(life)]
        banks = -(-life.tile.nbytes // arch.psum_bank_bytes)
        start = _free_banks(next_bank, banks, around, places, arch)
        if start is None:
            raise _capacity(trace, "psum", life, around, arch)
        places[life.tile.id] = Place("psum", 0, start * arch.psum_bank_bytes)
        next_bank = (start + banks) % arch.psum_banks
        live.append(life)
    return places


def _free_banks(next_bank: int, banks: int, live: list[Life], places: dict[int, Place], arch: Arch) -> int | None:
    taken: set[int] = set()
    for other in live:
        byte = places[other.tile.id].byte
        taken.update(range(byte // arch.psum_bank_bytes, -(-(byte + other.tile.nbytes) // arch.psum_bank_bytes)))
    for turn in range(arch.psum_banks):
        start = (next_bank + turn) % arch.psum_banks
        if start + banks <= arch.psum_banks and taken.isdisjoint(range(start, start + banks)):
            return start
    return None


# ---- SBUF


def _place_sbuf(trace: Trace, sbuf: list[Life], arch: Arch) -> dict[int, Place]:
    pinned, free = _split(sbuf)
    places = _place_pinned(trace, pinned, arch)
    capacity = arch.sbuf_partition_bytes
    for rotate in (True, False):
        found = _sweep(free, pinned, places, capacity, rotate)
        if found is not None:
            return places | found
    overfull = _overfull(free, pinned, capacity)
    if overfull is None:
        found = _largest_first(free, pinned, places, capacity)
        if found is not None:
            return places | found
        overfull = max(free, key=lambda life: life.tile.nbytes)
    found = pack(trace, free, pinned, capacity)
    if found is not None:
        return places | found
    around = [other for other in sbuf if other.first <= overfull.first <= other.last and other is not overfull]
    raise _capacity(trace, "sbuf", overfull, around, arch)


def _require_room_for_operands(trace: Trace, sbuf: list[Life], arch: Arch) -> None:
    by_tile = {life.tile.id: life for life in sbuf}
    for record in trace.records:
        tiles = {region.tile for region in (*record.reads, *record.writes)} & by_tile.keys()
        if sum(by_tile[tile].tile.nbytes for tile in tiles) > arch.sbuf_partition_bytes:
            first, *others = (by_tile[tile] for tile in sorted(tiles))
            raise _capacity(trace, "sbuf", first, others, arch)


def _sweep(
    free: list[Life], pinned: list[Life], places: dict[int, Place], capacity: int, rotate: bool
) -> dict[int, Place] | None:
    """Places in order of first write, each in a gap among the tiles live then; None when one does not fit."""
    found: dict[int, Place] = {}
    at: dict[int, Place] = {}  # one object an address, which tiles of a rotation share
    spans: list[Span] = []  # of the live tiles, by byte; they are disjoint
    ends: list[tuple[int, Span]] = []  # the same as a heap by last use
    pointer = 0
    for life in free:
        while ends and ends[0][0] < life.first:
            _, span = heapq.heappop(ends)
            del spans[bisect.bisect_left(spans, span)]
        nbytes = life.tile.nbytes
        byte = _aligned(pointer)
        after = bisect.bisect_left(spans, (byte, 0))
        ahead = spans[after][0] if after < len(spans) else capacity
        if not rotate or pinned or byte + nbytes > ahead or (after and spans[after - 1][1] > byte):
            # not the usual case, in which nothing lies at the pointer
            reserved = [_span(other, places) for other in pinned if _shares(other, life)]
            gap = _gap(nbytes, spans, reserved, pointer if rotate else 0, capacity)
            if gap is None:
                return None
            byte = gap
        found[life.tile.id] = at.get(byte) or at.setdefault(byte, Place("sbuf", 0, byte))
        pointer = byte + nbytes
        span = (byte, pointer)
        bisect.insort(spans, span)
        heapq.heappush(ends, (life.last, span))
    return found


def _gap(nbytes: int, spans: list[Span], reserved: list[Span], pointer: int, capacity: int) -> int | None:
    """Lowest free aligned byte at or above `pointer`, else lowest at all; `spans` are sorted and disjoint."""
    if reserved:
        spans = sorted([*spans, *reserved])
    # reserved spans overlap others, so then the span before `pointer` need not be the one that reaches furthest
    first = 0 if reserved else max(0, bisect.bisect_left(spans, (pointer, 0)) - 1)
    for start, index in ((pointer, first), (0, 0)):
        byte = _aligned(start)
        while index < len(spans) and byte + nbytes > spans[index][0]:
            byte = max(byte, _aligned(spans[index][1]))
            index += 1
        if byte + nbytes <= capacity:
            return byte
    return None


def _largest_first(
    free: list[Life], pinned: list[Life], places: dict[int, Place], capacity: int
) -> dict[int, Place] | None:
    """Places in order of size, which leaves fewer holes than order of time; slower, so tried last."""
    first, last = (np.array([getattr(life, name) for life in free]) for name in ("first", "last"))
    low = np.full(len(free), -1)
    for i in sorted(range(len(free)), key=lambda i: (-free[i].tile.nbytes, free[i].first)):
        others = np.flatnonzero((low >= 0) & (first <= last[i]) & (last >= first[i]))
        spans = [(int(low[j]), int(low[j]) + free[j].tile.nbytes) for j in others]
        spans += [_span(other, places) for other in pinned if _shares(other, free[i])]
        byte = _gap(free[i].tile.nbytes, sorted(spans), [], 0, capacity)
        if byte is None:
            return None
        low[i] = byte
    return {life.tile.id: Place("sbuf", 0, int(byte)) for life, byte in zip(free, low, strict=True)}


def _overfull(free: list[Life], pinned: list[Life], capacity: int) -> Life | None:
    """The tile whose first write makes partition 0 fullest, if that exceeds the capacity wherever tiles are put."""
    bottom = [other for other in pinned if other.tile.address and other.tile.address[0] == 0]
    changes = [(life.first, 1, life) for life in (*free, *bottom)]
    changes += [(life.last + 1, 0, life) for life in (*free, *bottom)]
    total, most, at = 0, capacity, None
    for _, begins, life in sorted(changes, key=lambda change: (change[0], change[1], change[2].tile.id)):
        total += life.tile.nbytes if begins else -life.tile.nbytes
        if total > most:
            most, at = total, life
    return at


def _aligned(byte: int) -> int:
    return -(-byte // 4) * 4


def _span(life: Life, places: dict[int, Place]) -> Span:
    byte = places[life.tile.id].byte
    return byte, byte + life.tile.nbytes


def _shares(pinned: Life, life: Life) -> bool:
    """Whether a pinned tile lies on partitions and in a time that `life`, which starts at partition 0, uses too."""
    return pinned.meets(life) and pinned.tile.address is not None and pinned.tile.address[0] < life.tile.partitions


# ---- pinned tiles and errors


def _split(lives: list[Life]) -> tuple[list[Life], list[Life]]:
    """(pinned, free) tiles."""
    return [life for life in lives if life.tile.address is not None], [
        life for life in lives if life.tile.address is None
    ]


def _place_pinned(trace: Trace, pinned: list[Life], arch: Arch) -> dict[int, Place]:
    places: dict[int, Place] = {}
    live: list[Life] = []
    for life in pinned:
        live = [other for other in live if other.last >= life.first]
        places[life.tile.id] = _pinned(trace, life, live, places, arch)
        live.append(life)
    return places


def _pinned(trace: Trace, life: Life, live: list[Life], places: dict[int, Place], arch: Arch) -> Place:
    assert life.tile.address is not None
    tile, (partition, byte) = life.tile, life.tile.address
    capacity = arch.sbuf_partition_bytes if tile.buffer == "sbuf" else arch.psum_partition_bytes
    if partition + tile.partitions > arch.partitions or byte + tile.nbytes > capacity:
        raise KernelError(
            f"{tile} at address ({partition}, {byte}) leaves {tile.buffer}", rule="address", **trace.located(tile.where)
        )
    if tile.buffer == "psum" and byte % arch.psum_bank_bytes:
        raise KernelError(
            f"{tile} starts at byte {byte}, which is not a multiple of the bank size {arch.psum_bank_bytes}",
            rule="psum-bank",
            **trace.located(tile.where),
        )
    for other in live:
        there = places[other.tile.id]
        if (
            partition < there.partition + other.tile.partitions
            and there.partition < partition + tile.partitions
            and byte < there.byte + other.tile.nbytes
            and there.byte < byte + tile.nbytes
        ):
            raise KernelError(
                f"{tile} at address ({partition}, {byte}) overlaps {other.tile} of {trace.where(other.tile.where)} "
                "while both are live",
                rule="address-overlap",
                **trace.located(tile.where),
            )
    return Place(tile.buffer, partition, byte)


def _capacity(trace: Trace, memory: str, life: Life, live: list[Life], arch: Arch) -> KernelError:
    capacity = arch.sbuf_partition_bytes if memory == "sbuf" else arch.psum_partition_bytes
    everything = [*live, life]
    starts = {other.tile.id: other.tile.address[0] if other.tile.address else 0 for other in everything}

    def on(partition: int) -> list[Life]:
        return [other for other in everything if 0 <= partition - starts[other.tile.id] < other.tile.partitions]

    def taken(other: Life) -> int:
        if memory == "sbuf":
            return other.tile.nbytes
        return -(-other.tile.nbytes // arch.psum_bank_bytes) * arch.psum_bank_bytes

    fullest = max(sorted(set(starts.values())), key=lambda partition: sum(map(taken, on(partition))))
    there = sorted(on(fullest), key=lambda other: -taken(other))
    total = sum(map(taken, there))
    lines = "".join(
        f"\n  {taken(other):>7} bytes  {other.tile}  {trace.where(other.tile.where)}" for other in there[:12]
    )
    more = f"\n  and {len(there) - 12} more" if len(there) > 12 else ""
    banks = f" in {arch.psum_banks} banks of {arch.psum_bank_bytes}" if memory == "psum" else ""
    holes = ", with holes between them that are too small" if total <= capacity else ""
    return KernelError(
        f"{memory} on {arch.name} holds {capacity} bytes per partition{banks}, "
        f"the tiles live here take {total} on partition {fullest}{holes}:{lines}{more}",
        rule=f"{memory}-capacity",
        hint="use smaller tiles, or let fewer of them live at once",
        **trace.located(life.tile.where),
    )
