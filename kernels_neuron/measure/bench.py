"""bench: how long a built kernel takes by the model, next to its bound and to the unfused PyTorch ops.

The times come from the very run that is compared with the reference; a case that misses it has no times.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from kernels_neuron.arch import chip
from kernels_neuron.artifact import import_variant
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using

from .cases import Task
from .executors import default_workers, process_pool, run_all
from .timing import Timer
from .verify import Outcome, cores, explain, run_case


@dataclass(frozen=True)
class BenchRow:
    """One case timed. Times in microseconds are modelled, except measured_us; None where there is no number.

    body_us            all kernels of the call and the torch ops around them, launches apart
    estimated_us       body and its launches; low and high over the throttle phases
    flops, hbm_bytes   useful operations, and each tensor's bytes once
    bound_us           flops at peak, or hbm_bytes at the rate of HBM, whichever takes longer
    once_us            torch ops that lay out the parameters, at their rooflines; once for each state of a parameter, so
                       in none of the other numbers
    measured_us        on a device: the median of measured_count calls, host and launch included; with its spread
    measured_first_us  the first call of all, which compiles
    sim_wall_s         how long our own simulator took to run the case, measured; says nothing about the chip
    speedup            baseline_us / body_us, bodies only; low and high over the throttle phases
    tensor_peak_share  useful flops / body_us / peak of the dtype
    dma_bound_share    time for each tensor's bytes once / body_us
    """

    kernel: str
    workload: str
    dtype: str
    arch: str
    lnc: int
    ok: bool
    body_us: float | None = None
    launch_us: float | None = None
    estimated_us: float | None = None
    estimated_low_us: float | None = None
    estimated_high_us: float | None = None
    once_us: float | None = None
    measured_us: float | None = None
    measured_min_us: float | None = None
    measured_max_us: float | None = None
    measured_count: int | None = None
    measured_first_us: float | None = None
    flops: float | None = None
    hbm_bytes: int | None = None
    bound_us: float | None = None
    body_over_bound: float | None = None
    baseline_us: float | None = None
    baseline_launches: int | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_with_launch: float | None = None
    tensor_peak_share: float | None = None
    dma_bound_share: float | None = None
    sim_wall_s: float | None = None
    instructions: int = 0
    problem: str | None = None

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What names the row."""
        return self.kernel, self.workload, self.dtype, self.arch, self.lnc

    def to_json(self) -> dict[str, Any]:
        """The row as `bench --json` prints it."""
        fields = {key: value for key, value in vars(self).items() if key != "problem"}
        return {**fields, "validated": chip(self.arch).validated}


def bench(
    tasks: Sequence[Task],
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    on_row: Callable[[BenchRow], None] | None = None,
) -> list[BenchRow]:
    """A row per task, in their order. `workers`, `executor` and `on_row` as in executors.run_all."""
    return run_all(bench_row, tasks, workers=workers, executor=executor, on_row=on_row)


