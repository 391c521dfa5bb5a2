"""Switches of the model: the same plan with one part of it turned off, to see what the part earns."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernels_neuron.arch import Arch
from kernels_neuron.sim.trace import Price

_DMA_START = (
    "dma_generation_ns",
    *("dma_first_packet_load_ns", "dma_first_packet_store_ns", "dma_first_packet_per_descriptor_ns"),
    *("dma_software_first_packet_load_ns", "dma_software_first_packet_store_ns"),
    *("dma_static_first_packet_load_ns", "dma_static_first_packet_store_ns", "dma_spread_ns"),
)
_DMA_STALL = (
    *("dma_load_stall_ns", "dma_small_load_stall_ns", "dma_queued_load_ns"),
    *("dma_software_load_stall_ns", "dma_software_store_stall_ns"),
    *("dma_static_load_stall_ns", "dma_static_wide_load_stall_ns"),
)
_DMA_END = ("dma_completion_ns",)


def _zero(*fields: str) -> Callable[[Arch], Arch]:
    nothing: dict[str, Any] = dict.fromkeys(fields, 0.0)
    return lambda arch: replace(arch, **nothing)


# what is off -> how the chip differs
CHIP_SWITCHES: dict[str, Callable[[Arch], Arch]] = {
    "fixed DMA costs": _zero(*_DMA_START, *_DMA_STALL, *_DMA_END),
    "DMA load stall": _zero(*_DMA_STALL),
    "DMA completion": _zero(*_DMA_END),
    "throttle": lambda arch: replace(arch, throttled=False),
}
LATENCY_TAILS = "latency tails"
SWITCHES = (*CHIP_SWITCHES, LATENCY_TAILS)


def chip_without(arch: Arch, part: str) -> Arch:
    """`arch` with one of SWITCHES turned off."""
    return CHIP_SWITCHES[part](arch) if part in CHIP_SWITCHES else arch


def price_without(price: Price, part: str) -> Price:
    """A price with one of SWITCHES turned off: without tails, a result is there when the next instruction may start."""
    if part != LATENCY_TAILS or price.transfer is not None:
        return price
    return replace(price, latency_ns=price.issue_ns)
