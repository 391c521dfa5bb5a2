"""What a DMA transfer does between its trigger and its data, as far as that is the same each time."""

from dataclasses import dataclass

from kernels_neuron.arch import Arch
from kernels_neuron.sim.trace import Transfer

from .dma import Lanes


@dataclass(frozen=True, slots=True)
class Part:
    """What one lane has to do for a transfer.

    delay_ns         from the first packet of engine 0 to that of the lane's last engine, which so ends last
    work_ns, nbytes  service of one engine, and what it moves
    first_ns         pause in the first packets where its ring of the lane was never used before
    idle_ns          the same where the ring has nothing under way
    behind_ns        the same behind other transfers
    """

    lane: int
    delay_ns: float
    work_ns: float
    nbytes: float
    first_ns: float
    idle_ns: float
    behind_ns: float


@dataclass(frozen=True, slots=True)
class Flight:
    """One kind of transfer.

    dge              as Transfer.dge
    first_packet_ns  from the visible trigger to the first packet of engine 0
    starts_ns        from there to the first packet of all
    queued_ns        how long after its arrival the data of a part behind another transfer flows at the earliest
    """

    dge: str
    first_packet_ns: float
    starts_ns: float
    queued_ns: float
    parts: tuple[Part, ...]


def flight(transfer: Transfer, lanes: Lanes, arch: Arch) -> Flight:
    """The flight of a transfer over the lanes of its launch."""
    shares, engines = lanes.shares[transfer], lanes.engines
    static = transfer.dge == "none"
    first = _first_static_stall_ns(arch, transfer, sum(len(engines[lane]) for lane, _, _ in shares))
    parts = []
    for lane, work, nbytes in shares:
        idle, behind = (_stall_ns(arch, transfer, nbytes, idle) for idle in (True, False))
        delay = arch.dma_spread_ns * engines[lane][-1]
        parts.append(Part(lane, delay, work, nbytes, first if static else idle, idle, behind))
    starts = arch.dma_spread_ns * engines[shares[0][0]][0] if shares else 0.0
    queued = arch.dma_queued_load_ns if transfer.dge == "hw" and transfer.direction != "store" else 0.0
    return Flight(transfer.dge, _first_packet_ns(arch, transfer), starts, queued, tuple(parts))


def _first_packet_ns(arch: Arch, transfer: Transfer) -> float:
    """A store reads SBUF; everything else reads HBM first or as well."""
    store = transfer.direction == "store"
    if transfer.dge == "sw":
        return arch.dma_software_first_packet_store_ns if store else arch.dma_software_first_packet_load_ns
    if transfer.dge == "none":
        return arch.dma_static_first_packet_store_ns if store else arch.dma_static_first_packet_load_ns
    first = arch.dma_first_packet_store_ns if store else arch.dma_first_packet_load_ns
    rows = min(transfer.descriptors, arch.dma_first_packet_descriptors) - arch.partitions
    return first + rows * arch.dma_first_packet_per_descriptor_ns


def _stall_ns(arch: Arch, transfer: Transfer, nbytes: float, idle: bool) -> float:
    """The pause in the first packets: of hardware loads on an idle ring, of software transfers always."""
    store = transfer.direction == "store"
    if transfer.dge == "sw":
        return arch.dma_software_store_stall_ns if store else arch.dma_software_load_stall_ns
    if store or not idle or transfer.dge == "none":
        return 0.0
    small, large = arch.dma_small_load_bytes, arch.dma_large_load_bytes
    grown = min(max(nbytes - small, 0.0) / (large - small), 1.0)
    return arch.dma_small_load_stall_ns + grown * (arch.dma_load_stall_ns - arch.dma_small_load_stall_ns)


def _first_static_stall_ns(arch: Arch, transfer: Transfer, engines: int) -> float:
    """The pause of the first static load of a launch in its ring, longer on more engines."""
    if transfer.direction == "store":
        return 0.0
    wide = arch.dma_static_wide_load_stall_ns - arch.dma_static_load_stall_ns
    return arch.dma_static_load_stall_ns + wide * (engines - 1) / (arch.dma_engines - 1)
