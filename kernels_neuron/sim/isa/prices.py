"""PRICES: what each instruction costs its engine, as a function of the chip and of facts about its operands.

Tags as in arch.py. N is the number of elements per partition of the widest operand; partitions do not change the time.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from kernels_neuron.arch import IN_EVERY_TABLE, Arch
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.trace import Price, Transfer


class Facts(NamedTuple):
    """What a price may depend on.

    engine       engine that runs the step
    n            elements per partition
    dtypes       of destination first, then sources
    memories     of the same operands, "sbuf" or "psum"
    contiguous   every operand's innermost free dim has stride 1
    op           operator or function name, "" if none
    pointer      a scalar operand is a [P, 1] tile rather than an immediate
    """

    engine: str
    n: int
    dtypes: tuple[str, ...]
    memories: tuple[str, ...]
    contiguous: bool
    op: str = ""
    pointer: bool = False

    @property
    def all_sbuf(self) -> bool:
        return all(memory == "sbuf" for memory in self.memories)

    @property
    def all_16bit(self) -> bool:
        return all(dtype in ("bfloat16", "float16") for dtype in self.dtypes)


NO_FACTS = Facts("sync", 0, (), (), True)  # of an instruction without tensors


def facts(engine: str, dst: NkiTensor, *sources: NkiTensor, op: str = "", pointer: bool = False) -> Facts:
    """Facts of an instruction that writes `dst` from `sources`."""
    operands = (dst, *sources)
    return Facts(
        engine,
        max([tensor.free_size for tensor in operands]),
        tuple([tensor.dtype for tensor in operands]),
        tuple(["psum" if tensor.buffer is MemoryRegion.psum else "sbuf" for tensor in operands]),
        all(tensor.strides[-1] == 1 or tensor.shape[-1] == 1 for tensor in operands),
        op,
        pointer,
    )


def _engine(
    arch: Arch,
    engine: str,
    cycles: float,
    extra_issue_ns: float = 0.0,
    extra_latency_ns: float = 0.0,
    table: str = "",
    fast: bool = False,
) -> Price:
    """Streaming `cycles` on an engine plus its fixed costs; never below the minimum initiation interval."""
    timing = arch.engine(engine)
    floor = arch.min_issue_cycles / timing.ghz
    stream = cycles / timing.ghz
    issue = max(floor, stream + timing.issue_ns + extra_issue_ns)
    return Price(issue, max(issue, stream + timing.latency_ns + extra_latency_ns), table=table, fast=fast)


def _copy_speed(arch: Arch, f: Facts) -> int:
    """VectorE speed-up of tensor_copy and tensor_scalar. [arch3] performance modes; float32 tensor_scalar [trace]."""
    if not arch.vector_fast_modes or f.engine != "vector":
        return 1
    if f.all_16bit and f.all_sbuf:
        return 4 if f.contiguous else 2
    if f.all_16bit and f.contiguous and f.memories.count("psum") == 1:
        return 2
    return 1


def copy(arch: Arch, f: Facts) -> Price:
    """N cycles [isa] [trace], faster in a performance mode [arch3]; GpSimdE starts with 150 cycles [isa]."""
    if f.engine == "gpsimd":
        return gpsimd(arch, f)
    speed = _copy_speed(arch, f)
    return _engine(arch, f.engine, f.n / speed, fast=speed > 1)


def tensor_scalar(arch: Arch, f: Facts) -> Price:
    """As a copy; float32 SBUF to SBUF runs at two elements a cycle and a pointer operand costs 65 ns more. [trace]"""
    if f.engine == "gpsimd":  # nl.rsqrt alone, at a quarter of ScalarE's throughput [isa]
        return _engine(arch, "gpsimd", arch.gpsimd_start_cycles + 4 * f.n)
    speed = _copy_speed(arch, f)
    if speed == 1 and arch.vector_fast_modes and f.engine == "vector" and f.all_sbuf and f.contiguous:
        speed = 2
    extra = 65.0 if f.pointer else 0.0
    return _engine(arch, f.engine, f.n / speed, extra, extra, fast=speed > 1)


def tensor_tensor(arch: Arch, f: Facts) -> Price:
    """N cycles [read], on trn1 2N unless an input is in PSUM or both are in SBUF and all 16-bit. [isa] [arch3]"""
    if f.engine == "gpsimd":
        return gpsimd(arch, f)
    sources = f.memories[1:]
    mode = f.all_16bit and all(memory == "sbuf" for memory in sources) and f.contiguous
    fast = mode and arch.vector_fast_modes
    cycles = 1 if mode or "psum" in sources else arch.tensor_tensor_cycles
    return _engine(arch, "vector", f.n * cycles, fast=fast)


def scalar_tensor_tensor(arch: Arch, f: Facts) -> Price:
    """N with a PSUM operand [read], or for (bfloat16 - operand0) * bfloat16 with N even, else 2N [isa]."""
    fused = f.op == "subtract multiply" and set(f.dtypes[1:]) == {"bfloat16"} and f.n % 2 == 0
    fast = "psum" in f.memories[1:] or fused
    return _engine(arch, "vector", f.n * (1 if fast else 2))


def stream(arch: Arch, f: Facts) -> Price:
    """N cycles. [isa]"""
    return _engine(arch, f.engine, f.n)


def stream_twice(arch: Arch, f: Facts) -> Price:
    """2N cycles. [isa]"""
    return _engine(arch, f.engine, 2 * f.n)


def tensor_reduce(arch: Arch, f: Facts) -> Price:
    """N cycles of the input [isa] [trace], N/2 for bfloat16 in and out with add or maximum [isa]."""
    half = all(dtype == "bfloat16" for dtype in f.dtypes) and f.op in ("add", "maximum")
    return _engine(arch, "vector", f.n / (2 if half else 1))


def reduce_readout(arch: Arch, f: Facts) -> Price:
    """The second step of a reducing instruction: reading the accumulators, 64 cycles. [isa] [read]"""
    return _engine(arch, f.engine, arch.min_issue_cycles)


def activation(arch: Arch, f: Facts) -> Price:
    """N cycles; a function issues 123 ns later than a copy from SBUF, 81 from PSUM; 122 and 100 ns latency. [trace]"""
    if f.engine == "gpsimd":  # trn3; no formula is published, assumed to cost what its other instructions do
        return gpsimd(arch, f)
    if f.op in ("copy", ""):
        return _engine(arch, "scalar", f.n)
    from_psum = f.memories[1] == "psum"
    table = "" if f.op in IN_EVERY_TABLE else f.op
    return _engine(arch, "scalar", f.n, 81.0 if from_psum else 123.0, 100.0 if from_psum else 122.0, table=table)


def reciprocal(arch: Arch, f: Facts) -> Price:
    """8N cycles. [isa] [trace]"""
    return _engine(arch, "vector", 8 * f.n)


def memset(arch: Arch, f: Facts) -> Price:
    """N cycles, N/2 for 16-bit zeros. [isa]; the caller sets op to "zero" for those."""
    if f.engine == "gpsimd":
        return gpsimd(arch, f)
    return _engine(arch, f.engine, f.n / (2 if f.op == "zero" and f.all_16bit else 1))


def gpsimd(arch: Arch, f: Facts) -> Price:
    """150 + N cycles. [isa]"""
    return _engine(arch, "gpsimd", arch.gpsimd_start_cycles + f.n)


def local_gather(arch: Arch, f: Facts) -> Price:
    """150 + n C cycles for n elements in pieces of e, C = (28 + 4 e) / (4 e) / min(4 / itemsize, e). [isa]

    [isa] divides by C, which makes long pieces dearer than single elements; multiplied, as assumed here, it does not.
    The caller sets n to all elements of a partition and op to e.
    """
    piece = int(f.op)
    itemsize = 4 if "32" in f.dtypes[0] else 2 if "16" in f.dtypes[0] else 1
    cycles = f.n * (28 + 4 * piece) / (4 * piece) / min(4 / itemsize, piece)
    return _engine(arch, "gpsimd", arch.gpsimd_start_cycles + cycles)


def n_gather(arch: Arch, f: Facts) -> Price:
    """A group of instructions for every 512 elements of a partition [isa]; assumed 150 + 512 cycles each."""
    groups = -(-f.n // 512)
    return _engine(arch, "gpsimd", groups * arch.gpsimd_start_cycles + f.n)


def topk(arch: Arch, f: Facts) -> Price:
    """4 n + K cycles [isa], which the caller sets as n, after GpSimdE's start."""
    return _engine(arch, "gpsimd", arch.gpsimd_start_cycles + f.n)


