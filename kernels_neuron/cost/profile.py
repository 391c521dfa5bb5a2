"""Profile: what one launch of a kernel costs, where the time goes, and what it could cost at least."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from kernels_neuron.arch import Arch, chip
from kernels_neuron.errors import UsageError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import Run, current_scope, using
from kernels_neuron.sim.run import simulate, simulate_ranks
from kernels_neuron.sim.trace import Trace

from .bound import Bound, hbm_bytes, macs, roofline
from .cores import as_one
from .free import Help, would_help
from .meetings import Meeting, meetings, program_names
from .path import Segment, critical_path
from .perfetto import write_chrome_trace
from .timeline import ENGINES, Plan, Timeline, plan_launch, replays, split
from .traffic import DmaUse, dma_use
from .unmeasured import unmeasured_parts


@dataclass(frozen=True)
class Profile:
    """The estimate of one launch. All times but sim_wall_s are modelled; nothing here was measured on a device.

    body_us       mean over the throttle phases, launch excluded; of several programs until the last one has ended
    low_us, high_us   least and greatest body over the phases, launch excluded
    lnc, ranks    physical cores of a rank, and ranks; 1 for a kernel that runs alone
    bound         least possible: multiply-accumulates at peak, every HBM byte once, shared evenly among ranks
    flops, hbm_bytes   what the bound is made of
    dtype         whose TensorE peak bounds it
    engines       busy share of each engine during the body, of the slower program
    path          critical path of the middle phase, longest line first
    dma           what its transfers move, and how well
    meetings      where its programs wait for each other, and how long
    instructions  NKI instructions of all programs
    programs      trace and timeline (middle phase) of each program of each rank, the slowest one first
    plan, launch  of all programs joined, and their timeline (middle phase)
    validated     whether this chip's model was compared with measurements
    unmeasured    instructions, kinds of transfer and the like whose price no measurement backs
    sim_wall_s    how long our own simulator took
    """

    kernel: str
    arch: Arch
    lnc: int
    ranks: int
    body_us: float
    low_us: float
    high_us: float
    launch_us: float
    bound: Bound
    flops: float
    hbm_bytes: int
    dtype: str
    engines: dict[str, float]
    path: list[Segment]
    dma: DmaUse
    meetings: list[Meeting]
    instructions: int
    programs: list[tuple[Trace, Timeline]] = field(repr=False)
    plan: Plan = field(repr=False)
    launch: Timeline = field(repr=False)
    sim_wall_s: float = 0.0
    outputs: Any = field(default=None, repr=False)

    @property
    def bound_us(self) -> float:
        """The least time the flops and bytes can take."""
        return self.bound.us

    @property
    def estimated_us(self) -> float:
        """Body and one launch."""
        return self.body_us + self.launch_us

    @property
    def estimated_low_us(self) -> float:
        """Least over the throttle phases, launch included."""
        return self.low_us + self.launch_us

    @property
    def estimated_high_us(self) -> float:
        """Greatest over the throttle phases, launch included."""
        return self.high_us + self.launch_us

    @property
    def validated(self) -> bool:
        """Whether the latency model of this chip was compared with measurements."""
        return self.arch.validated

    @cached_property
    def unmeasured(self) -> list[str]:
        """What of the estimate documents and assumptions alone price."""
        return unmeasured_parts([trace for trace, _ in self.programs])

    @property
    def critical_path(self) -> list[str]:
        """The path in words, longest line first."""
        return [str(segment) for segment in self.path]

    @property
    def in_order(self) -> list[tuple[Trace, Timeline]]:
        """The programs by rank and number."""
        return sorted(self.programs, key=lambda program: (program[0].rank, program[0].program))

    @property
    def bodies_us(self) -> dict[str, float]:
        """Program -> when it has ended, in the middle phase: "rank 0", "core 1", "rank 1 core 0"."""
        names = program_names([trace for trace, _ in self.in_order])
        return {name: line.body_ns / 1e3 for name, (_, line) in zip(names, self.in_order, strict=True)}

    @cached_property
    def would_help(self) -> list[Help]:
        """What the body would save, were an engine, a kind of instruction or a source line free; most first."""
        trace = as_one([trace for trace, _ in self.in_order])
        spent = [seen - start for start, seen in zip(self.launch.start, self.launch.seen, strict=True)]
        return would_help(trace, self.plan, spent)

    @property
    def trace(self) -> Trace:
        """The trace of the slowest program."""
        return self.programs[0][0]

    @property
    def timeline(self) -> Timeline:
        """The timeline of the slowest program, middle phase."""
        return self.programs[0][1]

    def to_json(self) -> dict[str, Any]:
        """The value `kernels-neuron profile --json` prints."""
        return {
            "kernel": self.kernel,
            "arch": self.arch.name,
            "lnc": self.lnc,
            "ranks": self.ranks,
            "validated": self.validated,
            "unmeasured": self.unmeasured,
            "estimated_us": self.estimated_us,
            "estimated_low_us": self.estimated_low_us,
            "estimated_high_us": self.estimated_high_us,
            "body_us": self.body_us,
            "launch_us": self.launch_us,
            "bound_us": self.bound_us,
            "measured_us": None,
            "flops": self.flops,
            "hbm_bytes": self.hbm_bytes,
            "engines": self.engines,
            "critical_path": [vars_of(segment) for segment in self.path],
            "would_help": [each.to_json() for each in self.would_help],
            "dma": self.dma.to_json(),
            "bodies_us": self.bodies_us,
            "meetings": [each.to_json() for each in self.meetings],
            "instructions": self.instructions,
            "sim_wall_s": self.sim_wall_s,
        }

    def write_trace(self, path: Path | str) -> None:
        """Write a Chrome trace of all programs, for Perfetto."""
        write_chrome_trace(path, self.in_order)


def vars_of(segment: Segment) -> dict[str, Any]:
    """A path segment as JSON."""
    return {
        "where": segment.where,
        "instruction": segment.instruction,
        "engine": segment.engine,
        "us": segment.us,
        "share": segment.share,
        "times": segment.times,
        "waits": [{**wait._asdict(), "times": times} for wait, times in segment.waits],
    }


def profile_run(run: Run, dtype: str = "bfloat16", sim_wall_s: float = 0.0, outputs: Any = None) -> Profile:
    """Time one launch that the simulator ran. `dtype` chooses the TensorE peak of the bound."""
    return _profile_runs([run], dtype, sim_wall_s, outputs)


def _profile_runs(runs: Sequence[Run], dtype: str, sim_wall_s: float, outputs: Any) -> Profile:
    """Time the launches of all ranks, which begin together. Their cores share HBM as the cores of one rank do."""
    arch, lnc = runs[0].arch, runs[0].lnc
    traces = [trace for run in runs for trace in run.traces]
    if any(trace.spills for trace in traces):
        raise UsageError(
            f"{runs[0].kernel} spills SBUF to HBM, and the time of a spill is not modelled",
            hint="leave the switch sbuf_overflow at 'refuse' to see which tiles are live",
        )
    plan = plan_launch(traces, arch)
    bodies, middle = replays(plan)
    programs = list(zip(traces, split(plan, middle), strict=True))
    by_body = sorted(programs, key=lambda program: -program[1].body_ns)
    slower = by_body[0][1]
    flops, nbytes = 2.0 * macs(traces), hbm_bytes(traces)
    return Profile(
        kernel=runs[0].kernel,
        arch=arch,
        lnc=lnc,
        ranks=len(runs),
        body_us=fmean(bodies) / 1e3,
        low_us=min(bodies) / 1e3,
        high_us=max(bodies) / 1e3,
        launch_us=arch.launch_us,
        bound=roofline(flops / len(runs), nbytes / len(runs), dtype, arch, lnc),
        flops=flops,
        hbm_bytes=nbytes,
        dtype=dtype,
        engines={name: slower.busy[name] / slower.body_ns if slower.body_ns else 0.0 for name in ENGINES},
        path=critical_path(as_one(traces), middle),
        dma=dma_use(programs, arch),
        meetings=meetings(programs, arch),
        instructions=sum(run.instructions for run in runs),
        programs=by_body,
        plan=plan,
        launch=middle,
        sim_wall_s=sim_wall_s,
        outputs=outputs,
    )


def profile(
    kernel: Callable[..., Any],
    *args: Any,
    arch: str | Arch | None = None,
    settings: Settings | None = None,
    **kwargs: Any,
) -> Profile:
    """Run an `@nki.jit` function in the simulator and estimate its time on the chip.

    kernel    the function, or `function[2]` for two physical cores
    args      numpy arrays or torch CPU tensors become HBM tensors; everything else is passed as it is
    arch      "trn1", "trn2" or "trn3"; default as for simulate
    settings  Settings(execute=False) prices the kernel without computing anything
    """
    began = time.perf_counter()
    scope = current_scope()
    with using(chip(arch) if arch is not None else scope.arch, settings or scope.settings) as runs:
        outputs = simulate(kernel, *args, **kwargs)
    if len(runs) != 1:
        raise UsageError(f"profile takes one kernel launch, this call made {len(runs)}")
    return _profile_runs(runs, _widest(runs), time.perf_counter() - began, outputs)


def profile_ranks(
    kernel: Callable[..., Any],
    arguments: Sequence[Sequence[Any] | Mapping[str, Any]],
    *,
    arch: str | Arch | None = None,
    settings: Settings | None = None,
) -> Profile:
    """Run a kernel on several ranks at once, so that nki.collectives work, and estimate the time until all have ended.

    arguments       of each rank, for 1 to 64 ranks: a sequence of positional ones, or a mapping by name
    kernel, arch, settings   as for profile; with `function[2]` each rank has two physical cores

    All ranks begin at once: that one is launched later than another, or reaches the kernel later, is not in it. How
    long ranks wait for each other inside the kernel is, see Profile.meetings. Profile.outputs is a list by rank.
    """
    began = time.perf_counter()
    scope = current_scope()
    with using(chip(arch) if arch is not None else scope.arch, settings or scope.settings) as runs:
        outputs = simulate_ranks(kernel, arguments)
    return _profile_runs(runs, _widest(runs), time.perf_counter() - began, outputs)


def _widest(runs: Sequence[Run]) -> str:
    """The dtype whose TensorE peak bounds the runs: float32 if any matmul reads float32 tiles, else bfloat16."""
    for trace in (trace for run in runs for trace in run.traces):
        for record in trace.records:
            if record.macs and any(trace.tiles[region.tile].dtype == "float32" for region in record.reads):
                return "float32"
    return "bfloat16"
