"""Replaying a Neuron profile: its own instruction order and semaphores, with the prices and queues of the model.

What the hardware did and what the model says it should have taken stand side by side, per engine and per kind of
instruction. This is how the model is validated, and how somebody with a device checks it on their own kernel.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import fmean
from typing import Any

from kernels_neuron.arch import Arch, chip
from kernels_neuron.errors import UsageError
from kernels_neuron.sim.isa import prices
from kernels_neuron.sim.trace import Price, Transfer

from .neuron_profile import Executed, NeuronProfile, read_profile
from .switches import chip_without, price_without
from .throttle import PHASES
from .timeline import QUEUES, Plan, Timeline, make_plan, replay

# the profiler's opcode -> the row of PRICES; on ScalarE copies and casts are activations without a function
_VECTOR_ROWS = {
    **dict.fromkeys(("COPY", "CAST", "TENSOR_COPY"), "tensor_copy"),
    **dict.fromkeys(("TENSOR_SCALAR", "TENSOR_SCALAR_PTR"), "tensor_scalar"),
    **dict.fromkeys(("TENSOR_TENSOR", "TENSOR_TENSOR_OP"), "tensor_tensor"),
    "SCALAR_TENSOR_TENSOR": "scalar_tensor_tensor",
    "TENSOR_TENSOR_SCAN": "tensor_tensor_scan",
    "TENSOR_REDUCE": "tensor_reduce",
    "RECIPROCAL": "reciprocal",
    "MEMSET": "memset",
    "IOTA": "iota",
    "AFFINE_SELECT": "affine_select",
    "SELECT": "tensor_copy",
    "COPY_PREDICATED": "tensor_copy_predicated",
    "TRANSPOSE": "nc_transpose",
    "BN_STATS": "bn_stats",
    "BN_AGGR": "bn_aggr",
    "MAX8": "max8",
}
_PLAIN_FUNCTIONS = ("", "copy", "identity")
_SEMAPHORES = ("EVENT_SEMAPHORE", "NOP")


@dataclass(frozen=True)
class EngineComparison:
    """One engine, measured and modelled, in us: from the first DMA trigger to its last write, and its time with work.

    low_us, high_us  of the modelled end over the throttle phases
    """

    measured_body_us: float
    estimated_body_us: float
    low_us: float
    high_us: float
    measured_busy_us: float
    estimated_busy_us: float
    instructions: int


@dataclass(frozen=True)
class KindComparison:
    """One kind of instruction: mean duration, and how far its ends are from the measured ones (later is positive)."""

    engine: str
    opcode: str
    count: int
    measured_us: float
    estimated_us: float
    ends_us: float


@dataclass(frozen=True)
class Comparison:
    """A profile next to its replay. Bodies run from the first DMA trigger to the last data packet, in us.

    estimated_body_us     mean over the throttle phases; low_us, high_us their least and greatest
    estimated_at_phase_us with the phase that the profile shows, None where it shows none
    unpriced              opcodes the price table does not know, priced as one element a cycle
    """

    file: Path
    arch: Arch
    measured_body_us: float
    estimated_body_us: float
    low_us: float
    high_us: float
    estimated_at_phase_us: float | None
    engines: dict[str, EngineComparison]
    kinds: list[KindComparison]
    unpriced: tuple[str, ...] = ()
    instructions: int = 0
    without: dict[str, float] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """Modelled over measured body, less one."""
        return self.estimated_body_us / self.measured_body_us - 1

    def to_json(self) -> dict[str, Any]:
        """The value `kernels-neuron profile --import FILE --json` prints."""
        return {
            "file": str(self.file),
            "arch": self.arch.name,
            "measured_body_us": self.measured_body_us,
            "estimated_body_us": self.estimated_body_us,
            "low_us": self.low_us,
            "high_us": self.high_us,
            "estimated_at_phase_us": self.estimated_at_phase_us,
            "error": self.error,
            "engines": {name: vars(engine) for name, engine in self.engines.items()},
            "kinds": [vars(kind) for kind in self.kinds],
            "unpriced": list(self.unpriced),
            "instructions": self.instructions,
            "without": self.without,
        }


def compare_profile(path: Path | str, without: Iterable[str] = ()) -> Comparison:
    """Read a profile, replay it over the throttle phases and compare.

    without  names of switches.SWITCHES; the mean body with each of them off is reported too
    """
    profile = read_profile(path)
    imported = Imported.of(profile)
    runs = imported.runs()
    bodies = [imported.body_us(run) for run in runs]
    middle = runs[PHASES // 2]
    at_phase = None
    if profile.window_at is not None:
        window = imported.plan.arch.throttle_window_ns
        at_phase = imported.body_us(replay(imported.plan, ((profile.began - profile.window_at) / window) % 1.0))
    return Comparison(
        file=profile.path,
        arch=imported.plan.arch,
        measured_body_us=profile.body_us,
        estimated_body_us=fmean(bodies),
        low_us=min(bodies),
        high_us=max(bodies),
        estimated_at_phase_us=at_phase,
        engines=_engines(imported, runs, middle),
        kinds=_kinds(imported, middle),
        unpriced=imported.unpriced,
        instructions=len(imported.order),
        without={part: Imported.of(profile, part).mean_body_us() for part in without},
    )


@dataclass(frozen=True)
class Imported:
    """A profile as a plan of the timeline; `order` holds its instructions as the plan counts them, queue by queue."""

    profile: NeuronProfile
    order: list[Executed]
    plan: Plan
    unpriced: tuple[str, ...]

    @classmethod
    def of(cls, profile: NeuronProfile, without: str = "", arch: Arch | None = None) -> "Imported":
        """Price the instructions on `arch`, else the chip that the profile's TensorE clock is of, one switch off."""
        arch = chip_without(arch or chip("trn1" if profile.pe_ghz > 2.6 else "trn2"), without)
        order = [done for engine in QUEUES for done in profile.queues.get(engine, [])]
        unpriced: set[str] = set()
        priced = [price_without(price_of(arch, done, unpriced), without) for done in order]
        preds = dependencies(order)
        _refuse_deadlock(profile, order, preds)
        return cls(
            profile, order, make_plan(arch, priced, [done.engine for done in order], preds), tuple(sorted(unpriced))
        )

    def runs(self) -> list[Timeline]:
        """One replay per throttle phase."""
        return [replay(self.plan, phase / PHASES) for phase in range(PHASES)]

    def body_us(self, run: Timeline) -> float:
        """From the first visible trigger to the last data packet, as it is measured."""
        return (max(last for _, last in run.data.values()) - self.began(run)) / 1e3

    def began(self, run: Timeline) -> float:
        """When the first trigger is visible."""
        return min(self.visible(run, index) for index, done in enumerate(self.order) if done.is_dma)

    def visible(self, run: Timeline, index: int) -> float:
        """The start that a profiler would show: of a software DMA, after its descriptors were generated."""
        transfer = self.plan.prices[index].transfer
        if transfer is not None and transfer.dge == "sw":
            return run.end[index] - self.plan.arch.dma_software_visible_ns
        return run.start[index]

    def mean_body_us(self) -> float:
        """The body, mean over the throttle phases."""
        return fmean(self.body_us(run) for run in self.runs())


