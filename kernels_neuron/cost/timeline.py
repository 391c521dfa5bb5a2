"""When everything happens: an event-driven replay of one Trace on the five in-order queues and the DMA engines.

An instruction starts when its queue reaches it and everything it waits for is visible; its result is visible after its
latency and the semaphore. Compute engines need no arbitration, so their times follow as soon as their inputs are known;
only DMA transfers, which compete for engines, go through the event heap.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from kernels_neuron.arch import Arch
from kernels_neuron.sim.trace import Price, Trace, Transfer

from .deps import dependencies
from .dma import Chunk, Lanes, lanes, make_lanes
from .throttle import PHASES, Throttle

QUEUES = ("tensor", "vector", "scalar", "gpsimd", "sync")
ENGINES = (*QUEUES[:4], "dma")


@dataclass(frozen=True)
class Plan:
    """What of a replay does not depend on the throttle phase.

    prices   of each record
    queues   engine -> its records in program order
    preds    for each record, the records it waits for
    succs    the other way round
    cores    physical cores that run at once and share HBM
    """

    arch: Arch
    prices: Sequence[Price]
    queues: dict[str, list[int]]
    engine_of: Sequence[str]
    preds: Sequence[tuple[int, ...]]
    succs: Sequence[list[int]]
    lanes: Lanes
    cores: int


@dataclass
class Timeline:
    """The outcome of one replay, times in ns from the start of all queues.

    start    a record leaves its queue (of a matmul: starts to stream; of a DMA: its trigger starts)
    end      last write (of a DMA: end of the trigger on its queue)
    seen     its result is visible to a waiting engine, whose wake time comes on top
    cause    the record that decided the start: one it waited for, or the one before it in its queue; -1 for none
    data     record -> (first, last) data packet of its transfer
    tables   record -> (start, end) of the activation table load before it
    busy     engine -> ns with work, "dma" as the mean of its engines
    body_ns  to the last data packet, or the last write of an engine where that is later
    """

    start: list[float]
    end: list[float]
    seen: list[float]
    cause: list[int]
    data: dict[int, tuple[float, float]] = field(default_factory=dict)
    tables: dict[int, tuple[float, float]] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    body_ns: float = 0.0


def plan(trace: Trace, arch: Arch, cores: int = 1) -> Plan:
    """Dependencies and queues of a trace, ready for `replay`."""
    prices = [record.price for record in trace.records]
    return make_plan(arch, prices, [record.engine for record in trace.records], dependencies(trace), cores)


def make_plan(
    arch: Arch, prices: Sequence[Price], engines: Sequence[str], preds: Sequence[tuple[int, ...]], cores: int = 1
) -> Plan:
    """A plan from records in plain form: price, engine and predecessors of each."""
    queues: dict[str, list[int]] = {name: [] for name in QUEUES}
    succs: list[list[int]] = [[] for _ in prices]
    for index, (engine, before) in enumerate(zip(engines, preds, strict=True)):
        queues[engine].append(index)
        for pred in before:
            succs[pred].append(index)
    transfers = (price.transfer for price in prices if price.transfer is not None)
    return Plan(arch, prices, queues, engines, preds, succs, lanes(transfers, arch), cores)


def phases_of(plan: Plan) -> int:
    """How many throttle phases tell apart: all of them with TensorE work on a throttled chip, else one."""
    return PHASES if plan.arch.throttled and any(price.pe_cycles for price in plan.prices) else 1


def replay(plan: Plan, phase: float = 0.0) -> Timeline:
    """Run the plan with the throttle windows shifted by `phase` of a window."""
    return _Replay(plan, phase).run()


class _Replay:
    """One replay in progress."""

    def __init__(self, plan: Plan, phase: float) -> None:
        count = len(plan.prices)
        self.plan, self.arch = plan, plan.arch
        self.out = Timeline([0.0] * count, [0.0] * count, [0.0] * count, [-1] * count)
        self.unknown = [len(before) for before in plan.preds]
        self.head = dict.fromkeys(QUEUES, 0)
        self.wake = {name: plan.arch.engine(name).wake_ns for name in QUEUES}
        self.set = {name: plan.arch.engine(name).set_ns for name in QUEUES}
        begins = {"scalar": plan.arch.scalar_begins_ns, "gpsimd": plan.arch.gpsimd_begins_ns}
        self.free = {name: begins.get(name, 0.0) for name in QUEUES}  # earliest start of the next compute instruction
        self.front = dict(self.free)  # when the front end looks at the next instruction
        self.trigger = dict(self.free)  # earliest next DMA trigger of the queue
        self.triggered = dict.fromkeys(QUEUES, False)  # whether the last instruction of the queue was a hardware DMA
        # starts of the last instructions, which the front end cannot be further ahead of
        self.queued = {name: deque[float](maxlen=plan.arch.queue_depth) for name in ("tensor", "scalar")}
        self.table = ""
        self.pe = Throttle(plan.arch, phase)
        self.pe_stream = 0.0  # start of the last matmul
        self.pe_weights = 0.0  # when the loaded weights can be used
        self.lanes = make_lanes(plan.lanes, plan.arch, plan.cores)
        self.parts: dict[int, int] = {}
        self.events: list[tuple[float, int, int, int, int]] = []  # time, order, lane, record or -1, version
        self.order = 0
        self.step = {"tensor": self._tensor, "scalar": self._scalar}

    def run(self) -> Timeline:
        self._advance(list(QUEUES))
        while self.events:
            time, _, lane, record, version = heappop(self.events)
            if record >= 0:
                self._arrive(time, lane, record)
            elif version == self.lanes[lane].version:
                for chunk in self.lanes[lane].step(time):
                    self._part_done(chunk.record, time)
                self._reschedule(lane)
        return self._finish()

    # ---- queues

    def _advance(self, engines: list[str]) -> None:
        """Start whatever can be started, beginning with the heads of `engines`."""
        unknown, succs, engine_of = self.unknown, self.plan.succs, self.plan.engine_of
        while engines:
            engine = engines.pop()
            queue, position = self.plan.queues[engine], self.head[engine]
            issue = self.step.get(engine, self._plain)
            while position < len(queue) and not unknown[queue[position]]:
                index = queue[position]
                position += 1
                self.head[engine] = position
                if self.plan.prices[index].transfer is not None:
                    self._dma(index, engine)
                    continue
                self.triggered[engine] = False
                if self.plan.prices[index].front:
                    self._wait(index, engine)
                else:
                    issue(index, engine)
                for succ in succs[index]:
                    unknown[succ] -= 1
                    if not unknown[succ] and engine_of[succ] != engine:
                        engines.append(engine_of[succ])

    def _ready(self, index: int, engine: str, free: float) -> float:
        """When the record may start, given when its queue allows it; notes which of the two decided."""
        position = self.head[engine]  # already past `index`
        cause = self.plan.queues[engine][position - 2] if position > 1 else -1
        wake, seen = self.wake[engine], self.out.seen
        start = free
        for pred in self.plan.preds[index]:
            visible = seen[pred] + wake
            if visible > start:
                start, cause = visible, pred
        self.out.cause[index] = cause
        return start

    def _done(self, index: int, engine: str, start: float, end: float) -> None:
        out = self.out
        out.start[index], out.end[index], out.seen[index] = start, end, end + self.set[engine]

    def _ahead(self, engine: str) -> float:
        """When the front end can look at the next instruction."""
        queued = self.queued.get(engine)
        front = self.front[engine]
        return max(front, queued[0]) if queued is not None and len(queued) == queued.maxlen else front

    def _wait(self, index: int, engine: str) -> None:
        """A wait on semaphores alone: the front end does it while earlier instructions still execute."""
        price = self.plan.prices[index]
        ahead = engine in self.queued
        start = self._ready(index, engine, self._ahead(engine) if ahead else self.free[engine])
        self.front[engine] = start + price.issue_ns
        before_dma = self.arch.dma_after_wait_ns if engine == "scalar" else 0.0
        self.trigger[engine] = max(self.trigger[engine], self.front[engine] + before_dma)
        if not ahead:
            self.free[engine] = start + price.issue_ns
        self._done(index, engine, start, start + price.latency_ns)

    def _plain(self, index: int, engine: str) -> None:
        price = self.plan.prices[index]
        start = self._ready(index, engine, self.free[engine])
        self.free[engine] = start + price.issue_ns
        self._done(index, engine, start, start + price.latency_ns)

    def _scalar(self, index: int, engine: str) -> None:
        price = self.plan.prices[index]
        front = self._ahead(engine)
        if price.table and price.table != self.table:
            # a load of its own in the queue, which waits for nothing but the instructions before it
            load = max(front, self.free[engine])
            self.free[engine] = load + self.arch.act_table_load_ns
            self.out.tables[index] = (load, self.free[engine])
            self.table = price.table
        looked_at = self._ready(index, engine, front)
        start = looked_at
        if self.free[engine] > looked_at:
            start = self.free[engine]
            position = self.head[engine]
            self.out.cause[index] = self.plan.queues[engine][position - 2] if position > 1 else -1
        self.front[engine], self.trigger[engine] = looked_at, max(self.trigger[engine], looked_at)
        self.free[engine] = start + price.issue_ns
        self.queued[engine].append(start)
        self._done(index, engine, start, start + price.latency_ns)

    def _tensor(self, index: int, engine: str) -> None:
        price = self.plan.prices[index]
        if price.weights:
            start = self._ready(index, engine, max(self.pe_stream, self.pe_weights, self._ahead(engine)))
            stretch = price.pe_cycles / self.pe.ghz * (1.0 / self.pe.at(start) - 1.0) if price.pe_cycles else 0.0
            self.pe_weights = start + price.issue_ns + stretch
            self._looked_at(index, engine, start)
            self._done(index, engine, start, self.pe_weights)
            return
        start = self._ready(index, engine, max(self.free[engine], self.pe_weights, self._ahead(engine)))
        self._looked_at(index, engine, start)
        nominal = price.pe_cycles / self.pe.ghz
        streamed = self.pe.stream(start, price.pe_cycles)
        self.pe_stream = start
        self.free[engine] = streamed + price.issue_ns - nominal
        self._done(index, engine, start, streamed + price.latency_ns - nominal)

    def _looked_at(self, index: int, engine: str, start: float) -> None:
        """The front end moves on once an instruction's own waits hold, however long it stays queued."""
        seen, wake = self.out.seen, self.wake[engine]
        held = max((seen[pred] + wake for pred in self.plan.preds[index]), default=0.0)
        self.front[engine] = max(self._ahead(engine), held)
        self.queued[engine].append(start)

    # ---- DMA

    def _dma(self, index: int, engine: str) -> None:
        """Trigger a transfer. The front end of ScalarE triggers past instructions that are still queued."""
        arch, price = self.arch, self.plan.prices[index]
        transfer = price.transfer
        assert transfer is not None
        software = transfer.dge == "sw"
        free = self.free[engine] if software else self.trigger[engine]
        start = self._ready(index, engine, free)
        trigger = start
        # a hardware trigger right behind another one takes longer
        behind = arch.dma_issue_behind_ns if transfer.dge == "hw" and self.triggered[engine] and start == free else 0.0
        self.triggered[engine] = transfer.dge == "hw"
        if software:
            self.free[engine] = start + price.issue_ns
            trigger = max(start + arch.dma_generation_ns, self.trigger[engine])
            self.trigger[engine] = trigger + price.issue_ns
        else:
            self.trigger[engine] = start + price.issue_ns + behind
            self.front[engine] = (
                start + behind + price.latency_ns + (arch.dma_front_end_ns if transfer.dge == "hw" else 0.0)
            )
            if engine != "scalar":
                self.free[engine] = max(self.free[engine], self.front[engine])
        out = self.out
        out.start[index] = start
        out.end[index] = trigger + (arch.dma_software_visible_ns if software else price.latency_ns + behind)
        shares = self.plan.lanes.shares[transfer]
        self.parts[index] = len(shares)
        begin = trigger + _first_packet_ns(arch, transfer)
        for lane, _, _ in shares:
            # the last engine of a lane starts last and so ends last
            self._push(begin + arch.dma_spread_ns * self.plan.lanes.engines[lane][-1], lane, index)
        out.data[index] = (begin + arch.dma_spread_ns * self.plan.lanes.engines[shares[0][0]][0], begin)
        if not shares:
            self._visible(index, begin)

    def _arrive(self, time: float, lane: int, index: int) -> None:
        """The first packet of a part is due: it joins its ring."""
        transfer = self.plan.prices[index].transfer
        assert transfer is not None
        server, ring = self.lanes[lane], self.plan.engine_of[index]
        _, work, size = next(part for part in self.plan.lanes.shares[transfer] if part[0] == lane)
        idle = server.idle(ring)
        stall = _stall_ns(self.arch, transfer, size, idle)
        flows = 0.0 if idle else time + _queued_ns(self.arch, transfer)
        server.join(time, ring, Chunk(index, work, size, stall, flows))
        self._reschedule(lane)

    def _part_done(self, index: int, time: float) -> None:
        self.parts[index] -= 1
        first, last = self.out.data[index]
        self.out.data[index] = (first, max(last, time))
        if not self.parts[index]:
            del self.parts[index]
            self._visible(index, time + self.arch.dma_completion_ns)

    def _visible(self, index: int, time: float) -> None:
        self.out.seen[index] = time
        touched = []
        for succ in self.plan.succs[index]:
            self.unknown[succ] -= 1
            if not self.unknown[succ]:
                touched.append(self.plan.engine_of[succ])
        self._advance(touched)

    def _push(self, time: float, lane: int, record: int, version: int = 0) -> None:
        self.order += 1
        heappush(self.events, (time, self.order, lane, record, version))

    def _reschedule(self, lane: int) -> None:
        server = self.lanes[lane]
        server.version += 1
        time = server.next_event()
        if time is not None:
            self._push(time, lane, -1, server.version)

    # ---- the end

    def _finish(self) -> Timeline:
        out, plan = self.out, self.plan
        stuck = [index for engine, queue in plan.queues.items() for index in queue[self.head[engine] :]]
        assert not stuck, f"records {stuck[:5]} wait for each other"
        out.body_ns = max([*out.end, *(last for _, last in out.data.values())], default=0.0)
        for engine in QUEUES[:4]:
            out.busy[engine] = _union([(out.start[i], out.end[i]) for i in plan.queues[engine]])
        served = sum(lane.busy * len(engines) for lane, engines in zip(self.lanes, plan.lanes.engines, strict=True))
        out.busy["dma"] = served / plan.arch.dma_engines
        return out


