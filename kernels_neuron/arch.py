"""Chips as frozen data. Every number carries its source as a comment; `assumed` marks what nobody says.

Tags: [arch2] [arch3] [arch4] the Trainium1, 2 and 3 architecture guides; [isa] the NKI ISA reference up to SDK 2.26,
whose cost statements were dropped later; [dma] the NKI DMA overview and bandwidth guide; [trace] measured in public
trn2 profiler traces; [read] read off a published figure. In falling confidence: measured ([trace]), documented, read
off, assumed; a chip that takes a number over from another one says so as `assumed as`.
"""

import os
from dataclasses import dataclass, field, replace
from typing import Any, Final

from .errors import UsageError

# Which engine runs an instruction when the kernel leaves the choice to the compiler, the same for all kernels.
# The real compiler balances load; no rule is published, so each line is `assumed` unless it says otherwise.
DEFAULT_ENGINE: Final = {
    "tensor_copy": "vector",  # assumed; VectorE is the only engine with fast modes for it [arch3]
    "tensor_scalar": "vector",  # assumed
    "tensor_tensor": "vector",  # [isa] all-integer operands outside PSUM go to GpSimdE
    "memset": "vector",  # assumed; GpSimdE when the destination is 32-bit and larger would be as likely
    "dma_load": "sync",  # [trace] every hardware load of the public traces is triggered there
    "dma_store": "scalar",  # [trace] every hardware store of the public traces is triggered there
}

# Functions that one load of an activation table brings. All of them bring copy, abs, sign, square and relu as well.
# [read] members: a public catalogue of the sets that the compiler ships; some of their names: AWS's guide to NEFF files
ACTIVATION_TABLES: Final = tuple(
    frozenset(functions.split())
    for functions in (
        "exp tanh",
        "softplus",
        "sigmoid tanh erf arctan",
        "sqrt",
        "log",
        "log exp",
        "sin arctan",
        "gelu gelu_dx tanh",
        "gelu_apprx_tanh tanh",
        "gelu_apprx_sigmoid tanh",
        "gelu_apprx_sigmoid_dx tanh",
        "reciprocal",
        "rsqrt",
        "mish",
        "erf_dx",
        "silu tanh sin",
        "silu_dx tanh sin",
    )
)
IN_EVERY_TABLE: Final = frozenset({"copy", "abs", "sign", "square", "relu"})  # [read] as above


@dataclass(frozen=True)
class EngineTiming:
    """Clock and fixed costs of one compute engine.

    ghz         clock
    issue_ns    added to the streaming time between two back-to-back instructions (initiation interval)
    latency_ns  added to the streaming time from start to last write
    set_ns      end of an instruction to its semaphore being visible
    wake_ns     visible semaphore to the start of a waiting instruction
    """

    ghz: float
    issue_ns: float
    latency_ns: float
    set_ns: float
    wake_ns: float