def price_of(arch: Arch, done: Executed, unpriced: set[str]) -> Price:
    """What the model charges for an executed instruction; opcodes without a price are added to `unpriced`."""
    if done.is_dma:
        return prices.dma(arch, _transfer(arch, done))
    if done.opcode in _SEMAPHORES:
        issue, latency = arch.event_semaphore_ns[done.engine]
        return Price(issue, latency, front=True)
    if done.opcode == "ACT_TABLE_LOAD":
        return Price(arch.act_table_load_ns, arch.act_table_load_ns)
    if done.engine == "tensor":
        return _tensor_price(arch, done, unpriced)
    return _engine_price(arch, done, unpriced)


def _transfer(arch: Arch, done: Executed) -> Transfer:
    if done.engine == "gpsimd":
        dge = "sw"
    else:
        dge = "hw" if arch.hardware_dge else "none"
    size = max(done.number("src_elem_size", 1), done.number("dst_elem_size", 1))
    load, store = bool(done.row.get("hbm_read_bytes")), bool(done.row.get("hbm_write_bytes"))
    direction = "copy" if load == store else "load" if load else "store"
    rows = done.pattern_rows("src")
    return Transfer(direction, rows, size, 0, min(rows, arch.partitions), dge)


def _tensor_price(arch: Arch, done: Executed, unpriced: set[str]) -> Price:
    moving = next((access for access in done.accesses if access.role == "src"), None)
    dtype = moving.dtype if moving else "bfloat16"
    # a transpose has one float32 pass; the two passes of a matmul are two instructions
    if done.opcode == "LDWEIGHTS":
        return prices.load_stationary(arch, dtype, done.text("transpose_mode") == "ENABLED")
    if done.opcode != "MATMUL":
        unpriced.add(done.opcode)
    return prices.matmul(arch, prices.matmul_rows(arch, dtype, moving.count if moving else 0)[1])


