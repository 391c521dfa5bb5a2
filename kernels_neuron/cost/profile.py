"""Profile: what one launch of a kernel costs, where the time goes, and what it could cost at least."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from kernels_neuron.arch import Arch, chip
from kernels_neuron.errors import UsageError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import Run, current_scope, using
from kernels_neuron.sim.run import simulate
from kernels_neuron.sim.trace import Trace

from .bound import Bound, hbm_bytes, macs, roofline
from .cores import as_one
from .free import Help, would_help
from .path import Segment, critical_path
from .perfetto import write_chrome_trace
from .timeline import ENGINES, Plan, Timeline, plan_launch, replays, split
from .traffic import DmaUse, dma_use


@dataclass(frozen=True)
class Profile:
    """The estimate of one launch. All times but sim_wall_s are modelled; nothing here was measured on a device.

    body_us       mean over the throttle phases, launch excluded; with two cores until both have ended
    low_us, high_us   least and greatest body over the phases, launch excluded
    bound         least possible: multiply-accumulates at peak, every HBM byte once
    flops, hbm_bytes   what the bound is made of
    dtype         whose TensorE peak bounds it
    engines       busy share of each engine during the body, of the slower core
    path          critical path of the middle phase, longest line first
    dma           what its transfers move, and how well
    instructions  NKI instructions of all programs
    programs      trace and timeline (middle phase) of each program, the slower one first
    plan, launch  of all programs joined, and their timeline (middle phase)
    validated     whether this chip's model was compared with measurements
    sim_wall_s    how long our own simulator took
    """

    kernel: str
    arch: Arch
    lnc: int
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

    @property
    def critical_path(self) -> list[str]:
        """The path in words, longest line first."""
        return [str(segment) for segment in self.path]

    @cached_property
    def would_help(self) -> list[Help]:
        """What the body would save, were an engine, a kind of instruction or a source line free; most first."""
        trace = as_one([trace for trace, _ in sorted(self.programs, key=lambda program: program[0].program)])
        spent = [seen - start for start, seen in zip(self.launch.start, self.launch.seen, strict=True)]
        return would_help(trace, self.plan, spent)

    @property
    def trace(self) -> Trace:
        """The trace of the slower program."""
        return self.programs[0][0]

    @property
    def timeline(self) -> Timeline:
        """The timeline of the slower program, middle phase."""
        return self.programs[0][1]

    def to_json(self) -> dict[str, Any]:
        """The value `kernels-neuron profile --json` prints."""
        return {
            "kernel": self.kernel,
            "arch": self.arch.name,
            "lnc": self.lnc,
            "validated": self.validated,
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
            "instructions": self.instructions,
            "sim_wall_s": self.sim_wall_s,
        }

    def write_trace(self, path: Path | str) -> None:
        """Write a Chrome trace of all programs, for Perfetto."""
        write_chrome_trace(path, self.programs)


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
    arch = run.arch
    plan = plan_launch(run.traces, arch)
    bodies, middle = replays(plan)
    programs = sorted(zip(run.traces, split(plan, middle), strict=True), key=lambda program: -program[1].body_ns)
    slower = programs[0][1]
    flops, nbytes = 2.0 * macs(run.traces), hbm_bytes(run.traces)
    return Profile(
        kernel=run.kernel,
        arch=arch,
        lnc=run.lnc,
        body_us=fmean(bodies) / 1e3,
        low_us=min(bodies) / 1e3,
        high_us=max(bodies) / 1e3,
        launch_us=arch.launch_us,
        bound=roofline(flops, nbytes, dtype, arch, run.lnc),
        flops=flops,
        hbm_bytes=nbytes,
        dtype=dtype,
        engines={name: slower.busy[name] / slower.body_ns if slower.body_ns else 0.0 for name in ENGINES},
        path=critical_path(as_one(run.traces), middle),
        dma=dma_use(programs, arch),
        instructions=run.instructions,
        programs=programs,
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
    return profile_run(runs[0], _widest(runs[0]), time.perf_counter() - began, outputs)


def _widest(run: Run) -> str:
    """The dtype whose TensorE peak bounds the run: float32 if any matmul reads float32 tiles, else bfloat16."""
    for trace in run.traces:
        for record in trace.records:
            if record.macs and any(trace.tiles[region.tile].dtype == "float32" for region in record.reads):
                return "float32"
    return "bfloat16"
