"""What an instruction waited for: data, space in a memory, its own queue, or an order somebody asked for."""

from typing import NamedTuple

from kernels_neuron.sim.trace import Record, Region, Trace

QUEUE, ORDER, PORT = "its queue", "order", "a memory port"
EXCHANGE, OTHERS = "an exchange", "the other programs"
SHARING_PORTS = {"vector", "scalar", "gpsimd"}


class Wait(NamedTuple):
    """What decided a start.

    on           "psum data", "sbuf space", ...; QUEUE behind another instruction; PORT where another engine held the
                 way to a memory; EXCHANGE with other programs or ranks, OTHERS who had not come to a barrier; ORDER
                 where nothing is shared
    instruction  of the record it waited for, with its source line
    """

    on: str
    instruction: str
    where: str

    def __str__(self) -> str:
        place = {QUEUE: "behind", PORT: "held by", OTHERS: "behind"}.get(self.on, "of")
        return f"{self.on} {place} {self.instruction} at {self.where}"


def wait_of(trace: Trace, index: int, cause: int) -> Wait | None:
    """Why record `index` waited for record `cause`; None where it waited for nothing."""
    if cause < 0:
        return None
    record, before = trace.records[index], trace.records[cause]
    if index in trace.meetings and record.writes:
        return Wait(EXCHANGE if cause in trace.meetings else OTHERS, before.name, trace.where(before.where))
    return Wait(_what(trace, record, before), before.name, trace.where(before.where))


def _what(trace: Trace, record: Record, before: Record) -> str:
    wrote = {region.tile for region in before.writes}
    for region in record.reads:
        if region.tile in wrote:
            return f"{_memory(trace, region.tile)} data"
    if before.engine == record.engine and before.price.transfer is None and record.price.transfer is None:
        return QUEUE
    used = (*before.reads, *before.writes)
    for region in record.writes:
        if any(_same_bytes(trace, region, other) for other in used):
            return f"{_memory(trace, region.tile)} space"
    if before.engine == record.engine:
        return QUEUE
    return PORT if {before.engine, record.engine} <= SHARING_PORTS else ORDER


def _same_bytes(trace: Trace, region: Region, other: Region) -> bool:
    """Whether two regions are of one tile, or of tiles placed on the same bytes."""
    if region.tile == other.tile:
        return True
    here, there = trace.places.get(region.tile), trace.places.get(other.tile)
    if here is None or there is None or here.memory != there.memory:
        return False
    p0, q0, lo, low = here.partition, there.partition, here.byte, there.byte
    apart = region.p1 + p0 <= other.p0 + q0 or other.p1 + q0 <= region.p0 + p0
    return not apart and region.lo + lo < other.hi + low and other.lo + low < region.hi + lo


def _memory(trace: Trace, tile: int) -> str:
    buffer = trace.tiles[tile].buffer
    return buffer if trace.tiles[tile].on_chip else "hbm"