# how a simulator's process starts where the vendor's nki and TorchNeuron are installed: with neither
SIMULATED = {"KERNELS_NEURON_SIM": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def bench_on_device(
    tasks: Sequence[Task], timer: Timer, *, workers: int | None = None, on_row: Callable[[BenchRow], None] | None = None
) -> list[BenchRow]:
    """The rows of `bench`, estimated in processes of the simulator, with what this process's device measures."""
    with process_pool(workers or min(default_workers(), max(1, len(tasks))), SIMULATED) as pool:
        estimated = run_all(bench_row, tasks, executor=pool)
    rows = []
    for task, row in zip(tasks, estimated, strict=True):
        rows.append(measured(row, task, timer))
        if on_row is not None:
            on_row(rows[-1])
    return rows


def measured(row: BenchRow, task: Task, timer: Timer) -> BenchRow:
    """A row with what the device says; without any number where the device misses the reference."""
    from .on_device import run_on_device

    outcome, timing = run_on_device(task, timer)
    if not outcome.ok or timing is None:
        return BenchRow(*row.key, ok=False, instructions=row.instructions, problem=f"on the device: {explain(outcome)}")
    return replace(
        row,
        measured_us=timing.median_us,
        measured_min_us=timing.min_us,
        measured_max_us=timing.max_us,
        measured_count=timing.count,
        measured_first_us=timing.first_us,
    )


def bench_row(task: Task) -> BenchRow:
    """Run one task, compare, and price the run."""
    from kernels_neuron.cost.baseline import OpRecorder, price

    case = task.case
    recorder = OpRecorder(case.dtype)
    began = time.perf_counter()
    outcome = run_case(task, recorder, as_in_a_model=True)
    wall_s = time.perf_counter() - began
    name: dict[str, Any] = {"kernel": case.kernel, "workload": case.workload, "dtype": case.dtype}
    name |= {"arch": task.arch, "lnc": task.lnc}
    if not outcome.ok:
        return BenchRow(**name, ok=False, instructions=outcome.instructions, problem=explain(outcome))
    around = _recorded_again(task, outcome) if recorder.ops and case.parameters else recorder.ops
    times = _times(task, outcome, around)
    times["once_us"] = price(_less(recorder.ops, around), case.dtype, chip(task.arch), task.lnc).us
    return BenchRow(**name, ok=True, instructions=outcome.instructions, sim_wall_s=wall_s, **times)


def _recorded_again(task: Task, outcome: Outcome) -> list[Any]:
    """The torch ops of a second call, for which the parameters are laid out already; kernels compute nothing."""
    from kernels_neuron.cost.baseline import OpRecorder

    case = task.case
    entry = getattr(import_variant(task.variant), case.entry)
    settings = Settings(lnc=task.lnc, execute=False)
    with cores(task.lnc), using(task.arch, settings), OpRecorder(case.dtype) as recorder:
        case.call(entry, outcome.inputs)
    return recorder.ops


def _less(ops: list[Any], others: list[Any]) -> list[Any]:
    return list((Counter(ops) - Counter(others)).elements())


def _times(task: Task, outcome: Outcome, around: list[Any]) -> dict[str, Any]:
    """The numbers of a row. `around` are the torch ops that ran besides the kernels."""
    from kernels_neuron.cost.baseline import baseline, price
    from kernels_neuron.cost.bound import peak_tflops, roofline
    from kernels_neuron.cost.profile import profile_run

    case, arch = task.case, chip(task.arch)
    profiles = [profile_run(run) for run in outcome.runs]
    extra = price(around, case.dtype, arch, task.lnc)
    body, low, high = (
        extra.us + sum(getattr(each, field) for each in profiles) for field in ("body_us", "low_us", "high_us")
    )
    launch = arch.launch_us * (len(profiles) + extra.launches)
    nbytes = _bytes_once(outcome)
    bound = roofline(case.flops, nbytes, case.dtype, arch, task.lnc)
    unfused = baseline(outcome.reference, outcome.inputs, case.args, case.dtype, arch, task.lnc)
    return {
        "body_us": body,
        "launch_us": launch,
        "estimated_us": body + launch,
        "estimated_low_us": low + launch,
        "estimated_high_us": high + launch,
        "flops": case.flops,
        "hbm_bytes": nbytes,
        "bound_us": bound.us,
        "body_over_bound": body / bound.us if bound.us else None,
        "baseline_us": unfused.us,
        "baseline_launches": unfused.launches,
        "speedup": unfused.us / body,
        "speedup_low": unfused.us / high,
        "speedup_high": unfused.us / low,
        "speedup_with_launch": (unfused.us + unfused.launches * arch.launch_us) / (body + launch),
        "tensor_peak_share": case.flops / (body * 1e6) / peak_tflops(arch, case.dtype, task.lnc),
        "dma_bound_share": bound.memory_us / body,
    }


def _bytes_once(outcome: Outcome) -> int:
    """Bytes of the distinct elements of all inputs, and of the output."""
    total = outcome.output_bytes
    for tensor in outcome.inputs.values():
        if tensor is not None:
            count = 1
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
                count *= size if stride else 1
            total += count * tensor.element_size()
    return total
