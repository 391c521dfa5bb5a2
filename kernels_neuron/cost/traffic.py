"""DMA efficiency: what the transfers of a launch move, against what the DMA engines could move meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels_neuron.arch import Arch
from kernels_neuron.sim.trace import Trace, Transfer

from .timeline import Timeline


@dataclass
class Moved:
    """Transfers taken together.

    nbytes       moved, on the larger side of a cast; what is moved twice counts twice
    descriptors  contiguous pieces of at most 4 KiB, as the engines serve them
    small        of these, how many are below the efficient size
    """

    transfers: int = 0
    nbytes: int = 0
    descriptors: int = 0
    small: int = 0

    @property
    def mean_descriptor_bytes(self) -> float:
        """Mean size of a descriptor."""
        return self.nbytes / self.descriptors if self.descriptors else 0.0

    @property
    def small_share(self) -> float:
        """Share of descriptors below the efficient size."""
        return self.small / self.descriptors if self.descriptors else 0.0

    def add(self, transfer: Transfer, arch: Arch) -> None:
        """Count one more transfer."""
        pieces = transfer.descriptors * max(1, -(-transfer.descriptor_bytes // arch.dma_max_descriptor_bytes))
        nbytes = transfer.descriptors * transfer.descriptor_bytes
        self.transfers += 1
        self.nbytes += nbytes
        self.descriptors += pieces
        self.small += pieces if nbytes < pieces * arch.dma_efficient_descriptor_bytes else 0

    def to_json(self) -> dict[str, Any]:
        """As `profile --json` prints it."""
        return {
            "transfers": self.transfers,
            "bytes": self.nbytes,
            "descriptors": self.descriptors,
            "mean_descriptor_bytes": self.mean_descriptor_bytes,
            "small_descriptor_share": self.small_share,
        }


@dataclass(frozen=True)
class DmaUse:
    """The transfers of all programs of a launch.

    lines             (source line, direction) -> its transfers, most bytes first
    peak_gbps         what 16 engines a core move at their own rate
    share_of_peak     bytes over what the engines move in the body
    busy_share_of_peak  bytes over what they move in the time they have work: what descriptors cost
    efficient_bytes   the size from which a descriptor counts as efficient
    """

    total: Moved
    lines: dict[tuple[str, str], Moved] = field(repr=False)
    peak_gbps: float
    share_of_peak: float
    busy_share_of_peak: float
    efficient_bytes: int

    def to_json(self) -> dict[str, Any]:
        """As `profile --json` prints it."""
        return {
            **self.total.to_json(),
            "peak_gbps": self.peak_gbps,
            "share_of_peak": self.share_of_peak,
            "busy_share_of_peak": self.busy_share_of_peak,
            "efficient_descriptor_bytes": self.efficient_bytes,
            "lines": [
                {"where": where, "direction": direction, **moved.to_json()}
                for (where, direction), moved in self.lines.items()
            ],
        }


def dma_use(programs: Sequence[tuple[Trace, Timeline]], arch: Arch) -> DmaUse:
    """Add up the transfers of the programs of one launch, whose body is that of the slower one."""
    total, lines = Moved(), dict[tuple[str, str], Moved]()
    for trace, _ in programs:
        for record in trace.records:
            transfer = record.price.transfer
            if transfer is not None:
                total.add(transfer, arch)
                lines.setdefault((trace.where(record.where), transfer.direction), Moved()).add(transfer, arch)
    peak = arch.dma_engines * arch.dma_engine_bytes_per_ns  # bytes per ns of one core
    body_ns = max((timeline.body_ns for _, timeline in programs), default=0.0)
    busy_ns = sum(timeline.busy.get("dma", 0.0) for _, timeline in programs)
    return DmaUse(
        total=total,
        lines=dict(sorted(lines.items(), key=lambda item: -item[1].nbytes)),
        peak_gbps=peak * len(programs),
        share_of_peak=total.nbytes / (peak * len(programs) * body_ns) if body_ns else 0.0,
        busy_share_of_peak=total.nbytes / (peak * busy_ns) if busy_ns else 0.0,
        efficient_bytes=arch.dma_efficient_descriptor_bytes,
    )
