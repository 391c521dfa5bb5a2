"""When everything happens: an event-driven replay of one launch on the in-order queues and DMA engines of its cores.

An instruction starts when its queue reaches it and everything it waits for is visible; its result is visible after its
latency and the semaphore. Compute engines need no arbitration, so their times follow as soon as their inputs are known;
only DMA transfers, which compete for engines and for HBM, go through the event heap.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from kernels_neuron.sim.allocator import fewer_collections
from kernels_neuron.sim.trace import Price

from .dma import Chunk, make_lanes
from .flights import Flight
from .plan import QUEUES, Plan, make_plan, plan, plan_launch
from .ports import Port
from .queues import Queue, ScalarQueue, Tables, TensorQueue
from .throttle import PHASES

ENGINES = (*QUEUES[:4], "dma")
LONG = 20_000  # records from which phases are left out that tell nothing
ALIKE = 1e-3  # relative difference of two bodies below which they do not

__all__ = (
    "ENGINES",
    "QUEUES",
    "Plan",
    "Timeline",
    "make_plan",
    "phases_of",
    "plan",
    "plan_launch",
    "replay",
    "replays",
    "split",
)


class Packets(Mapping[int, tuple[float, float]]):
    """Record -> (first, last) data packet of its transfer, in arrays over all records."""

    __slots__ = ("first", "last", "transfers")

    def __init__(self, transfers: Mapping[int, Flight], count: int) -> None:
        self.transfers = transfers
        self.first, self.last = array("d", bytes(8 * count)), array("d", bytes(8 * count))

    def __getitem__(self, index: int) -> tuple[float, float]:
        if index not in self.transfers:
            raise KeyError(index)
        return self.first[index], self.last[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self.transfers)

    def __len__(self) -> int:
        return len(self.transfers)

    def latest(self) -> float:
        """When the last packet of all arrives."""
        return max(self.last, default=0.0)


@dataclass
class Timeline:
    """The outcome of one replay, times in ns from the start of all queues.

    start    a record leaves its queue (of a matmul: starts to stream; of a DMA: its trigger starts)
    end      last write (of a DMA: end of the trigger on its queue)
    seen     its result is visible to a waiting engine, whose wake time comes on top
    cause    the record that decided the start: one it waited for, or the one before it in its queue; -1 for none
    data     record -> (first, last) data packet of its transfer
    tables   record -> (start, end) of the activation table load before it
    busy     engine -> ns with work, "dma" as the mean of its engines; of several cores their mean
    body_ns  to the last data packet, or the last write of an engine where that is later
    """

    start: Sequence[float]
    end: Sequence[float]
    seen: Sequence[float]
    cause: Sequence[int]
    data: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    tables: Tables = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    body_ns: float = 0.0


def phases_of(plan: Plan) -> int:
    """How many throttle phases tell apart: all of them with TensorE work on a throttled chip, else one."""
    return PHASES if plan.arch.throttled and any(price.pe_cycles for price in plan.prices) else 1


@fewer_collections()
def replays(plan: Plan) -> tuple[list[float], Timeline]:
    """The body in ns at each throttle phase, and the timeline of the middle one.

    A long launch is replayed at the first and the middle phase, and at the others only where these two tell apart.
    """
    phases = phases_of(plan)
    middle = replay(plan, phases // 2 / phases)
    if phases == 1:
        return [middle.body_ns], middle
    bodies = {phases // 2: middle.body_ns, 0: replay(plan).body_ns}
    alike = abs(bodies[0] - middle.body_ns) <= ALIKE * middle.body_ns
    if len(plan.prices) < LONG or not alike:
        for phase in set(range(phases)) - set(bodies):
            bodies[phase] = replay(plan, phase / phases).body_ns
    return [bodies[phase] for phase in sorted(bodies)], middle


def replay(plan: Plan, phase: float = 0.0) -> Timeline:
    """Run the plan with the throttle windows shifted by `phase` of a window; those of two cores are assumed in step."""
    return _Replay(plan, phase).run()


def split(plan: Plan, timeline: Timeline) -> list[Timeline]:
    """The timeline of each core by itself, records counted from 0; what waited for another core has no cause."""
    if plan.cores == 1:
        return [timeline]
    return [_part(plan, timeline, core) for core in range(plan.cores)]


def _part(plan: Plan, timeline: Timeline, core: int) -> Timeline:
    low, high = plan.first[core : core + 2]
    start, end, seen = (times[low:high] for times in (timeline.start, timeline.end, timeline.seen))
    cause = [index - low if low <= index < high else -1 for index in timeline.cause[low:high]]
    data = {index - low: span for index, span in timeline.data.items() if low <= index < high}
    tables = {index - low: span for index, span in timeline.tables.items() if low <= index < high}
    busy = {name: timeline.busy[f"{name} {core}"] for name in ENGINES}
    arrived = max((last for _, last in data.values()), default=0.0)
    return Timeline(start, end, seen, cause, data, tables, busy, max(max(end, default=0.0), arrived))


class _Replay:
    """One replay in progress."""

    def __init__(self, plan: Plan, phase: float) -> None:
        count = len(plan.prices)
        self.plan, self.arch = plan, plan.arch
        nothing = bytes(8 * count)
        self.start, self.end, self.seen = array("d", nothing), array("d", nothing), array("d", nothing)
        self.cause = array("q", nothing)
        self.data = Packets(plan.flights, count)
        self.unknown = array("I", plan.waits)
        self.queues = _queues(plan, phase)
        self.lanes = make_lanes(plan.lanes, plan.arch, plan.cores)
        self.lanes_per_core = len(plan.lanes.engines)
        self.left: dict[int, int] = {}  # record -> parts of its transfer under way
        # time, order, lane, and a record with the number of its part, or -1 with the version of the lane
        self.events: list[tuple[float, int, int, int, int]] = []
        self.order = 0

    def run(self) -> Timeline:
        self._advance(list(range(len(self.queues))))
        events, lanes = self.events, self.lanes
        while events:
            time, _, lane, record, number = heappop(events)
            if record >= 0:
                self._arrive(time, lane, record, number)
            elif number == lanes[lane].version:
                for chunk in lanes[lane].step(time):
                    self._part_done(chunk.record, time)
                self._reschedule(lane)
        return self._finish()

    # ---- queues

    def _advance(self, todo: list[int]) -> None:
        """Start whatever can be started, beginning with the heads of the queues `todo`."""
        plan, unknown = self.plan, self.unknown
        prices, preds, succs, queue_of = plan.prices, plan.preds, plan.succs, plan.queue_of
        starts, ends, seen, causes = self.start, self.end, self.seen, self.cause
        while todo:
            number = todo.pop()
            queue = self.queues[number]
            records, position = queue.records, queue.head
            before = records[position - 1] if position else -1
            while position < len(records):
                index = records[position]
                if unknown[index]:
                    break
                held, cause = 0.0, -1  # when the inputs are there, and which of them came last
                for pred in preds[index]:
                    if seen[pred] > held:
                        held, cause = seen[pred], pred
                if cause >= 0:
                    held += queue.wake
                price = prices[index]
                if price.transfer is not None:
                    start, end = self._trigger(queue, index, price, held)
                else:
                    queue.triggered = False
                    start, end = queue.wait(price, held) if price.front else queue.issue(index, price, held)
                    seen[index] = end + queue.set
                    for succ in succs[index]:
                        unknown[succ] -= 1
                        if not unknown[succ] and queue_of[succ] != number:
                            todo.append(queue_of[succ])
                starts[index], ends[index] = start, end
                if queue.behind >= 0:
                    causes[index], queue.behind = queue.behind, -1
                else:
                    causes[index] = cause if cause >= 0 and held >= start else before
                before = index
                position += 1
            queue.head = position

    # ---- DMA

    def _trigger(self, queue: Queue, index: int, price: Price, held: float) -> tuple[float, float]:
        """(start, end) of the trigger of a transfer, which sets out. ScalarE's front end passes queued instructions."""
        arch, flight = self.arch, self.plan.flights[index]
        software, hardware = flight.dge == "sw", flight.dge == "hw"
        free = queue.free if software else queue.trigger
        start = trigger = held if held > free else free
        if software:
            queue.free = start + price.issue_ns
            trigger = max(start + arch.dma_generation_ns, queue.trigger)
            queue.trigger = trigger + price.issue_ns
            end = trigger + arch.dma_software_visible_ns
        else:
            # a hardware trigger right behind another one takes longer
            behind = arch.dma_issue_behind_ns if hardware and queue.triggered and start == free else 0.0
            queue.trigger = start + price.issue_ns + behind
            end = start + behind + price.latency_ns
            queue.front = end + (arch.dma_front_end_ns if hardware else 0.0)
            if queue.front > queue.free and not isinstance(queue, ScalarQueue):
                queue.free = queue.front
        queue.triggered = hardware
        self._set_out(index, flight, trigger + flight.first_packet_ns)
        return start, end

    def _set_out(self, index: int, flight: Flight, begin: float) -> None:
        """Send the parts of a transfer to their lanes."""
        base = self.plan.queue_of[index] // len(QUEUES) * self.lanes_per_core
        self.left[index] = len(flight.parts)
        for number, part in enumerate(flight.parts):
            self._push(begin + part.delay_ns, base + part.lane, index, number)
        self.data.first[index] = begin + flight.starts_ns
        self.data.last[index] = begin
        if not flight.parts:
            self._push(begin, -1, index, 0)

    def _arrive(self, time: float, lane: int, index: int, number: int) -> None:
        """The first packet of a part is due: it joins its ring."""
        if lane < 0:
            self._visible(index, time)
            return
        flight, server, ring = self.plan.flights[index], self.lanes[lane], self.plan.queue_of[index]
        part, before = flight.parts[number], server.rings.get(ring)
        if before:  # what waits in a ring changes nothing yet
            ready = time + flight.queued_ns
            server.join(time, ring, Chunk(index, part.work_ns, part.nbytes, part.behind_ns, ready))
            return
        stall = part.first_ns if before is None else part.idle_ns
        server.join(time, ring, Chunk(index, part.work_ns, part.nbytes, stall))
        self._reschedule(lane)

    def _part_done(self, index: int, time: float) -> None:
        self.left[index] -= 1
        if time > self.data.last[index]:
            self.data.last[index] = time
        if not self.left[index]:
            del self.left[index]
            self._visible(index, time + self.arch.dma_completion_ns)

    def _visible(self, index: int, time: float) -> None:
        self.seen[index] = time
        plan, unknown, touched = self.plan, self.unknown, []
        queue_of = plan.queue_of
        for succ in plan.succs[index]:
            unknown[succ] -= 1
            if not unknown[succ]:
                touched.append(queue_of[succ])
        if touched:
            self._advance(touched)

    def _push(self, time: float, lane: int, record: int, number: int) -> None:
        self.order += 1
        heappush(self.events, (time, self.order, lane, record, number))

    def _reschedule(self, lane: int) -> None:
        server = self.lanes[lane]
        server.version += 1
        time = server.next_event()
        if time is not None:
            self._push(time, lane, -1, server.version)

    # ---- the end

    def _finish(self) -> Timeline:
        stuck = [index for queue in self.queues for index in queue.records[queue.head :]]
        assert not stuck, f"records {stuck[:5]} wait for each other"
        tables: Tables = {}
        for queue in self.queues:
            if isinstance(queue, ScalarQueue):
                tables |= queue.tables
        busy, body_ns = self._busy(), max(max(self.end, default=0.0), self.data.latest())
        return Timeline(self.start, self.end, self.seen, self.cause, self.data, tables, busy, body_ns)

    def _busy(self) -> dict[str, float]:
        """ns with work of each engine, of all cores in the mean and by core as "vector 1"."""
        plan, busy = self.plan, dict.fromkeys(ENGINES, 0.0)
        for core in range(plan.cores):
            queues = self.queues[core * len(QUEUES) :]
            own = {
                name: _union(self.start, self.end, queue.records)
                for name, queue in zip(QUEUES[:4], queues, strict=False)
            }
            lanes = self.lanes[core * self.lanes_per_core :]
            served = sum(lane.busy * len(each) for lane, each in zip(lanes, plan.lanes.engines, strict=False))
            own["dma"] = served / plan.arch.dma_engines
            for name, ns in own.items():
                busy[name] += ns / plan.cores
                if plan.cores > 1:
                    busy[f"{name} {core}"] = ns
        return busy


def _queues(plan: Plan, phase: float) -> list[Queue]:
    """The queues of all cores at their beginning."""
    found: list[Queue] = []
    for core in range(plan.cores):
        named: dict[int, Port] = {}
        low, high = plan.first[core : core + 2]
        ports = {
            index: [named.setdefault(port, Port()) for port in held]
            for index, held in plan.ports.items()
            if low <= index < high
        }
        for position, name in enumerate(QUEUES):
            records = plan.queues[core * len(QUEUES) + position]
            if name == "tensor":
                found.append(TensorQueue(plan.arch, name, records, phase))
            elif name == "scalar":
                found.append(ScalarQueue(plan.arch, name, records, ports, plan.prices))
            else:
                found.append(Queue(plan.arch, name, records, ports))
    return found


def _union(start: Sequence[float], end: Sequence[float], records: Sequence[int]) -> float:
    """ns covered by at least one of the records."""
    total, reached = 0.0, 0.0
    for begins, ends in sorted([(start[index], end[index]) for index in records]):
        if ends > reached:
            total += ends - (begins if begins > reached else reached)
            reached = ends
    return total
