"""The critical path: which source lines the time of a timeline is made of."""

from dataclasses import dataclass

from kernels_neuron.sim.trace import Record, Trace

from .timeline import Timeline


@dataclass(frozen=True)
class Segment:
    """Time that one source line holds the path, and whether it does so working or being waited for by its own queue."""

    where: str
    instruction: str
    engine: str
    us: float
    share: float
    times: int


def critical_path(trace: Trace, timeline: Timeline) -> list[Segment]:
    """The path that ends last, backwards through what decided each start, summed by source line, longest first.

    A record holds the path from its own start to the start of the record it decided.
    """
    if not trace.records:
        return []
    spent: dict[tuple[str, str, str], tuple[float, int]] = {}

    def spend(where: str, name: str, engine: str, ns: float) -> None:
        before, times = spent.get((where, name, engine), (0.0, 0))
        spent[where, name, engine] = before + ns, times + 1

    index, until = _last(timeline), timeline.body_ns
    while index >= 0:
        record, start = trace.records[index], timeline.start[index]
        where = trace.where(record.where)
        spend(where, record.name, _unit(record), until - start)
        until = start
        table = timeline.tables.get(index)
        if table and table[1] >= start:
            spend(where, f"activation table {record.price.table}", "scalar", start - table[0])
            until = table[0]
        index = timeline.cause[index]
    if until > 0:
        spend("launch", "start of the queues", "-", until)
    total = timeline.body_ns or 1.0
    segments = [Segment(*key, ns / 1e3, ns / total, times) for key, (ns, times) in spent.items()]
    return sorted(segments, key=lambda segment: -segment.us)


def _last(timeline: Timeline) -> int:
    ends = [max(end, timeline.data.get(index, (0.0, 0.0))[1]) for index, end in enumerate(timeline.end)]
    return max(range(len(ends)), key=ends.__getitem__)


def _unit(record: Record) -> str:
    return "dma" if record.price.transfer is not None else record.engine