@dataclass(frozen=True)
class Arch:
    """One NeuronCore generation: capacities, limits, clocks and transfer constants."""

    name: str
    generation: int
    validated: bool  # the latency model was compared with measurements of this chip

    sbuf_partition_bytes: int
    sbuf_usable_partition_bytes: int
    moving_fmax: int
    tensor_tflops: dict[str, float]
    hbm_gbps: float

    tensor: EngineTiming
    vector: EngineTiming
    scalar: EngineTiming
    gpsimd: EngineTiming
    sync: EngineTiming

    throttled: bool  # TensorE starts at half rate and recovers window by window
    hardware_dge: bool
    dma_engine_bytes_per_ns: float
    dma_descriptor_ns: float
    dma_stream_gbps: float
    vector_fast_modes: bool

    # which instructions of VectorE keep GpSimdE off SBUF while they stream: "always", or those in a performance "mode"
    sbuf_port: str = "mode"  # [arch3]; trn3 assumed as trn2
    # what of PSUM VectorE and ScalarE cannot access at once: all of it, "always", or the same "bank"
    psum_port: str = "bank"  # [arch3]; trn3 assumed as trn2

    partitions: int = 128  # [arch2] [arch3] [arch4]
    psum_partition_bytes: int = 16384  # [arch2]
    psum_banks: int = 8  # [arch2]
    psum_bank_bytes: int = 2048  # [arch2]
    stationary_fmax: int = 128  # [isa]
    bn_stats_fmax: int = 512  # [isa]
    min_issue_cycles: int = 64  # [isa] "roughly 64"; assumed the same on every engine
    gpsimd_start_cycles: int = 150  # [isa]
    pe_min_cycles: int = 64  # [isa]
    fp32_passes: int = 2  # [trace] LOW and HIGH
    fp32_cycles_per_row: int = 2  # [trace] per pass, four in all as [isa] says
    fp32_weights_hidden: bool = True  # [trace] a float32 weight load hides under the matmul before it
    # cycles of VectorE for an element of tensor_tensor, both inputs in SBUF and no performance mode: 1000 and 2000
    # elements of float32 take 1.21 and 2.27 us in public profiles of trn2, where [isa] says two cycles
    tensor_tensor_cycles: int = 1  # [read]
    act_table_load_ns: float = 1283.0  # [trace]; 1300 [read]
    throttle_window_ns: float = 4096 / 1.2  # [trace] 4096 cycles at 1.2 GHz
    throttle_threshold: float = 3 / 8  # [trace]

    # the engine of an instruction that leaves it open; a profile may try another choice
    default_engine: dict[str, str] = field(default_factory=lambda: DEFAULT_ENGINE)

    dma_engines: int = 16  # [dma]
    dma_max_descriptor_bytes: int = 4096  # [trace]
    dma_efficient_descriptor_bytes: int = 2048  # [dma] "at least 2 KiB"; 4 KiB saturate
    dma_issue_ns: float = 477.0  # [trace] hardware DGE, per DMA instruction
    dma_issue_per_descriptor_ns: float = 0.37  # [trace]
    dma_gap_ns: float = 47.0  # [trace] between two DMA instructions of one queue
    dma_issue_behind_ns: float = 78.0  # [trace] longer when right behind another: 600 to 605 less 524 ns, 128 rows
    dma_generation_ns: float = 1190.0  # [trace] software DGE before the visible trigger
    dma_software_issue_ns: float = 580.0  # [trace] software DGE, back to back
    dma_first_packet_load_ns: float = 1330.0  # [trace] hardware DGE, 128 rows
    dma_first_packet_store_ns: float = 1190.0  # [trace] hardware DGE, 128 rows
    dma_first_packet_per_descriptor_ns: float = 0.35  # [trace] more or fewer than 128; 256 rows of a store take 45 more
    dma_first_packet_descriptors: int = 256  # [trace] seen up to 256; more are assumed to start no later
    dma_software_first_packet_load_ns: float = 760.0  # [trace]
    dma_software_first_packet_store_ns: float = 630.0  # [trace]
    dma_spread_ns: float = 9.6  # [trace] start of engine i+1 after engine i
    # the pause in the first packets of a load, as one constant on all engines that gives the mean completion [trace]
    dma_load_stall_ns: float = 445.0  # [trace] hardware, 32 KiB per engine, on an idle ring; mean of four
    dma_small_load_stall_ns: float = 166.0  # [trace] hardware, 2 to 4 KiB per engine; mean of four
    dma_small_load_bytes: int = 4096  # [trace] per engine; linear in between is assumed
    dma_large_load_bytes: int = 32768  # [trace] per engine
    # a hardware load that joins its ring behind another one: 1030 to 1670 ns to its data flowing on all engines, in the
    # mean of the four that queue 1390, less the spread of the engines
    dma_queued_load_ns: float = 1246.0  # [trace]
    dma_software_load_stall_ns: float = 350.0  # [trace] every software load; mean of twelve
    dma_software_store_stall_ns: float = 136.0  # [trace] mean of four
    dma_static_issue_ns: float = 100.0  # [read] descriptors made beforehand, trigger to the next, 90 to 125 ns
    dma_static_trigger_ns: float = 63.0  # [read] duration of such a trigger
    dma_static_first_packet_load_ns: float = 880.0  # [read] 870 and 900
    dma_static_first_packet_store_ns: float = 780.0  # [read] 770 to 790, three of them
    # the first load of a launch in its ring, on one engine: 32 KiB in 1416 ns, 1249 of them service
    dma_static_load_stall_ns: float = 170.0  # [read]
    # the same on 16 engines, the last of which is 1030 and 1405 ns late; linear in the engines is assumed
    dma_static_wide_load_stall_ns: float = 1220.0  # [read]
    dma_burst_bytes: int = (
        2 << 20
    )  # [trace] transfers up to about 2 MB run at the engines' own rate, longer ones slower
    dma_front_end_ns: float = 13.0  # [trace] end of a hardware trigger to the next instruction of its engine
    dma_software_visible_ns: float = 50.0  # [trace] 31 to 75
    queue_depth: int = 5  # [trace] instructions the front ends of TensorE and ScalarE run ahead of execution
    dma_after_wait_ns: float = 38.0  # [trace] a DMA on ScalarE starts 90 ns after a semaphore wait, other work 52
    scalar_begins_ns: float = 138.0  # [trace] queue of ScalarE after that of SyncE, at the start of a kernel
    gpsimd_begins_ns: float = 77.0  # [trace] the same of GpSimdE: first trigger visible at 1290, less 23 and 1190
    dma_completion_ns: float = 354.0  # [trace] last data to the 16th increment, 6 + 348
    launch_us: float = 8.5  # [trace] nki.benchmark p50 less body, 7.5 to 9.3

    @property
    def tile_size(self) -> dict[str, int]:
        """The constants that `nl.tile_size` answers on this chip."""
        return {
            "pmax": self.partitions,
            "psum_bank_fmax": self.psum_bank_bytes // 4,
            "psum_bank_fmax_bytes": self.psum_bank_bytes,
            "psum_fmax": self.psum_bank_bytes // 4,
            "psum_num_banks": self.psum_banks,
            "gemm_stationary_fmax": self.stationary_fmax,
            "gemm_moving_fmax": 512,  # tutorials assume 512 on every generation
            "bn_stats_fmax": self.bn_stats_fmax,
            "sbuf_size_bytes": self.partitions * self.sbuf_partition_bytes,
            "sbuf_fmax_bytes": self.sbuf_usable_partition_bytes,
            "sbuf_fmax": self.sbuf_usable_partition_bytes // 4,
            "total_available_sbuf_size": self.sbuf_usable_partition_bytes,
            "psum_min_align": 4,  # assumed: no number is published
            "sbuf_min_align": 4,  # assumed: no number is published
        }

    @property
    def event_semaphore_ns(self) -> dict[str, tuple[float, float]]:
        """Engine -> (to the next instruction, duration) of an instruction that only waits for a semaphore."""
        return {
            "tensor": (77.0, 52.0),  # [trace]
            "scalar": (52.0, 40.0),  # [trace]
            "vector": (23.0, 23.0),  # [trace] duration; next instruction assumed the same
            "gpsimd": (19.0, 19.0),  # [trace] duration; next instruction assumed the same
            "sync": (55.0, 18.0),  # [trace] 50 to 59
        }

    def engine(self, name: str) -> EngineTiming:
        """Timing of the engine called "tensor", "vector", "scalar", "gpsimd" or "sync"."""
        return getattr(self, name)


