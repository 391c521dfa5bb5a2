"""Findings of a run: what the simulator refuses or warns about while the workloads of a kernel folder go through it."""

import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernels_neuron.arch import chip
from kernels_neuron.artifact import import_variant
from kernels_neuron.errors import KernelError, UsageError
from kernels_neuron.lint import Finding, Selection, Target, lint, shown_path
from kernels_neuron.lint.target import parse_version, spell
from kernels_neuron.manifest import Kernel, Manifest, find_manifest
from kernels_neuron.measure.cases import Filter, Task, tasks
from kernels_neuron.measure.executors import run_all
from kernels_neuron.measure.verify import KERNEL_RAISES, SWITCHES, cores
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using
from kernels_neuron.sim.races import RaceWarning
from kernels_neuron.spec import Spec

from .local import built_variants

OLDEST = (0, 3)
PYTHON = "python"  # the rule of what is no rule: an exception of the kernel's own


@dataclass(frozen=True)
class _Job:
    """One task, with the folder its variant was built from and the NKI version it runs as."""

    task: Task
    sources: Path
    nki: str


def lint_kernels(manifest: Manifest, names: Iterable[str]) -> list[Finding]:
    """Static findings in the folders of kernels and in what they share, for the versions their specs promise."""
    folders: dict[str, list[Path]] = {}
    for kernel in manifest.select(names):
        for nki in Spec.read(kernel.folder).nki:
            folders.setdefault(nki, []).append(kernel.folder)
    shared = [folder for folder in [manifest.sources / "common"] if folder.is_dir()]
    found = {each for nki, inside in folders.items() for each in lint([*inside, *shared], Target.of(nki))}
    return sorted(found)


def run_findings(
    paths: Iterable[str | Path],
    *,
    nki: str = "0.7",
    arch: str | None = None,
    selection: Selection | None = None,
    workers: int | None = None,
    on_case: Callable[[], None] = lambda: None,
    expect: Callable[[int], None] = lambda count: None,
) -> list[Finding]:
    """What the simulator finds while every workload of the kernels below `paths` runs, on one core and on two.

    paths    kernel folders that a kernel.toml names, or folders with some
    expect   told how many cases there are; `on_case` is called after each

    Refused where a path holds no kernel folder. What the kernels compute is not looked at: that is verify's business.
    """
    if parse_version(nki) < OLDEST:
        hint = f"lint for {nki} without --run"
        raise UsageError(f"the simulator runs NKI {spell(OLDEST)} and later, got {nki}", hint=hint)
    selection = selection or Selection()
    # one path may lie inside another
    jobs = list({(job.sources, str(job.task)): job for path in paths for job in _jobs(Path(path), nki, arch)}.values())
    expect(len(jobs))
    rows = run_all(_findings_of, jobs, workers=workers, on_row=lambda row: on_case())
    kept = [(f, job.task) for job, row in zip(jobs, rows, strict=True) for f in row if f.rule in selection]
    return sorted(_one_a_line(kept))


def _one_a_line(found: Sequence[tuple[Finding, Task]]) -> Iterator[Finding]:
    """One finding for each line and rule: what the first case said, and how many say it."""
    groups: dict[tuple[str, int, str], list[tuple[Finding, Task]]] = {}
    for finding, task in found:
        groups.setdefault((finding.path, finding.line, finding.rule), []).append((finding, task))
    for (first, task), *others in groups.values():
        more = f" and {len(others)} other{'s' if len(others) > 1 else ''}" if others else ""
        yield replace(first, message=f"{first.message}, in {task}{more}")


def _jobs(path: Path, nki: str, arch: str | None) -> list[_Job]:
    if not path.exists():
        raise UsageError(f"there is no {path}", hint="give a kernel folder")
    manifest = Manifest.read(find_manifest(path))
    inside = [kernel for kernel in manifest.kernels.values() if _below(kernel, path)]
    if not inside:
        raise UsageError(
            f"{path} holds no kernel folder that {manifest.path} names",
            hint="run one function with `kernels-neuron profile FILE.py:FUNC`, which applies the same rules",
        )
    names = [kernel.name for kernel in inside]
    keep = Filter.of(archs=[chip(arch).name] if arch else None)
    todo = tasks(inside, built_variants(manifest, names), "test", keep)
    return [_Job(task, manifest.sources, nki) for task in todo]


def _below(kernel: Kernel, path: Path) -> bool:
    here = path.resolve()
    folder = kernel.folder.resolve()
    return folder.is_relative_to(here) or here.is_relative_to(folder)


def _findings_of(job: _Job) -> list[Finding]:
    """Run one case; what was refused, and what was warned about."""
    task = job.task
    module = import_variant(task.variant)
    made = task.case.make_inputs()
    settings = Settings(nki=job.nki, lnc=task.lnc, switches=SWITCHES, reuse=False)
    found: list[Finding] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RaceWarning)
        try:
            with cores(task.lnc), using(task.arch, settings):
                for inputs in (made, task.case.with_parameters(made)) if task.case.parameters else (made,):
                    task.case.call(getattr(module, task.case.entry), inputs)
        except KernelError as error:
            found.append(_finding(job, error, error.rule, error.where))
        except KERNEL_RAISES as error:
            found.append(_finding(job, error, PYTHON, None))
    for each in caught:
        if issubclass(each.category, RaceWarning):
            where, _, message = str(each.message).partition(": ")
            path, line = _place(job, where, None)
            found.append(Finding(path, line, int(line > 0), "race", "warning", message))
    return found


def _finding(job: _Job, error: BaseException, rule: str, where: str | None) -> Finding:
    path, line = _place(job, where, error)
    message = str(error).removeprefix(f"{where}: ") if where else f"{type(error).__name__}: {error}"
    hint = getattr(error, "hint", None)
    return Finding(path, line, int(line > 0), rule, "error", message, hint)


def _place(job: _Job, where: str | None, error: BaseException | None) -> tuple[str, int]:
    """File and line in the sources. `where` is "kernel.py:12"; without it, the last line of the variant that ran."""
    frames: Sequence[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__) if error else ()
    places = [(Path(each.filename), each.lineno or 0) for each in frames]
    inside = [(file, line) for file, line in places if file.is_relative_to(job.task.variant)]
    if where:
        name, _, number = where.rpartition(":")
        line = int(number) if number.isdigit() else 0
        exact = [file for file, at in inside if file.name == name and at == line]
        kernel = job.task.variant / job.task.case.kernel
        files = [*exact, *sorted(kernel.rglob(name)), *sorted(job.task.variant.rglob(name))]
        inside = [(file, line) for file in files] or inside
        file, line = inside[0] if inside else (Path(name), line)
    else:
        file, line = inside[-1] if inside else (job.task.variant, 0)
    return _source(job, file), line


def _source(job: _Job, file: Path) -> str:
    """The file in nki_src/ that a file of the variant is a copy of."""
    if file.is_relative_to(job.task.variant):
        original = job.sources / file.relative_to(job.task.variant)
        if original.is_file():
            return shown_path(original)
    return shown_path(file)
