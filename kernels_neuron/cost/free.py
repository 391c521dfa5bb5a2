"""What would help most if it were free: the timeline again, with one engine, kind of instruction or line at no cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from kernels_neuron.sim.trace import Price, Record, Trace

from .path import unit_of
from .timeline import Plan, phases_of, replay

NOTHING = Price(0.0, 0.0)
TABLE_LOAD = "activation table load"
# of each sort, the candidates that take the most time of their own are tried: fewer in a long trace
MOST, FEWEST, AFFORDED_RECORDS = 8, 2, 500_000
# records replayed in one pass over the candidates: beyond it, only the middle throttle phase is
MANY_RECORDS = 40_000

Label = Callable[[Trace, Record], str]


@dataclass(frozen=True)
class Help:
    """What the body would be without the cost of one thing.

    part      "engine", "instruction" or "line"
    name      of the engine, the kind of instruction, or the source line
    saved_us  body less the body without it; below 0 where TensorE's throttle punishes the shorter pauses
    share     of the body
    """

    part: str
    name: str
    saved_us: float
    share: float

    def to_json(self) -> dict[str, Any]:
        """As `profile --json` prints it."""
        return {"part": self.part, "name": self.name, "saved_us": self.saved_us, "share": self.share}


def kind_of(record: Record) -> str:
    """The instruction's name, of a transfer with its direction."""
    transfer = record.price.transfer
    return record.name if transfer is None else f"{record.name} {transfer.direction}"


LABELS: dict[str, Label] = {
    "engine": lambda trace, record: unit_of(record),
    "instruction": lambda trace, record: kind_of(record),
    "line": lambda trace, record: trace.where(record.where),
}


def would_help(trace: Trace, plan: Plan, spent_ns: Sequence[float]) -> list[Help]:
    """The candidates by what they save, most first. They do not add up: two may wait for each other.

    trace, plan  of all programs of a launch, joined
    spent_ns     how long each record takes by itself, which chooses the candidates

    A free instruction still waits for its inputs and is waited for; a free transfer arrives when it is triggered.
    """
    records = max(1, len(plan.prices))
    most = max(FEWEST, min(MOST, AFFORDED_RECORDS // (len(LABELS) * records)))
    tried = [(part, name, label) for part, label in LABELS.items() for name in _longest(trace, spent_ns, label)[:most]]
    phases = phases_of(plan)
    chosen = [phase / phases for phase in range(phases)]
    if len(tried) * records > MANY_RECORDS:
        chosen = [phases // 2 / phases]
    body = _body_us(plan, chosen)
    bodies: dict[bytes, float] = {}  # an engine, a kind and a line are often the same records
    found = []
    for part, name, label in tried:
        free = bytes(label(trace, record) == name for record in trace.records)
        if free not in bodies:
            bodies[free] = _body_us(_without(plan, free), chosen)
        found.append((part, name, body - bodies[free]))
    if any(price.table for price in plan.prices):
        untabled = replace(plan, prices=[_untabled(price) for price in plan.prices])
        found.append(("instruction", TABLE_LOAD, body - _body_us(untabled, chosen)))
    ranked = sorted(found, key=lambda each: -each[2])
    return [Help(part, name, saved, saved / body if body else 0.0) for part, name, saved in ranked]


def _longest(trace: Trace, spent_ns: Sequence[float], label: Label) -> list[str]:
    total: dict[str, float] = {}
    for record, ns in zip(trace.records, spent_ns, strict=True):
        name = label(trace, record)
        total[name] = total.get(name, 0.0) + ns
    return sorted(total, key=lambda name: -total[name])


def _without(plan: Plan, free: bytes) -> Plan:
    """The plan with the records that are 1 in `free` at no cost."""
    prices = [NOTHING if is_free else price for is_free, price in zip(free, plan.prices, strict=True)]
    return replace(plan, prices=prices)


def _untabled(price: Price) -> Price:
    return replace(price, table="") if price.table else price


def _body_us(plan: Plan, phases: Sequence[float]) -> float:
    return fmean(replay(plan, phase).body_ns for phase in phases) / 1e3