def _tflops(bf16: float, fp8: float, fp32: float) -> dict[str, float]:
    return {
        "bfloat16": bf16,
        "float16": bf16,
        "tfloat32": bf16,
        "float8_e4m3": fp8,
        "float8_e5m2": fp8,
        "float8_e4m3fn": fp8,
        "float32": fp32,
    }


KIB: Final = 1024

TRN2: Final = Arch(
    name="trn2",
    generation=3,
    validated=True,
    sbuf_partition_bytes=224 * KIB,  # [arch3]
    sbuf_usable_partition_bytes=(224 - 16) * KIB
    - 8,  # 16 KiB of dynamic-DMA scratch and 8 bytes, vendor kernel library
    moving_fmax=512,  # [isa]
    tensor_tflops=_tflops(78.6, 157.3, 19.7),  # [arch3] 128 * 128 * 2 * 2.4 GHz; float32 at a quarter
    hbm_gbps=358.0,  # [arch3] 2.9 TB/s over 8 cores
    tensor=EngineTiming(ghz=2.4, issue_ns=2, latency_ns=160, set_ns=15, wake_ns=41),  # [arch3] [trace]
    vector=EngineTiming(ghz=0.96, issue_ns=70, latency_ns=150, set_ns=12, wake_ns=23),  # [arch3] [trace]
    scalar=EngineTiming(ghz=1.2, issue_ns=62, latency_ns=158, set_ns=10, wake_ns=22),  # [arch3] [trace]
    gpsimd=EngineTiming(
        ghz=1.2, issue_ns=0, latency_ns=125, set_ns=12, wake_ns=23
    ),  # [arch3]; latency assumed, 150 cycles
    sync=EngineTiming(ghz=1.2, issue_ns=50, latency_ns=18, set_ns=12, wake_ns=16),  # [trace]
    throttled=True,  # [trace]
    hardware_dge=True,  # [arch3]
    dma_engine_bytes_per_ns=27.2,  # [dma] [trace]
    dma_descriptor_ns=4.7,  # [trace]
    dma_stream_gbps=368.0,  # [dma]
    vector_fast_modes=True,  # [arch3]
)