def exponential(arch: Arch, f: Facts) -> Price:
    """N / 4 cycles: four times the throughput of ScalarE's exp. [arch4]"""
    return _engine(arch, "vector", f.n / 4)


def quantize_mx(arch: Arch, f: Facts) -> Price:
    """N / 4 cycles: four input elements per partition and cycle. [arch4]"""
    return _engine(arch, "vector", f.n / 4)


def random(arch: Arch, f: Facts) -> Price:
    """N cycles on VectorE, 150 + N on GpSimdE; assumed, no formula is published."""
    return gpsimd(arch, f) if f.engine == "gpsimd" else _engine(arch, f.engine, f.n)


def rand2(arch: Arch, f: Facts) -> Price:
    """N / 4 cycles: four 32-bit values per lane and cycle. [arch4]"""
    return _engine(arch, "vector", f.n / 4)


def bn_aggr(arch: Arch, f: Facts) -> Price:
    """13 (N / 3) cycles. [isa]"""
    return _engine(arch, "vector", 13 * f.n / 3)


def copy_predicated(arch: Arch, f: Facts) -> Price:
    """2N cycles with everything in SBUF, N when source and predicate sit in different memories. [isa]"""
    return _engine(arch, "vector", f.n * (2 if f.all_sbuf else 1))


