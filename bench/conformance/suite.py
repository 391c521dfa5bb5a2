"""The vendor library's own pytest suite, collected from a clone and run case by case with our simulator."""

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import measured
import numpy as np
import pytest
import ranks
import stand_ins
from cases import kernel_of
from outcome import MEMORY_BYTES, Note, Outcome, in_own_process, kind_of

from kernels_neuron.settings import Settings

# the API version of branch 2.29_release; spills are what the vendor's compiler makes of kernels that overfill SBUF
SETTINGS = Settings(nki="0.3", switches={"sbuf_overflow": "spill"})


class Suite:
    """A pytest plugin that collects the clone's cases and hands itself to `visit`, which may run them.

    cases          the cases that their authors call small enough, in collection order
    not_collected  test files that did not import
    """

    def __init__(self, clone: Path, visit: Callable[["Suite"], None]) -> None:
        self.clone = clone
        self.visit = visit
        self.items: dict[str, pytest.Item] = {}
        self.not_collected = 0
        self.current: Outcome | None = None
        self.note: Note = lambda outcome: None

    @property
    def cases(self) -> list[str]:
        return list(self.items)

    def collect(self, files: Sequence[str]) -> int:
        """Collect from `files` of the clone (all of test/integration if none), visit, and answer pytest's status."""
        _install(self)
        with tempfile.TemporaryDirectory() as scratch:
            arguments = [
                "-c", str(self.clone / "test" / "pytest.ini"), f"--rootdir={self.clone}",
                "--import-mode=prepend", "-p", "no:cacheprovider", "-p", "no:benchmark", "-p", "no:hypothesispytest",
                "-o", f"artifacts_dir={scratch}/artifacts", f"--output-directory={scratch}/out",
                "--force-local-cleanup", "--test-mode=simulation", "-q", "--no-header", "--no-summary",
                "--disable-warnings", "--continue-on-collection-errors",
                *(files or [str(self.clone / "test" / "integration")]),
            ]  # fmt: skip
            here = os.getcwd()
            os.chdir(scratch)
            try:
                return int(pytest.main(arguments, plugins=[self]))
            finally:
                os.chdir(here)

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        if isinstance(collector, pytest.Module):
            # some files draw parameters when they are imported: the same ones, whatever is collected before them
            random.seed(0)
            np.random.seed(0)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.not_collected += 1
            sys.stderr.write(f"not collected: {report.nodeid}\n{report.longreprtext[-1500:]}\n")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for item in session.items:
            # skipped: what their suite calls too large for a CPU, and what they leave out everywhere
            if item.get_closest_marker("skip") is None:
                self.items[item.nodeid] = item
        self.visit(self)
        return True

    def run(self, case: str, limit_s: float, memory_bytes: int = MEMORY_BYTES) -> Outcome:
        """Run one case in a process of its own."""
        if case not in self.items:
            return Outcome(case, kernel_of(case), error="not-collected", message="its test file does not import")

        def work(outcome: Outcome, note: Note) -> None:
            self.current, self.note = outcome, note
            _run_item(self.items[case], outcome)

        return in_own_process(case, kernel_of(case), work, limit_s, memory_bytes=memory_bytes)


def _run_item(item: pytest.Item, outcome: Outcome) -> None:
    from _pytest.runner import runtestprotocol

    sys.stdout.flush()
    reports = runtestprotocol(item, nextitem=None, log=False)
    outcome.ok = all(report.outcome == "passed" for report in reports)
    skipped = [report for report in reports if report.outcome == "skipped"]
    if skipped:
        reason = skipped[0].longrepr
        outcome.error, outcome.stage = "skipped", "test"
        outcome.message = str(reason[2] if isinstance(reason, tuple) else reason)[:400]
    elif outcome.ok:
        # the refusal that a negative case asks for is no failure
        outcome.error, outcome.message, outcome.where, outcome.stage = None, "", "", ""
    elif outcome.error is None:
        failed = next(report for report in reports if report.outcome == "failed")
        text = failed.longreprtext
        crash = getattr(failed.longrepr, "reprcrash", None)
        outcome.message = (crash.message if crash else text[-400:])[:400]
        outcome.where = f"{Path(crash.path).name}:{crash.lineno}" if crash else ""
        outcome.error = _classify(outcome.message)


def _classify(message: str) -> str:
    if "Validation failed for" in message or "alidationException: Validation failed" in message:
        return "mismatch"
    if "was expected to fail" in message:
        return "not-refused"
    kind = message.split(":", 1)[0].split(".")[-1]
    kind = kind_of(kind, message)
    return kind if kind.isidentifier() else "error"


def _install(suite: Suite) -> None:
    import kernels_neuron.sim.shim as shim
    from kernels_neuron.sim.context import using
    from kernels_neuron.sim.run import simulate_ranks

    shim.install()

    def on_ranks(kernel: Any, lnc: int, chip: str, inputs: list[dict[str, Any]]) -> list[Any]:
        import nki

        outcome = suite.current
        assert outcome is not None
        begin = time.process_time()
        if not outcome.input_bytes:
            outcome.inputs_cpu_s = round(begin, 2)
            outcome.input_bytes = sum(getattr(value, "nbytes", 0) for rank in inputs for value in rank.values())
        outcome.stage = "simulate"
        suite.note(outcome)
        try:
            with using(chip, SETTINGS) as runs:
                launch = nki.jit(kernel)[lnc]
                if len(inputs) == 1:
                    result = [launch(**inputs[0])]
                else:
                    result = simulate_ranks(launch, [ranks.positional(kernel, rank) for rank in inputs])
        except BaseException as error:
            outcome.blame(error, "simulate")
            raise
        finally:
            outcome.sim_cpu_s = round(outcome.sim_cpu_s + time.process_time() - begin, 2)
            outcome.instructions = sum(run.instructions for run in runs)
        outcome.stage = "reference"
        suite.note(outcome)
        return result

    def simulate(kernel: Any, lnc: int, chip: str, inputs: dict[str, Any]) -> Any:
        return on_ranks(kernel, lnc, chip, [inputs])[0]

    stand_ins.install(suite.clone, simulate)
    import test.integration.nkilib.utils.comparators as comparators

    def record(distances: dict[str, float]) -> None:
        if suite.current is not None:
            suite.current.stage = "compare"
            suite.current.errors.append(distances)

    comparators.maxAllClose = measured.recording(comparators.maxAllClose, record)
    # after that: what this imports takes the comparison by its name
    ranks.install(on_ranks, stand_ins.CHIPS)
    from test.utils.test_orchestrator import Orchestrator

    # their orchestrator sets this only when it compiles, and reads it after a simulation too
    Orchestrator._compiled_kernel = None