def _engine_price(arch: Arch, done: Executed, unpriced: set[str]) -> Price:
    # the destination first, as facts of a kernel's instruction have it
    accesses = sorted(done.accesses, key=lambda access: not access.role.startswith("dst"))
    name, op = _VECTOR_ROWS.get(done.opcode, ""), ""
    if done.engine == "scalar":
        name, op = "activation", str(done.row.get("activation_fn") or "").lower()
        op = "" if op in _PLAIN_FUNCTIONS else op
        if done.opcode not in ("ACTIVATE", "COPY", "CAST", "ACTIVATION"):
            unpriced.add(done.opcode)
    elif name == "tensor_reduce":
        op = {"max": "maximum"}.get(done.text("op").lower(), done.text("op").lower())
    elif not name:
        name = "bn_stats"  # one element a cycle
        unpriced.add(done.opcode)
    facts = prices.Facts(
        engine=done.engine,
        n=max((access.count for access in accesses), default=1),
        dtypes=tuple(access.dtype for access in accesses) or ("float32",),
        memories=tuple(access.memory for access in accesses) or ("sbuf", "sbuf"),
        contiguous=all(access.stride == 1 for access in accesses),
        op=op,
        pointer="PTR" in done.text("imm_src").split(","),
    )
    # the table load is an instruction of its own here
    return replace(prices.PRICES[name](arch, facts), table="")


def dependencies(order: list[Executed]) -> list[tuple[int, ...]]:
    """For each instruction, those whose increments bring the semaphores it waits for to their values.

    A semaphore belongs to one queue, whose increments land in order. One that no instruction of the kernel raises is
    the runtime's and holds from the start.
    """
    raised: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, done in enumerate(order):
        for semaphore, by in done.updates:
            total = raised[semaphore][-1][0] if raised[semaphore] else 0
            raised[semaphore].append((total + by, index))
    found = []
    for done in order:
        before: set[int] = set()
        for semaphore, value in done.waits:
            for total, index in raised.get(semaphore, ()):
                before.add(index)
                if total >= value:
                    break
        found.append(tuple(sorted(before)))
    return found


def _refuse_deadlock(profile: NeuronProfile, order: list[Executed], preds: list[tuple[int, ...]]) -> None:
    graph = {index: set(before) for index, before in enumerate(preds)}
    for index in range(1, len(order)):
        if order[index].engine == order[index - 1].engine:
            graph[index].add(index - 1)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        names = " and ".join(order[index].name for index in error.args[1][:2])
        raise UsageError(f"{profile.path} cannot be replayed: {names} wait for each other") from None


def _engines(imported: Imported, runs: list[Timeline], middle: Timeline) -> dict[str, EngineComparison]:
    found = {}
    began = imported.profile.began
    for engine in QUEUES:
        indices = [index for index, done in enumerate(imported.order) if done.engine == engine]
        # what ends after the body only waits for the last store
        indices = [index for index in indices if imported.order[index].end <= imported.profile.ended] or indices
        if not indices:
            continue
        ends = [(max(run.end[index] for index in indices) - imported.began(run)) / 1e3 for run in runs]
        found[engine] = EngineComparison(
            measured_body_us=(max(imported.order[index].end for index in indices) - began) / 1e3,
            estimated_body_us=fmean(ends),
            low_us=min(ends),
            high_us=max(ends),
            measured_busy_us=_union((imported.order[index].start, imported.order[index].end) for index in indices),
            estimated_busy_us=_union((imported.visible(middle, index), middle.end[index]) for index in indices),
            instructions=len(indices),
        )
    return found


def _union(spans: Iterable[tuple[float, float]]) -> float:
    """Microseconds covered by at least one span."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total / 1e3


def _kinds(imported: Imported, run: Timeline) -> list[KindComparison]:
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, done in enumerate(imported.order):
        groups[done.engine, done.opcode].append(index)
    began, measured_began = imported.began(run), imported.profile.began
    found = []
    for (engine, opcode), indices in groups.items():
        rows = [imported.order[index] for index in indices]
        ends = [run.end[index] - began - (row.end - measured_began) for index, row in zip(indices, rows, strict=True)]
        found.append(
            KindComparison(
                engine=engine,
                opcode=opcode,
                count=len(indices),
                measured_us=fmean(row.end - row.start for row in rows) / 1e3,
                estimated_us=fmean(run.end[index] - imported.visible(run, index) for index in indices) / 1e3,
                ends_us=fmean(ends) / 1e3,
            )
        )
    return found
