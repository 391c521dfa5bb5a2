"""Chrome trace JSON of a profile, which Perfetto and chrome://tracing open: a track per engine and per DMA ring."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernels_neuron.arch import chip
from kernels_neuron.sim.trace import Trace

from .meetings import program_names
from .timeline import QUEUES, Timeline

TRACKS = {name: position for position, name in enumerate((*QUEUES, *(f"{name} dma" for name in QUEUES)))}


def chrome_trace(programs: list[tuple[Trace, Timeline]]) -> dict[str, Any]:
    """The trace as one JSON value; each program is a process, times in microseconds."""
    names = program_names([trace for trace, _ in programs])
    events = [
        event
        for pid, (name, (trace, timeline)) in enumerate(zip(names, programs, strict=True))
        for event in _events(pid, name, trace, timeline)
    ]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def write_chrome_trace(path: Path | str, programs: list[tuple[Trace, Timeline]]) -> None:
    """Write the trace of `programs` to a file."""
    Path(path).write_text(json.dumps(chrome_trace(programs)))


def _events(pid: int, program: str, trace: Trace, timeline: Timeline) -> Iterator[dict[str, Any]]:
    used = set()
    for index, record in enumerate(trace.records):
        used.add(record.engine)
        where = trace.where(record.where)
        start, end = timeline.start[index], timeline.end[index]
        name = record.name if record.price.transfer is None else f"{record.name} trigger"
        yield _span(pid, record.engine, name, start, end, where)
        if index in timeline.tables:
            yield _span(pid, "scalar", f"activation table {record.price.table}", *timeline.tables[index], where)
        if index in timeline.data:
            track = f"{record.engine} dma"
            used.add(track)
            transfer = record.price.transfer
            assert transfer is not None
            size = transfer.descriptors * transfer.descriptor_bytes
            yield _span(pid, track, record.name, *timeline.data[index], where, kind=transfer.direction, bytes=size)
    basis = "estimated" if chip(trace.arch).validated else "estimated, unvalidated"
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": f"{trace.arch} {program} ({basis})"}}
    for track in sorted(used, key=TRACKS.__getitem__):
        tid = TRACKS[track]
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": track}}
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _span(pid: int, track: str, name: str, start: float, end: float, where: str, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": pid,
        "tid": TRACKS[track],
        "name": name,
        "cat": track.split()[-1],
        "ts": start / 1e3,
        "dur": max(0.0, end - start) / 1e3,
        "args": {"where": where, **args},
    }