# ---- TensorE


def matmul_rows(arch: Arch, dtype: str, rows: int, transpose: bool = False) -> tuple[int, int]:
    """(passes, cycles per pass) of `rows` rows. float32: two passes of two cycles a row, one to transpose. [trace]"""
    if dtype == "float32":
        return (1 if transpose else arch.fp32_passes), max(arch.pe_min_cycles, arch.fp32_cycles_per_row * rows)
    return 1, max(arch.pe_min_cycles, rows)


def matmul(arch: Arch, cycles: int) -> Price:
    """One pass of `cycles` streaming cycles."""
    timing = arch.tensor
    return Price(cycles / timing.ghz + timing.issue_ns, cycles / timing.ghz + timing.latency_ns, pe_cycles=cycles)


def load_stationary(arch: Arch, dtype: str, transpose: bool = False) -> Price:
    """Cycles before an isolated matmul may stream: 72 for 16-bit, 144 for a float32 transpose, 264 for float32.

    That is 30, 60 and 110 ns on trn2 [trace]; trn1 assumed to take as many cycles. At half rate 30, 100 and 173 ns.
    """
    ghz = arch.tensor.ghz
    if dtype != "float32":
        return Price(72 / ghz, 72 / ghz, weights=True)
    delay, cycles = (144 / ghz, 96) if transpose else (264 / ghz, 151)
    return Price(delay, delay, pe_cycles=cycles, weights=arch.fp32_weights_hidden)


def vector_transpose(arch: Arch, f: Facts) -> Price:
    """N cycles in blocks of 32 by 32. [isa]"""
    return _engine(arch, "vector", f.n)


# ---- between cores


def semaphore(arch: Arch, f: Facts) -> Price:
    """Setting a semaphore of the other core and seeing its own, as between two engines; assumed, none is published."""
    timing = arch.gpsimd
    return Price(timing.set_ns + timing.wake_ns, timing.set_ns + timing.wake_ns)


def collective(arch: Arch, hops: int, nbytes: int) -> Price:
    """1.5 us a hop, the middle of the 1 to 2 us that are published, and the bytes at the rate of the DMA engines.

    The queue that starts it goes on at once, assumed.
    """
    timing = arch.engine("sync")
    issue = arch.min_issue_cycles / timing.ghz
    return Price(issue, issue + hops * _HOP_NS + nbytes / arch.dma_stream_gbps)


_HOP_NS = 1500.0  # collective communication deep dive: 1 to 2 us per hop inside a node; the middle is assumed


# ---- registers


