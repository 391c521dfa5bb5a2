"""Joining the programs of one launch: where they meet, and what the kernel itself orders, become waits like others.

Steps of one meeting carry one label in Trace.meetings. Those that write nothing bring data: they leave when the others
have room for it, and everybody's later steps wait for all of them. A barrier brings nothing: it waits for what the
others' barriers wait for.
"""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from kernels_neuron.errors import KernelError
from kernels_neuron.sim.trace import Trace

from .deps import Preds, queue_of


class _Part(NamedTuple):
    """One program's steps in a meeting, as (record, record in the joined list)."""

    trace: Trace
    base: int
    brings: list[int]
    leaves: list[int]


def as_one(traces: Sequence[Trace]) -> Trace:
    """The records of all programs in one trace, in the order in which a joined timeline counts them."""
    if len(traces) == 1:
        return traces[0]
    one = Trace(traces[0].arch, 0)
    for trace in traces:
        base = len(one.lines)
        one.lines += trace.lines
        one.meetings |= {len(one.records) + index: label for index, label in trace.meetings.items()}
        one.records += [record._replace(where=base + record.where) for record in trace.records]
        one.tiles |= trace.tiles
        one.places |= trace.places
        one.instructions += trace.instructions
    return one


def join(traces: Sequence[Trace], preds: Sequence[Preds]) -> Preds:
    """The waits of all programs in one list, records counted on from one program to the next."""
    first = [sum(len(trace.records) for trace in traces[:core]) for core in range(len(traces))]
    joined = [
        tuple([base + pred for pred in before]) if base else before
        for base, found in zip(first, preds, strict=True)
        for before in found
    ]
    for base, trace in zip(first, traces, strict=True):
        for earlier, later in ordered(trace):
            _wait(joined, base + later, [base + earlier])
    for parts in _meetings(traces, first):
        _meet(parts, joined)
    return joined


def ordered(trace: Trace) -> list[tuple[int, int]]:
    """(earlier, later) records of the instructions that the kernel orders beyond its data (Trace.edges).

    nl.no_reorder (Trace.in_order) needs nothing: it keeps the order of issue, which queues here never leave.
    """
    if not trace.edges:
        return []
    steps: dict[int, list[int]] = {}
    for index, record in enumerate(trace.records):
        steps.setdefault(record.instruction, []).append(index)
    return [
        (step, steps[consumer][0])
        for producer, consumer in trace.edges
        if producer in steps and consumer in steps
        for step in steps[producer]
    ]


def refuse_circles(traces: Sequence[Trace], joined: Preds) -> None:
    """Raise KernelError where an order that the kernel asks for makes records wait for each other.

    Data and queues point forwards, so only an order against the order of issue can close a circle.
    """
    if all(earlier < later for trace in traces for earlier, later in ordered(trace)):
        return
    steps = [(core, trace, record) for core, trace in enumerate(traces) for record in trace.records]
    graph = {index: [*before] for index, before in enumerate(joined)}
    last: dict[tuple[int, str], int] = {}
    for index, (core, _, record) in enumerate(steps):
        if (core, record.engine) in last:
            graph[index].append(last[core, record.engine])
        last[core, record.engine] = index
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = [steps[index] for index in sorted(set(error.args[1]))]
        names = " and ".join(f"{record.name} at {trace.where(record.where)}" for _, trace, record in circle)
        _, trace, first = circle[0]
        raise KernelError(
            f"{names} wait for each other",
            rule="deadlock",
            hint="order them as they are issued: an engine takes its instructions one after the other",
            **trace.located(first.where),
        ) from None


def _meetings(traces: Sequence[Trace], first: Sequence[int]) -> list[list[_Part]]:
    """The meetings of all programs: those of one label by their order in each program."""
    found: dict[tuple[object, int], list[_Part]] = {}
    for trace, base in zip(traces, first, strict=True):
        times: dict[object, tuple[int, int]] = {}  # label -> (its last instruction, how many before)
        for index, label in trace.meetings.items():
            record = trace.records[index]
            last, turn = times.get(label, (record.instruction, 0))
            turn += last != record.instruction
            times[label] = record.instruction, turn
            parts = found.setdefault((label, turn), [])
            if not parts or parts[-1].trace is not trace:
                parts.append(_Part(trace, base, [], []))
            (parts[-1].leaves if record.writes else parts[-1].brings).append(base + index)
    return list(found.values())


def _meet(parts: list[_Part], joined: Preds) -> None:
    brought = [step for part in parts for step in part.brings]
    own = {leave: joined[leave] for part in parts for leave in part.leaves}
    for part in parts:
        others = [leave for other in parts if other is not part for leave in other.leaves]
        room = [pred for leave in others for pred in own[leave] if pred not in brought]
        for step in part.brings:
            _wait(joined, step, room)
        if not brought:
            arrived = [step for other in parts if other is not part for step in _before(other)]
            room += arrived
        for leave in part.leaves:
            _wait(joined, leave, brought or room)


def _before(part: _Part) -> list[int]:
    """The record before a barrier in its queue."""
    records, index = part.trace.records, part.leaves[0] - part.base
    queue = queue_of(records[index])
    step = next((step for step in range(index - 1, -1, -1) if queue_of(records[step]) == queue), -1)
    return [] if step < 0 else [part.base + step]


def _wait(joined: Preds, index: int, more: Sequence[int]) -> None:
    joined[index] = tuple(sorted({*joined[index], *more} - {index}))
