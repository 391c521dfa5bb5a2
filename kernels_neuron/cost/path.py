"""The critical path: which source lines the time of a timeline is made of."""

from collections import Counter
from dataclasses import dataclass, field

from kernels_neuron.sim.trace import Record, Trace

from .timeline import Timeline
from .waits import Wait, wait_of


@dataclass(frozen=True)
class Segment:
    """Time that one source line holds the path, and what it waited for before it began.

    waits  what decided its starts, and how often, most frequent first; none for what begins with the kernel

    A path that begins on a queue that starts later than others begins with "queue not begun".
    """

    where: str
    instruction: str
    engine: str
    us: float
    share: float
    times: int
    waits: tuple[tuple[Wait, int], ...] = ()

    def __str__(self) -> str:
        waiting = f", waiting for {self.waits[0][0]}" if self.waits else ""
        times = f"in {self.times}" if self.times > 1 else "once"
        return f"{self.share:.0%} {self.engine} {self.instruction} at {self.where}, {self.us:.2f} us {times}{waiting}"


@dataclass
class _Held:
    """What a line has of the path so far."""

    ns: float = 0.0
    times: int = 0
    waits: Counter[Wait] = field(default_factory=Counter)


def critical_path(trace: Trace, timeline: Timeline) -> list[Segment]:
    """The path that ends last, backwards through what decided each start, summed by source line, longest first.

    A record holds the path from its own start to the start of the record it decided.
    """
    if not trace.records:
        return []
    spent: dict[tuple[str, str, str], _Held] = {}

    def spend(where: str, name: str, engine: str, ns: float) -> _Held:
        held = spent.setdefault((where, name, engine), _Held())
        held.ns, held.times = held.ns + ns, held.times + 1
        return held

    index, until = _last(timeline), timeline.body_ns
    while index >= 0:
        record, start = trace.records[index], timeline.start[index]
        where = trace.where(record.where)
        held = spend(where, record.name, unit_of(record), until - start)
        if wait := wait_of(trace, index, timeline.cause[index]):
            held.waits[wait] += 1
        until = start
        table = timeline.tables.get(index)
        if table and table[1] >= start:
            spend(where, f"activation table {record.price.table}", "scalar", start - table[0])
            until = table[0]
        index = timeline.cause[index]
    if until > 0:  # what the path begins with is the first of a queue that does not begin with the others
        spend(f"before {where}", "queue not begun", record.engine, until)
    total = timeline.body_ns or 1.0
    segments = [
        Segment(*key, held.ns / 1e3, held.ns / total, held.times, tuple(held.waits.most_common()))
        for key, held in spent.items()
    ]
    return sorted(segments, key=lambda segment: -segment.us)


def _last(timeline: Timeline) -> int:
    ends = [max(end, timeline.data.get(index, (0.0, 0.0))[1]) for index, end in enumerate(timeline.end)]
    return max(range(len(ends)), key=ends.__getitem__)


def unit_of(record: Record) -> str:
    """The engine that does the work of a record: a transfer's is "dma", whichever queue triggers it."""
    return "dma" if record.price.transfer is not None else record.engine
