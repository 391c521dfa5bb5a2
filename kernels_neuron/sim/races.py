"""Races: two programs touch the same HBM bytes, one of them writes, no barrier between. Reads finished traces."""

import warnings
from collections import defaultdict

import numpy as np

from kernels_neuron.errors import KernelError

from .tensor import NkiTensor
from .trace import Region, Trace, grain


class RaceWarning(UserWarning):
    """Two programs stored the same values in the same place, unordered: the result is right, the work is not."""


class ScatterWarning(RaceWarning):
    """A scatter stored different values in one row, in an order that no document states."""


def warn_of_repeats(name: str, dst: NkiTensor, indices: np.ndarray, values: np.ndarray, where: str) -> None:
    """Warn where a scatter brings one of the rows `indices` two different values, or two sums; `values` by row."""
    order = np.argsort(indices, kind="stable")
    same = np.flatnonzero(indices[order][1:] == indices[order][:-1])
    rows = np.ascontiguousarray(values).reshape(len(indices), -1).view(np.uint8)
    for first, second in zip(order[same], order[same + 1], strict=True):
        if name == "dma_compute" or not np.array_equal(rows[first], rows[second]):
            warnings.warn(
                f"{where}: {name} scatters rows {first} and {second} to row {indices[first]} of {dst!r}, and which one "
                "stays is not documented; give each row one index, or sum with dma_compute over unique ones",
                ScatterWarning,
                stacklevel=2,
            )
            return


def overlapping_writes(
    traces: list[Trace], *, barrier_orders: str = "data", sendrecv_orders: str = "everything"
) -> None:
    """Raise KernelError where one program writes HBM bytes that another one reads or writes between the same barriers.

    A barrier on a tensor orders what came before it in every program and what comes after; the others it leaves alone,
    and a sendrecv orders all of them, unless the switches of these names say otherwise. Programs that all do the same
    work, and store the same values in the same place, agree whatever their order: public kernels that do not use the
    grid are launched so, and get a RaceWarning.
    """
    agreed = _writes_that_agree(traces)
    _report_agreement(traces[0], agreed)
    accesses = [_accesses(trace, barrier_orders == "everything", sendrecv_orders == "everything") for trace in traces]
    for writer, mine in zip(traces, accesses, strict=True):
        written: dict[Place, set[Region]] = defaultdict(set)
        for index, region, is_write, epoch in mine:
            if is_write and (region, writer.hbm_digests.get(index)) not in agreed:
                written[region.tile, epoch].add(region)
        for other, theirs in zip(traces, accesses, strict=True):
            if other is not writer:
                _look_for(writer, other, written, theirs)


Place = tuple[int, int]  # an HBM tile, and how often it was ordered before


Access = tuple[int, Region, bool, int]  # record, bytes of an HBM tile, is a write, barriers passed before it


def _accesses(trace: Trace, barriers_order_all: bool, exchanges_order: bool) -> list[Access]:
    """Every access to HBM, with the number of barriers on that tile, and of exchanges, that came before it."""
    passed: dict[int | None, int] = {}
    exchanges = 0
    found: list[Access] = []
    for index, record in enumerate(trace.records):
        if index in trace.barriers:
            key = None if barriers_order_all else trace.barriers[index]
            passed[key] = passed.get(key, 0) + 1
            continue
        for regions, is_write in ((record.reads, False), (record.writes, True)):
            for region in regions:
                if not trace.tiles[region.tile].on_chip:
                    barriers = passed.get(None if barriers_order_all else region.tile, 0)
                    found.append((index, region, is_write, barriers + exchanges))
        # an exchange is a step that sends and one that receives; the second ends it
        if exchanges_order and record.writes and trace.meetings.get(index, ("",))[0] == "sendrecv":
            exchanges += 1
    return found


def _writes_that_agree(traces: list[Trace]) -> set[tuple[Region, int | None]]:
    """(region, checksum) of the HBM writes that every program makes."""
    each = [
        {
            (region, trace.hbm_digests.get(index))
            for index, record in enumerate(trace.records)
            for region in record.writes
            if index not in trace.barriers and not trace.tiles[region.tile].on_chip
        }
        for trace in traces
    ]
    return set.intersection(*each)


def _report_agreement(trace: Trace, agreed: set[tuple[Region, int | None]]) -> None:
    for index, region, is_write in trace.uses():
        if is_write and (region, trace.hbm_digests.get(index)) in agreed:
            warnings.warn(
                f"{trace.where(trace.records[index].where)}: every program writes the same bytes of "
                f"{trace.tiles[region.tile]}; give each its own rows by nl.program_id(0)",
                RaceWarning,
                stacklevel=2,
            )
            return


def _look_for(writer: Trace, other: Trace, written: dict[Place, set[Region]], theirs: list[Access]) -> None:
    touched: dict[Place, set[Region]] = defaultdict(set)
    for _, region, _, epoch in theirs:
        if (region.tile, epoch) in written:
            touched[region.tile, epoch].add(region)
    meeting = {
        (place, region)
        for place, regions in touched.items()
        for region in _meeting(other.tiles[place[0]].nbytes, written[place], regions)
    }
    for index, region, is_write, epoch in theirs if meeting else ():
        if ((region.tile, epoch), region) in meeting:
            record = other.records[index]
            raise KernelError(
                f"program {other.program} {'writes' if is_write else 'reads'} bytes of {other.tiles[region.tile]} "
                f"that program {writer.program} writes, and nothing orders the two",
                rule="race",
                hint="give each program its own rows by nl.program_id(0), or put a core_barrier on the tensor between",
                **other.located(record.where),
            )


def _meeting(nbytes: int, written: set[Region], touched: set[Region]) -> list[Region]:
    """Those of `touched` that share a byte with one of `written`."""
    piece = grain(nbytes, written | touched)
    mask = np.zeros(nbytes // piece, bool)
    for region in written:
        _window(mask, region.in_pieces(piece))[...] = True
    return [region for region in touched if _window(mask, region.in_pieces(piece)).any()]


def _window(mask: np.ndarray, region: Region) -> np.ndarray:
    shape = (*(count for _, count in region.steps), region.width)
    strides = (*(stride for stride, _ in region.steps), 1)
    return np.ndarray(shape, bool, mask.data, region.lo, strides)
