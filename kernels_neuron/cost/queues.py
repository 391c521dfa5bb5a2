"""The in-order queues of a core: when an instruction may start, given when its inputs are there.

Front ends run ahead of execution: a queue's `front` is when the next instruction is looked at, `free` when it can be
executed, `trigger` when a DMA can be triggered.
"""

from collections import deque
from collections.abc import Sequence

from kernels_neuron.arch import ACTIVATION_TABLES, Arch
from kernels_neuron.sim.trace import Price

from .ports import Port, reserve
from .throttle import Throttle

Tables = dict[int, tuple[float, float]]


class Queue:
    """A queue that executes one instruction after the other: VectorE, GpSimdE, SyncE.

    records    its records in program order
    head       how many of them have been issued
    triggered  whether the last instruction was a hardware DMA
    ports      record -> the ports it holds while it streams
    behind     the record that held a port which the last one waited for, until somebody asks; -1 for none
    """

    __slots__ = (
        *("before_dma", "behind", "free", "front", "head", "ports", "records", "set", "trigger", "triggered", "wake"),
    )

    def __init__(self, arch: Arch, name: str, records: list[int], ports: dict[int, list[Port]]) -> None:
        begins = {"scalar": arch.scalar_begins_ns, "gpsimd": arch.gpsimd_begins_ns}.get(name, 0.0)
        self.records = records
        self.head = 0
        self.wake, self.set = arch.engine(name).wake_ns, arch.engine(name).set_ns
        self.free = self.front = self.trigger = begins
        self.triggered = False
        self.before_dma = arch.dma_after_wait_ns if name == "scalar" else 0.0
        self.ports = ports
        self.behind = -1

    def issue(self, index: int, price: Price, held: float) -> tuple[float, float]:
        """(start, end) of the next record, whose inputs are there at `held`."""
        start = held if held > self.free else self.free
        if self.ports:
            start = self.wait_for_ports(index, price, start)
        self.free = start + price.issue_ns
        return start, start + price.latency_ns

    def wait_for_ports(self, index: int, price: Price, start: float) -> float:
        """When the ports that a record holds while it streams are free for it."""
        ports = self.ports.get(index)
        if ports:
            start, self.behind = reserve(ports, start, price.issue_ns, index)
        return start

    def wait(self, price: Price, held: float) -> tuple[float, float]:
        """A wait on semaphores alone, which the front end does while earlier instructions may still execute."""
        start = max(held, self.free)
        self.front = self.free = start + price.issue_ns
        self.trigger = max(self.trigger, self.front + self.before_dma)
        return start, start + price.latency_ns


class AheadQueue(Queue):
    """A queue whose front end runs a few instructions ahead of execution."""

    __slots__ = ("started",)

    def __init__(self, arch: Arch, name: str, records: list[int], ports: dict[int, list[Port]]) -> None:
        super().__init__(arch, name, records, ports)
        # starts of the last instructions, which the front end cannot be further ahead of
        self.started = deque([0.0] * arch.queue_depth, arch.queue_depth)

    def ahead(self) -> float:
        """When the front end can look at the next instruction."""
        oldest = self.started[0]
        return oldest if oldest > self.front else self.front

    def wait(self, price: Price, held: float) -> tuple[float, float]:
        start = max(held, self.ahead())
        self.front = start + price.issue_ns
        self.trigger = max(self.trigger, self.front + self.before_dma)
        return start, start + price.latency_ns


class ScalarQueue(AheadQueue):
    """ScalarE: activation tables, and DMA triggers that pass instructions still queued.

    loads   the records that a table load comes before
    tables  record -> (start, end) of the table load before it
    """

    __slots__ = ("load_ns", "loads", "tables")

    def __init__(
        self, arch: Arch, name: str, records: list[int], ports: dict[int, list[Port]], prices: Sequence[Price]
    ) -> None:
        super().__init__(arch, name, records, ports)
        self.load_ns = arch.act_table_load_ns
        self.loads = table_loads(prices, records)
        self.tables: Tables = {}

    def issue(self, index: int, price: Price, held: float) -> tuple[float, float]:
        front = self.ahead()
        if index in self.loads:
            # a load of its own in the queue, which waits for nothing but the instructions before it
            load = front if front > self.free else self.free
            self.free = load + self.load_ns
            self.tables[index] = (load, self.free)
        looked_at = held if held > front else front
        start = self.free if self.free > looked_at else looked_at
        if self.ports:
            start = self.wait_for_ports(index, price, start)
        self.front = looked_at
        if looked_at > self.trigger:
            self.trigger = looked_at
        self.free = start + price.issue_ns
        self.started.append(start)
        return start, start + price.latency_ns


def table_loads(prices: Sequence[Price], records: Sequence[int]) -> set[int]:
    """The records of ScalarE that a table load comes before.

    Each load brings the functions that serve the queue longest, so there are as few as can be; the compiler's own
    choice is not published.
    """
    loads: set[int] = set()
    fitting: list[frozenset[str]] = []  # the tables that hold all functions since the last load
    for index in records:
        function = prices[index].table
        if not function:
            continue
        still = [table for table in fitting if function in table]
        if not still:
            loads.add(index)
            still = [table for table in ACTIVATION_TABLES if function in table] or [frozenset({function})]
        fitting = still
    return loads


class TensorQueue(AheadQueue):
    """TensorE: weights that load under the matmul before, streaming at the throttle's rate.

    stream   start of the last matmul
    weights  when the loaded weights can be used
    """

    __slots__ = ("pe", "stream", "weights")

    def __init__(self, arch: Arch, name: str, records: list[int], phase: float) -> None:
        super().__init__(arch, name, records, {})
        self.pe = Throttle(arch, phase)
        self.stream = self.weights = 0.0

    def issue(self, index: int, price: Price, held: float) -> tuple[float, float]:
        front = self.ahead()
        start = self.stream if price.weights else self.free
        for earliest in (held, self.weights, front):
            if earliest > start:
                start = earliest
        # the front end moves on once an instruction's own waits hold, however long it stays queued
        self.front = held if held > front else front
        self.started.append(start)
        pe = self.pe
        if price.weights:
            stretch = price.pe_cycles / pe.ghz * (1.0 / pe.at(start) - 1.0) if price.pe_cycles else 0.0
            self.weights = start + price.issue_ns + stretch
            return start, self.weights
        self.stream = start
        beyond = pe.stream(start, price.pe_cycles) - price.pe_cycles / pe.ghz
        self.free = beyond + price.issue_ns
        return start, beyond + price.latency_ns
