"""verify: does a built kernel, run in the simulator, equal its reference within the project's tolerance."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kernels_neuron.artifact import import_variant
from kernels_neuron.errors import KernelsNeuronError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import Run, using
from kernels_neuron.tolerance import Comparison

from .cases import Task
from .executors import run_all

# one rounding a sum, independent of shape and threads; what we ship reads no unwritten byte, used or not
SWITCHES = {"matmul_sum": "float64", "unwritten_read": "refuse"}
# what the code of a kernel may raise when it is wrong; anything else is a defect of this package and ends the run
KERNEL_RAISES = (
    KernelsNeuronError, ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip


@dataclass(frozen=True)
class VerifyRow:
    """The outcome of one case. `error` is max |y - ref| / allowed, None when nothing could be compared.

    problem  in words why the row is not ok, or None
    """

    kernel: str
    workload: str
    dtype: str
    arch: str
    lnc: int
    ok: bool
    error: float | None
    tolerance: float
    rel_l2: float | None
    max_abs: float | None
    loose: bool
    instructions: int
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The row as `verify --json` prints it."""
        return {key: value for key, value in vars(self).items() if key != "problem"}


@dataclass(frozen=True)
class Outcome:
    """One call held against its reference, with the launches that were simulated.

    on_device  it ran on a device, whose instructions nobody counts
    """

    comparison: Comparison | None
    runs: list[Run]
    problem: str | None
    inputs: dict[str, Any]
    reference: Callable[..., Any]
    output_bytes: int = 0
    on_device: bool = False

    @property
    def instructions(self) -> int:
        """NKI instructions of all launches."""
        return sum(run.instructions for run in self.runs)

    @property
    def ok(self) -> bool:
        """Equal within tolerance, and computed by a kernel."""
        ran = self.on_device or self.instructions > 0
        return self.problem is None and self.comparison is not None and self.comparison.ok and ran


def verify(
    tasks: Sequence[Task],
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    on_row: Callable[[VerifyRow], None] | None = None,
) -> list[VerifyRow]:
    """A row per task, in their order. `workers`, `executor` and `on_row` as in executors.run_all."""
    return run_all(verify_row, tasks, workers=workers, executor=executor, on_row=on_row)


def verify_row(task: Task) -> VerifyRow:
    """Run one task in the simulator and compare; once more with Parameters, of which a kernel may keep copies."""
    outcome = run_case(task)
    if outcome.ok and task.case.parameters:
        outcome = run_case(task, as_in_a_model=True)
    return row_of(task, outcome)


def row_of(task: Task, outcome: Outcome) -> VerifyRow:
    """The row of a task that was run."""
    found, case = outcome.comparison, task.case
    return VerifyRow(
        kernel=case.kernel,
        workload=case.workload,
        dtype=case.dtype,
        arch=task.arch,
        lnc=task.lnc,
        ok=outcome.ok,
        error=found.error if found else None,
        tolerance=1.0,
        rel_l2=found.rel_l2 if found else None,
        max_abs=found.max_abs if found else None,
        loose=bool(case.loose),
        instructions=outcome.instructions,
        problem=explain(outcome),
    )


def explain(outcome: Outcome) -> str | None:
    """Why an outcome is not ok, in words; None if it is."""
    if outcome.ok:
        return None
    if outcome.problem or outcome.comparison is None:
        return outcome.problem or "nothing was compared"
    if not outcome.comparison.ok:
        return outcome.comparison.problem or f"error {outcome.comparison.error:.3g} times what is allowed"
    return "no instruction was simulated: the kernel did not run"


def run_case(task: Task, recorder: Any = None, *, as_in_a_model: bool = False) -> Outcome:
    """Call the built op once in the simulator and compare its output with the reference in float64.

    recorder       a context manager entered around the call alone
    as_in_a_model  inputs that are parameters of a model are Parameters, else plain tensors
    """
    case = task.case
    module = import_variant(task.variant)
    reference = reference_of(module, case.kernel, case.entry)
    inputs = case.make_inputs()
    if as_in_a_model:
        inputs = case.with_parameters(inputs)
    entry = getattr(module, case.entry)
    runs: list[Run] = []
    try:
        with cores(task.lnc), using(task.arch, Settings(lnc=task.lnc, switches=SWITCHES, reuse=False)) as runs:
            out = _call(case, entry, inputs, recorder)
        comparison = case.compare(reference, inputs, out)
    except KERNEL_RAISES as error:
        return Outcome(None, runs, f"{type(error).__name__}: {error}", inputs, reference)
    return Outcome(comparison, runs, None, inputs, reference, out.numel() * out.element_size())


def _call(case: Any, entry: Callable[..., Any], inputs: dict[str, Any], recorder: Any) -> Any:
    if recorder is None:
        return case.call(entry, inputs)
    with recorder:
        return case.call(entry, inputs)


def reference_of(module: ModuleType, kernel: str, entry: str) -> Callable[..., Any]:
    """The reference that ships inside a built variant."""
    # the entry often has the kernel's name and hides the submodule, so look it up where imports put it
    name = f"{module.__name__}.{kernel}.reference"
    if name not in sys.modules:
        raise KernelsNeuronError(f"{module.__name__} does not import {kernel}/reference.py", hint="import it in ops.py")
    return getattr(sys.modules[name], entry)


@contextmanager
def cores(lnc: int) -> Iterator[None]:
    """Physical cores per logical core, as ops.py reads it off the machine."""
    name = "NEURON_LOGICAL_NC_CONFIG"
    before = os.environ.get(name)
    os.environ[name] = str(lnc)
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
