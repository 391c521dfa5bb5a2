"""What an instruction waited for: data, space in a memory, its own queue, or an order somebody asked for."""

from typing import NamedTuple

from kernels_neuron.sim.trace import Record, Trace

QUEUE, ORDER = "its queue", "order"


class Wait(NamedTuple):
    """What decided a start.

    on           "psum data", "sbuf space", ...; QUEUE behind another instruction, ORDER where no byte is shared
    instruction  of the record it waited for, with its source line
    """

    on: str
    instruction: str
    where: str

    def __str__(self) -> str:
        place = "behind" if self.on == QUEUE else "of"
        return f"{self.on} {place} {self.instruction} at {self.where}"


def wait_of(trace: Trace, index: int, cause: int) -> Wait | None:
    """Why record `index` waited for record `cause`; None where it waited for nothing."""
    if cause < 0:
        return None
    record, before = trace.records[index], trace.records[cause]
    return Wait(_what(trace, record, before), before.name, trace.where(before.where))


def _what(trace: Trace, record: Record, before: Record) -> str:
    wrote = {region.tile for region in before.writes}
    for region in record.reads:
        if region.tile in wrote:
            return f"{_memory(trace, region.tile)} data"
    if before.engine == record.engine and before.price.transfer is None and record.price.transfer is None:
        return QUEUE
    used = {_memory(trace, region.tile) for region in (*before.reads, *before.writes)}
    for region in record.writes:
        memory = _memory(trace, region.tile)
        # a tile that stands where the other record's tile stood, or that very tile
        if memory in used and (trace.tiles[region.tile].on_chip or region.tile in wrote):
            return f"{memory} space"
    return QUEUE if before.engine == record.engine else ORDER


def _memory(trace: Trace, tile: int) -> str:
    buffer = trace.tiles[tile].buffer
    return buffer if trace.tiles[tile].on_chip else "hbm"
