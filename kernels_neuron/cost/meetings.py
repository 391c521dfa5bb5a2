"""Where the programs of a launch meet: how long an exchange takes, and who waits there for whom."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from kernels_neuron.arch import Arch
from kernels_neuron.sim.trace import Trace

from .deps import queue_of
from .timeline import Timeline


@dataclass(frozen=True)
class Meeting:
    """A source line at which programs wait for each other: a collective, a send and receive, a barrier.

    times        how often, of the program that is there most often
    exchange_us  one exchange by itself, in the mean: hops and bytes; 0 for a barrier, which moves nothing
    waited_us    program -> how long it waited for the others, all its times together
    """

    where: str
    instruction: str
    times: int
    exchange_us: float
    waited_us: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """As `profile --json` prints it."""
        return dict(vars(self))


def program_names(traces: Sequence[Trace]) -> list[str]:
    """What tells the programs of one launch apart: "rank 1", "core 0" or "rank 1 core 0"; "core 0" for one alone."""
    ranks, cores = len({trace.rank for trace in traces}), len({trace.program for trace in traces})
    return [
        " ".join([f"rank {trace.rank}"] * (ranks > 1) + [f"core {trace.program}"] * (cores > 1 or ranks == 1))
        for trace in traces
    ]


def meetings(programs: Sequence[tuple[Trace, Timeline]], arch: Arch) -> list[Meeting]:
    """The lines at which programs meet, in the order of the first one that does; none for a program alone."""
    found: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for name, (trace, timeline) in zip(program_names([trace for trace, _ in programs]), programs, strict=True):
        for place, took in _met(trace, timeline, arch):
            found.setdefault(place, {}).setdefault(name, []).append(took)
    return [
        Meeting(
            where=where,
            instruction=instruction,
            times=max(len(took) for took in by_program.values()),
            exchange_us=fmean(exchange for took in by_program.values() for exchange, _ in took) / 1e3,
            waited_us={name: sum(waited for _, waited in took) / 1e3 for name, took in by_program.items()},
        )
        for (where, instruction), by_program in found.items()
    ]


def _met(trace: Trace, timeline: Timeline, arch: Arch) -> list[tuple[tuple[str, str], tuple[float, float]]]:
    """((line, instruction), (ns of the exchange, ns waited for the others)) of each meeting of one program."""
    steps: dict[int, list[int]] = {}
    for index in trace.meetings:
        steps.setdefault(trace.records[index].instruction, []).append(index)
    found = []
    for indices in steps.values():
        brings = [index for index in indices if not trace.records[index].writes]
        leaves = [index for index in indices if trace.records[index].writes]
        record = trace.records[indices[0]]
        exchange = max((timeline.seen[index] - timeline.start[index] for index in brings), default=0.0)
        waited = 0.0
        if leaves:
            wake = arch.engine(record.engine).wake_ns
            ready = max((timeline.seen[index] + wake for index in brings), default=_free(trace, timeline, leaves[0]))
            waited = max(0.0, timeline.start[leaves[0]] - ready)
        found.append(((trace.where(record.where), record.name), (exchange, waited)))
    return found


def _free(trace: Trace, timeline: Timeline, index: int) -> float:
    """When the queue of a record has ended what is before it."""
    queue = queue_of(trace.records[index])
    before = next((each for each in range(index - 1, -1, -1) if queue_of(trace.records[each]) == queue), -1)
    return timeline.end[before] if before >= 0 else 0.0
