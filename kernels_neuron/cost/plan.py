"""What of a replay does not depend on the throttle phase: queues, prices, and who waits for whom."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernels_neuron.arch import Arch
from kernels_neuron.sim.allocator import fewer_collections
from kernels_neuron.sim.trace import Price, Trace

from .cores import join, refuse_circles
from .deps import dependencies
from .dma import Lanes, lanes
from .flights import Flight, flight
from .ports import ports_of

QUEUES = ("tensor", "vector", "scalar", "gpsimd", "sync")
_POSITION = {name: position for position, name in enumerate(QUEUES)}


@dataclass(frozen=True)
class Plan:
    """The records of one launch, those of its second core behind those of its first.

    prices   of each record
    queue_of record -> number of its queue, len(QUEUES) to a core
    queues   number of a queue -> its records in program order
    preds    record -> the records it waits for
    succs    record -> the records of other queues, or behind a DMA, that wait for it
    waits    record -> how many such records it waits for
    lanes    how transfers fall on the DMA engines
    flights  record -> what its transfer does there
    first    first record of each core, and one past the last record
    ports    record -> the memory ports it holds while it streams, which another engine of the core wants, too
    """

    arch: Arch
    prices: Sequence[Price]
    queue_of: Sequence[int]
    queues: list[list[int]]
    preds: Sequence[tuple[int, ...]]
    succs: list[Sequence[int]]
    waits: Sequence[int]
    lanes: Lanes
    flights: Mapping[int, Flight]
    first: tuple[int, ...]
    ports: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def cores(self) -> int:
        """Physical cores that run at once and share HBM."""
        return len(self.first) - 1


def plan(trace: Trace, arch: Arch) -> Plan:
    """The plan of one program that runs alone."""
    return plan_launch([trace], arch)


@fewer_collections()
def plan_launch(traces: Sequence[Trace], arch: Arch) -> Plan:
    """The plan of all programs of one launch, joined where they meet.

    Raises KernelError where a schedule of the kernel makes instructions wait for each other.
    """
    prices = [record.price for trace in traces for record in trace.records]
    engines = [record.engine for trace in traces for record in trace.records]
    preds = join(traces, [dependencies(trace) for trace in traces])
    refuse_circles(traces, preds)
    counts = [len(trace.records) for trace in traces]
    ports: dict[int, tuple[int, ...]] = {}
    for core, trace in enumerate(traces):
        base = sum(counts[:core])
        ports |= {base + index: held for index, held in ports_of(trace, arch).items()}
    return make_plan(arch, prices, engines, preds, counts, ports)


def make_plan(
    arch: Arch,
    prices: Sequence[Price],
    engines: Sequence[str],
    preds: Sequence[tuple[int, ...]],
    counts: Sequence[int] | None = None,
    ports: Mapping[int, tuple[int, ...]] | None = None,
) -> Plan:
    """A plan from records in plain form: price, engine and predecessors of each; `counts` of them on each core."""
    counts = [len(prices)] if counts is None else counts
    first = tuple(sum(counts[:core]) for core in range(len(counts) + 1))
    queue_of = array("H")
    for core, count in enumerate(counts):
        base = core * len(QUEUES)
        queue_of.extend(base + _POSITION[engine] for engine in engines[first[core] : first[core] + count])
    queues: list[list[int]] = [[] for _ in range(len(counts) * len(QUEUES))]
    succs: list[Sequence[int]] = [()] * len(prices)
    waits = array("I", bytes(4 * len(prices)))
    for index, queue in enumerate(queue_of):
        queues[queue].append(index)
        for pred in preds[index]:
            # what the queue itself issued before is known by then, unless it is a transfer
            if pred > index or queue_of[pred] != queue or prices[pred].transfer is not None:
                waits[index] += 1
                if not succs[pred]:
                    succs[pred] = [index]
                else:
                    succs[pred].append(index)  # type: ignore[attr-defined]
    transfers = {index: price.transfer for index, price in enumerate(prices) if price.transfer is not None}
    found = lanes(transfers.values(), arch)
    kinds = {transfer: flight(transfer, found, arch) for transfer in found.shares}
    flights = {index: kinds[transfer] for index, transfer in transfers.items()}
    return Plan(arch, prices, queue_of, queues, preds, succs, waits, found, flights, first, ports or {})
