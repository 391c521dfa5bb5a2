"""Rooflines: the least time that useful flops and bytes can take."""

from dataclasses import dataclass

from kernels_neuron.arch import Arch
from kernels_neuron.sim.trace import Trace


@dataclass(frozen=True)
class Bound:
    """The two sides of a roofline, in microseconds."""

    compute_us: float
    memory_us: float

    @property
    def us(self) -> float:
        """The larger of the two."""
        return max(self.compute_us, self.memory_us)


def peak_tflops(arch: Arch, dtype: str, cores: int = 1) -> float:
    """TensorE peak of a dtype; dtypes TensorE does not multiply (integers) count as bfloat16."""
    return arch.tensor_tflops.get(dtype, arch.tensor_tflops["bfloat16"]) * cores


def bandwidth_gbps(arch: Arch, cores: int = 1) -> float:
    """Bytes per ns that `cores` cores can move at most: what their DMA engines do, or HBM's share of two cores."""
    return min(cores * arch.dma_engines * arch.dma_engine_bytes_per_ns, 2 * arch.hbm_gbps)


def roofline(flops: float, nbytes: float, dtype: str, arch: Arch, cores: int = 1) -> Bound:
    """The bound of `flops` in `dtype` and `nbytes` through HBM."""
    return Bound(flops / (peak_tflops(arch, dtype, cores) * 1e6), nbytes / (bandwidth_gbps(arch, cores) * 1e3))


def hbm_bytes(traces: list[Trace]) -> int:
    """The bytes of HBM tensors that the programs of one launch touch, each byte once; reads and writes count apart."""
    total = 0
    for write in (False, True):
        touched = {
            (region.tile, region.lo, region.width, region.steps)
            for trace in traces
            for _, region, is_write in trace.uses()
            if is_write is write and not trace.tiles[region.tile].on_chip
        }
        per_tile: dict[int, int] = {}
        for tile, _, width, steps in touched:
            size = width
            for _, count in steps:
                size *= count
            per_tile[tile] = per_tile.get(tile, 0) + size
        sizes = {tile.id: tile.nbytes for trace in traces for tile in trace.tiles.values()}
        total += sum(min(size, sizes[tile]) for tile, size in per_tile.items())
    return total


def macs(traces: list[Trace]) -> int:
    """Multiply-accumulates that TensorE did."""
    return sum(record.macs for trace in traces for record in trace.records)
