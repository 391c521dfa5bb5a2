"""Addresses: every on-chip tile gets one after tracing, from which capacity, overlap and the waits of the clock follow.

A tile is live from its first write to its last use in program order. Pinned tiles (`address=`) go where they say. PSUM
tiles take whole banks in rotation. SBUF tiles take the next free bytes above the previous tile, around the end, as a
compiler that rotates buffers does; when that leaves too many holes, first fit from the bottom is tried instead.
Source: NKI release notes 0.3.0 (address rotation cannot be turned off); rotation order assumed.
"""

from dataclasses import dataclass

from kernels_neuron.arch import Arch
from kernels_neuron.errors import KernelError

from .trace import Place, Tile, Trace


@dataclass(frozen=True)
class Life:
    """A tile with the record indices of its first write and last use."""

    tile: Tile
    first: int
    last: int


def lives(trace: Trace) -> list[Life]:
    """Life of every on-chip tile that is used, in order of first write."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, region, _ in trace.uses():
        first.setdefault(region.tile, index)
        last[region.tile] = index
    on_chip = [tile for tile in trace.tiles.values() if tile.on_chip and tile.id in first]
    return sorted(
        (Life(tile, first[tile.id], last[tile.id]) for tile in on_chip), key=lambda life: (life.first, life.tile.id)
    )


def place(trace: Trace, arch: Arch) -> None:
    """Fill `trace.places`; raises KernelError when live tiles do not fit or pinned tiles overlap."""
    everything = lives(trace)
    sbuf = [life for life in everything if life.tile.buffer == "sbuf"]
    psum = [life for life in everything if life.tile.buffer == "psum"]
    trace.places.update(_place_psum(trace, psum, arch))
    trace.places.update(_place_sbuf(trace, sbuf, arch))


# ---- PSUM


def _place_psum(trace: Trace, psum: list[Life], arch: Arch) -> dict[int, Place]:
    places: dict[int, Place] = {}
    live: list[Life] = []
    next_bank = 0
    for life in psum:
        live = [other for other in live if other.last >= life.first]
        banks = -(-life.tile.nbytes // arch.psum_bank_bytes)
        if life.tile.address is not None:
            places[life.tile.id] = _pinned(trace, life, live, places, arch)
        else:
            start = _free_banks(next_bank, banks, live, places, arch)
            if start is None:
                raise _capacity(trace, "psum", life, live, arch)
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
    for rotate in (True, False):
        places: dict[int, Place] = {}
        live: list[Life] = []
        pointer = 0
        for life in sbuf:
            live = [other for other in live if other.last >= life.first]
            if life.tile.address is not None:
                places[life.tile.id] = _pinned(trace, life, live, places, arch)
            else:
                byte = _fit(life.tile, live, places, pointer if rotate else 0, arch.sbuf_partition_bytes)
                if byte is None:
                    failure = _capacity(trace, "sbuf", life, live, arch)
                    break
                places[life.tile.id] = Place("sbuf", 0, byte)
                pointer = byte + life.tile.nbytes
            live.append(life)
        else:
            return places
    raise failure


def _fit(tile: Tile, live: list[Life], places: dict[int, Place], pointer: int, capacity: int) -> int | None:
    """Lowest free byte at or above `pointer`, else lowest free byte at all, for a tile that starts at partition 0."""
    taken = sorted(
        (places[other.tile.id].byte, places[other.tile.id].byte + other.tile.nbytes)
        for other in live
        if places[other.tile.id].partition < tile.partitions
    )
    for start, end in ((pointer, capacity), (0, capacity)):
        byte = start
        for low, high in taken:
            if byte + tile.nbytes <= low:
                break
            byte = max(byte, high)
        byte = -(-byte // 4) * 4
        if byte + tile.nbytes <= end and all(byte + tile.nbytes <= low or high <= byte for low, high in taken):
            return byte
    return None


# ---- pinned tiles and errors


def _pinned(trace: Trace, life: Life, live: list[Life], places: dict[int, Place], arch: Arch) -> Place:
    assert life.tile.address is not None
    tile, (partition, byte) = life.tile, life.tile.address
    where = trace.where(tile.where)
    capacity = arch.sbuf_partition_bytes if tile.buffer == "sbuf" else arch.psum_partition_bytes
    if partition + tile.partitions > arch.partitions or byte + tile.nbytes > capacity:
        raise KernelError(f"{tile} at address ({partition}, {byte}) leaves {tile.buffer}", rule="address", where=where)
    if tile.buffer == "psum" and byte % arch.psum_bank_bytes:
        raise KernelError(
            f"{tile} starts at byte {byte}, which is not a multiple of the bank size {arch.psum_bank_bytes}",
            rule="psum-bank",
            where=where,
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
                where=where,
            )
    return Place(tile.buffer, partition, byte)


def _capacity(trace: Trace, memory: str, life: Life, live: list[Life], arch: Arch) -> KernelError:
    capacity = arch.sbuf_partition_bytes if memory == "sbuf" else arch.psum_partition_bytes
    granule = 1 if memory == "sbuf" else arch.psum_bank_bytes

    def unit(tile: Tile) -> int:
        return -(-tile.nbytes // granule) * granule

    everything = sorted([*live, life], key=lambda entry: -unit(entry.tile))
    total = sum(unit(entry.tile) for entry in everything)
    lines = "".join(
        f"\n  {unit(entry.tile):>7} bytes  {entry.tile}  {trace.where(entry.tile.where)}" for entry in everything[:12]
    )
    more = f"\n  and {len(everything) - 12} more" if len(everything) > 12 else ""
    banks = f" in {arch.psum_banks} banks of {arch.psum_bank_bytes}" if memory == "psum" else ""
    return KernelError(
        f"{memory} on {arch.name} holds {capacity} bytes per partition{banks}, "
        f"the tiles live here take {total} on partition 0:{lines}{more}",
        rule=f"{memory}-capacity",
        hint="use smaller tiles, or let fewer of them live at once",
        where=trace.where(life.tile.where),
    )