TRN1: Final = replace(
    TRN2,
    name="trn1",
    generation=2,
    sbuf_partition_bytes=192 * KIB,  # [arch2]
    sbuf_usable_partition_bytes=(192 - 16) * KIB,  # [isa] 16 KiB reserved by the compiler
    tensor_tflops=_tflops(91.8, 91.8, 22.9),  # [arch2] 128 * 128 * 2 * 2.8 GHz
    hbm_gbps=410.0,  # [arch2] 820 GB/s over 2 cores
    tensor=EngineTiming(
        ghz=2.8, issue_ns=2, latency_ns=157, set_ns=12, wake_ns=41
    ),  # [arch2] [read]; wake assumed as trn2
    # [arch2] [read]; a published profile has VectorE active for 149 us in 181 instructions, 146 of them streaming
    vector=EngineTiming(ghz=1.12, issue_ns=15, latency_ns=350, set_ns=12, wake_ns=23),  # [arch2] [read]
    scalar=EngineTiming(ghz=1.4, issue_ns=46, latency_ns=159, set_ns=10, wake_ns=22),  # [arch2] [read]
    gpsimd=EngineTiming(ghz=1.4, issue_ns=0, latency_ns=107, set_ns=12, wake_ns=23),  # [arch2]; assumed as trn2
    sync=EngineTiming(ghz=1.4, issue_ns=50, latency_ns=18, set_ns=12, wake_ns=16),  # assumed as trn2
    throttled=False,  # none documented
    fp32_weights_hidden=False,  # assumed: PE-bound float32 kernels reach 0.76 to 0.86 of the four-cycle bound
    hardware_dge=False,  # [arch2]; times of transfers with descriptors made beforehand: assumed as trn2
    dma_engine_bytes_per_ns=18.0,  # [read] 32 KiB on one engine in 1.81 to 2.0 us
    dma_descriptor_ns=6.0,  # [read] 5 to 7
    dma_stream_gbps=272.0,  # [dma]
    vector_fast_modes=False,  # [arch2]
    tensor_tensor_cycles=2,  # [isa] [read] float32 of 8192 elements in 14,987 ns
    sbuf_port="always",  # [arch2]
    psum_port="always",  # [arch2]
    launch_us=20.0,  # [read] profiler total less body, 17 to 22
)