def _first_packet_ns(arch: Arch, transfer: Transfer) -> float:
    """From the visible trigger to the first packet. A store reads SBUF; everything else reads HBM first or as well."""
    store = transfer.direction == "store"
    if transfer.dge == "sw":
        return arch.dma_software_first_packet_store_ns if store else arch.dma_software_first_packet_load_ns
    if transfer.dge == "none":
        return arch.dma_static_first_packet_ns
    first = arch.dma_first_packet_store_ns if store else arch.dma_first_packet_load_ns
    rows = min(transfer.descriptors, arch.dma_first_packet_descriptors) - arch.partitions
    return first + rows * arch.dma_first_packet_per_descriptor_ns


def _stall_ns(arch: Arch, transfer: Transfer, size: float, idle: bool) -> float:
    """The pause in the first packets: of hardware loads on an idle ring, of software transfers always."""
    store = transfer.direction == "store"
    if transfer.dge == "sw":
        return arch.dma_software_store_stall_ns if store else arch.dma_software_load_stall_ns
    if store or not idle:
        return 0.0
    if transfer.dge == "none":
        return arch.dma_static_load_stall_ns
    small, large = arch.dma_small_load_bytes, arch.dma_large_load_bytes
    grown = min(max(size - small, 0.0) / (large - small), 1.0)
    return arch.dma_small_load_stall_ns + grown * (arch.dma_load_stall_ns - arch.dma_small_load_stall_ns)


def _queued_ns(arch: Arch, transfer: Transfer) -> float:
    """How long after its arrival the data of a transfer behind another one flows at the earliest."""
    return arch.dma_queued_load_ns if transfer.dge == "hw" and transfer.direction != "store" else 0.0


def _union(spans: list[tuple[float, float]]) -> float:
    total, reached = 0.0, 0.0
    for start, end in sorted(spans):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total
