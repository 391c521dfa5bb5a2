"""Races: two programs touch the same HBM bytes, one of them writes, no barrier between. Reads finished traces."""

import numpy as np

from kernels_neuron.errors import KernelError

from .trace import Region, Trace


def overlapping_writes(traces: list[Trace]) -> None:
    """Raise KernelError where one program writes HBM bytes that another one reads or writes.

    Programs that all do the same work, and store the same values in the same place, agree whatever their order: public
    kernels that do not use the grid are launched so.
    """
    agreed = _writes_that_agree(traces)
    for writer in traces:
        touched: dict[int, np.ndarray] = {}
        for index, record in enumerate(writer.records):
            for region in record.writes:
                tile = writer.tiles[region.tile]
                if not tile.on_chip and (region, writer.hbm_digests.get(index)) not in agreed:
                    mask = touched.setdefault(tile.id, np.zeros(tile.nbytes, bool))
                    _window(mask, region)[...] = True
        for other in traces:
            if other is not writer:
                _look_for(writer, other, touched)


def _writes_that_agree(traces: list[Trace]) -> set[tuple[Region, int | None]]:
    """(region, checksum) of the HBM writes that every program makes."""
    each = [
        {
            (region, trace.hbm_digests.get(index))
            for index, record in enumerate(trace.records)
            for region in record.writes
            if not trace.tiles[region.tile].on_chip
        }
        for trace in traces
    ]
    return set.intersection(*each)


def _look_for(writer: Trace, other: Trace, touched: dict[int, np.ndarray]) -> None:
    for index, region, is_write in other.uses():
        mask = touched.get(region.tile)
        if mask is not None and _window(mask, region).any():
            record = other.records[index]
            raise KernelError(
                f"program {other.program} {'writes' if is_write else 'reads'} bytes of {other.tiles[region.tile]} "
                f"that program {writer.program} writes, and nothing orders the two",
                rule="race",
                hint="give each program its own rows by nl.program_id(0)",
                where=other.where(record.where),
            )


def _window(mask: np.ndarray, region: Region) -> np.ndarray:
    shape = (*(count for _, count in region.steps), region.width)
    strides = (*(stride for stride, _ in region.steps), 1)
    return np.ndarray(shape, bool, mask.data, region.lo, strides)