TRN3: Final = replace(
    TRN2,
    name="trn3",
    generation=4,
    validated=False,
    sbuf_partition_bytes=256 * KIB,  # [arch4]
    sbuf_usable_partition_bytes=(256 - 16) * KIB - 8,  # assumed as trn2
    moving_fmax=4096,  # [isa] float32 results; 8192 for bfloat16 ones
    hbm_gbps=588.0,  # [arch4] 4.7 TB/s over 8 cores
    vector=EngineTiming(
        ghz=1.2, issue_ns=70, latency_ns=150, set_ns=12, wake_ns=23
    ),  # [arch4]; constants assumed as trn2
    dma_engine_bytes_per_ns=38.4,  # [dma]
    dma_stream_gbps=528.0,  # [dma]
)

CHIPS: Final = {"trn1": TRN1, "trn2": TRN2, "trn3": TRN3}
_ALIASES: Final = {"inf2": "trn1", "gen2": "trn1", "gen3": "trn2", "gen4": "trn3"}

# How far each constant of trn2 may be off, up and down, in its own unit: half of what was seen apart, or what a guess
# may miss. Clocks, widths and counts of hardware are documented; bench/sensitivity.py moves everything else.
UNCERTAINTY: Final = {
    "tensor.issue_ns": 1.5,  # [trace] 2 to 5
    "tensor.latency_ns": 3.0,  # [trace] 158 to 163
    "tensor.set_ns": 1.0,  # [trace] 14 to 16
    "tensor.wake_ns": 1.0,  # [trace] 41 to 43
    "vector.issue_ns": 10.0,  # [trace] 60 to 80
    "vector.latency_ns": 15.0,  # [trace] 147 to 152, [read] up to 180 for tensor_tensor
    "vector.set_ns": 1.5,  # [trace] 10 to 13
    "vector.wake_ns": 1.0,  # [trace] 23 to 25
    "scalar.issue_ns": 12.0,  # [trace] 50 to 62
    "scalar.latency_ns": 5.0,  # assumed, one value seen
    "scalar.set_ns": 1.0,  # [trace] 9 to 11
    "scalar.wake_ns": 1.0,  # [trace] 22 to 23
    "gpsimd.issue_ns": 50.0,  # assumed
    "gpsimd.latency_ns": 62.0,  # assumed, half of it
    "gpsimd.set_ns": 6.0,  # assumed, half of it
    "gpsimd.wake_ns": 2.0,  # assumed
    "sync.issue_ns": 5.0,  # [trace] 50 to 59
    "sync.latency_ns": 2.0,  # assumed
    "sync.set_ns": 6.0,  # assumed, half of it
    "sync.wake_ns": 1.0,  # [trace] 16 to 17
    "tensor_tensor_cycles": 0.03,  # [read] 1.21 and 2.27 us, each 0.02 us
    "gpsimd_start_cycles": 75,  # [isa] a round number, half of it
    "min_issue_cycles": 4,  # [isa] "roughly 64"
    "act_table_load_ns": 17.0,  # [trace] 1283, [read] 1300
    "throttle_window_ns": 3.0,  # [trace] changes lie on the grid
    "throttle_threshold": 0.003,  # [trace] 0.369 is below, 0.375 is not
    "queue_depth": 2,  # [trace] 5 seen, more is possible
    "hbm_gbps": 17.0,  # [arch3] 358 to 375
    "dma_engine_bytes_per_ns": 1.0,  # [trace] bursts reach 26.2, the slope is 27.2
    "dma_descriptor_ns": 2.3,  # [trace] 3 to 7 of 4 bytes
    "dma_stream_gbps": 32.0,  # [dma] 368, [read] 350 to 400
    "dma_burst_bytes": 1 << 20,  # [trace] "up to about 2 MB"
    "dma_issue_ns": 10.0,  # [trace] 517 to 541 with 128 descriptors
    "dma_issue_per_descriptor_ns": 0.06,  # [trace] 564 to 572 with 256
    "dma_gap_ns": 2.0,  # [trace] 46 to 48
    "dma_issue_behind_ns": 5.0,  # [trace] 600 to 605
    "dma_generation_ns": 30.0,  # [trace]
    "dma_software_issue_ns": 8.0,  # [trace] 576 to 598
    "dma_first_packet_load_ns": 10.0,  # [trace] 1330 to 1350
    "dma_first_packet_store_ns": 10.0,  # [trace]
    "dma_first_packet_per_descriptor_ns": 0.2,  # [trace] 1380 to 1600 with 256
    "dma_software_first_packet_load_ns": 5.0,  # [trace] 758 to 768
    "dma_software_first_packet_store_ns": 9.0,  # [trace] 625 to 643
    "dma_spread_ns": 3.0,  # [trace] 9.4 to 12, [read] up to 15
    "dma_load_stall_ns": 250.0,  # [trace] 0 to 900 an engine
    "dma_small_load_stall_ns": 150.0,  # [trace] 0 to 500 an engine
    "dma_queued_load_ns": 320.0,  # [trace] 1030 to 1670
    "dma_software_load_stall_ns": 150.0,  # [trace]
    "dma_software_store_stall_ns": 70.0,  # [trace]
    "dma_static_issue_ns": 17.0,  # [read] 90 to 125
    "dma_static_trigger_ns": 12.0,  # [read] one pixel of a figure
    "dma_static_first_packet_load_ns": 20.0,  # [read] 870 and 900
    "dma_static_first_packet_store_ns": 15.0,  # [read] 770 to 790
    "dma_static_load_stall_ns": 100.0,  # [read] one transfer
    "dma_static_wide_load_stall_ns": 190.0,  # [read] 1030 and 1405
    "dma_front_end_ns": 3.0,  # [trace]
    "dma_software_visible_ns": 22.0,  # [trace] 31 to 75
    "dma_after_wait_ns": 5.0,  # [trace]
    "scalar_begins_ns": 30.0,  # [trace]
    "gpsimd_begins_ns": 30.0,  # [trace]
    "dma_completion_ns": 40.0,  # [trace] 269 to 438, half of them within 40
    "launch_us": 0.9,  # [trace] 7.5 to 9.3
}