def register_move(arch: Arch, f: Facts) -> Price:
    """One sequencer instruction; assumed to cost the minimum initiation interval."""
    return _engine(arch, "sync", 0)


def register_access(arch: Arch, f: Facts) -> Price:
    """About 600 cycles, what a dynamic address costs an engine [isa]; assumed to be the access itself."""
    return _engine(arch, "sync", _DYNAMIC_CYCLES)


_DYNAMIC_CYCLES = 600  # [isa] "roughly 600"

# ---- DMA


def dma(arch: Arch, transfer: Transfer) -> Price:
    """What a DMA costs the queue that triggers it; the data part is `transfer`. [trace] [read]"""
    if transfer.dge == "none":
        return Price(arch.dma_static_issue_ns, arch.dma_static_trigger_ns, transfer=transfer)
    if transfer.dge == "sw":
        return Price(arch.dma_software_issue_ns, arch.dma_software_issue_ns, transfer=transfer)
    issue = arch.dma_issue_ns + arch.dma_issue_per_descriptor_ns * transfer.descriptors
    return Price(issue + arch.dma_gap_ns, issue, transfer=transfer)


def _remembered(formula: Callable[[Arch, Facts], Price]) -> Callable[[Arch, Facts], Price]:
    """`formula` with its answers kept: a kernel asks for the same few prices thousands of times."""
    answers: dict[Facts, tuple[Arch, Price]] = {}

    @functools.wraps(formula)
    def price(arch: Arch, f: Facts) -> Price:
        known = answers.get(f)
        if known is None or known[0] is not arch:
            if len(answers) >= _MAX_REMEMBERED:
                answers.clear()
            known = answers[f] = (arch, formula(arch, f))
        return known[1]

    return price


def _assumed(formula: Callable[[Arch, Facts], Price], like: str) -> Callable[[Arch, Facts], Price]:
    """`formula` for an instruction that has none of its own."""

    @functools.wraps(formula)
    def price(arch: Arch, f: Facts) -> Price:
        return formula(arch, f)

    price.__doc__ = f"Assumed to cost what {like} costs; no formula is published."
    return price


_MAX_REMEMBERED = 4096
_FORMULAS: dict[str, Callable[[Arch, Facts], Price]] = {
    "tensor_copy": copy,
    "tensor_scalar": tensor_scalar,
    "tensor_tensor": tensor_tensor,
    "scalar_tensor_tensor": scalar_tensor_tensor,
    "tensor_tensor_scan": stream_twice,
    "tensor_reduce": tensor_reduce,
    "tensor_scalar_reduce": stream,
    "reduce_readout": reduce_readout,
    "activation": activation,
    "activation_reduce": activation,
    "reciprocal": reciprocal,
    "memset": memset,
    "iota": gpsimd,
    "affine_select": gpsimd,
    "local_gather": local_gather,
    "nc_n_gather": n_gather,
    "nonzero_with_count": _assumed(gpsimd, "iota"),
    "sequence_bounds": _assumed(gpsimd, "iota"),
    "tensor_partition_reduce": _assumed(gpsimd, "iota"),
    "topk": topk,
    "activate2": _assumed(activation, "activation"),
    "exponential": exponential,
    "quantize_mx": quantize_mx,
    "rng": random,
    "rand2": rand2,
    "dropout": stream,
    "set_rng_seed": random,
    "rand_set_state": random,
    "rand_get_state": random,
    "select_reduce": _assumed(stream, "range_select"),
    "range_select": stream,
    "bn_stats": stream,
    "bn_aggr": bn_aggr,
    "tensor_copy_predicated": copy_predicated,
    "nc_transpose": vector_transpose,
    "nc_stream_shuffle": stream,
    "max8": stream,
    "nc_find_index8": stream,
    "nc_match_replace8": stream,  # [isa] says min(64, N), which can only be max
    "register_move": register_move,
    "register_load": register_access,
    "register_store": register_access,
    "core_barrier": semaphore,
    "sendrecv": semaphore,  # of the receiving side; the sender pays a DMA
    "tensor_scalar_cumulative": _assumed(stream_twice, "tensor_tensor_scan"),
}

PRICES = {name: _remembered(formula) for name, formula in _FORMULAS.items()}