def moved(arch: Arch, name: str, by: float) -> Arch:
    """`arch` with the constant of that name, such as "vector.issue_ns", larger by `by`."""
    part, _, constant = name.rpartition(".")
    changed: dict[str, Any] = {constant: getattr(arch.engine(part) if part else arch, constant) + by}
    return replace(arch, **({part: replace(arch.engine(part), **changed)} if part else changed))


# Who makes the descriptors of a DMA when the kernel leaves dge_mode open: "hw", "sw" (GpSimdE) or "none", beforehand.
DEFAULT_DGE: Final = {
    "plain": "hw",  # [trace] every load and store of the public traces that keeps its dtype
    "cast": "sw",  # [isa] hardware DGE moves raw bytes; [trace] loads that cast are triggered by GpSimdE
    "row index": "sw",  # [isa] hardware DGE takes no index per row
    "static, without hardware DGE": "none",  # assumed; [arch2] describes both ways and names no default
    "dynamic, without hardware DGE": "sw",  # [arch2]
}


def chip(name: str | Arch) -> Arch:
    """The chip called trn1, trn2 or trn3 (or inf2, gen2, gen3, gen4)."""
    if isinstance(name, Arch):
        return name
    found = CHIPS.get(_ALIASES.get(name, name))
    if found is None:
        raise UsageError(f"no chip is called {name!r}", hint=f"use one of {', '.join([*CHIPS, *_ALIASES])}")
    return found


TARGET = "NEURON_PLATFORM_TARGET_OVERRIDE"  # the vendor's variable


def default_chip() -> Arch:
    """The chip that NEURON_PLATFORM_TARGET_OVERRIDE names, else trn2."""
    return chip(os.environ.get(TARGET) or "trn2")
