"""`kernels-neuron bench`: estimated times of built kernels, next to their bound and the unfused PyTorch ops."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .output import print_json, progress, say, table

if TYPE_CHECKING:
    from kernels_neuron.measure.against import Move
    from kernels_neuron.measure.bench import BenchRow
    from kernels_neuron.measure.cases import Task
    from kernels_neuron.measure.validation import ValidationRow

COLUMNS = ("kernel", "workload", "dtype", "arch", "lnc", "estimated_us", "low", "high", "body_us", "bound_us")
VALIDATION = "validation"
COMPARED = ("baseline_us", "ops", "speedup", "with_launch", "peak_share")


def run(
    kernels: Annotated[list[str] | None, typer.Argument(metavar="[KERNEL]...", help="Folders or repo names.")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Only this workload; may be repeated.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Only this dtype.")] = None,
    arch: Annotated[list[str] | None, typer.Option(help="Only this chip; default trn2 and trn3.")] = None,
    lnc: Annotated[list[int] | None, typer.Option(help="Only this many physical cores; default 1 and 2.")] = None,
    suite: Annotated[str | None, typer.Option(help="The rows of bench/SUITE.toml.")] = None,
    against: Annotated[Path | None, typer.Option(help="Rows of an earlier --json; print only what moved.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; default: one per core.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list of rows.")] = False,
) -> None:
    """Estimate the time of the kernels' bench workloads, after checking each against its reference.

    Exits 1 when a case misses its reference, or with --against when a time grew: 1 % estimated, 10 % measured.
    --suite validation holds the model against published measurements instead.

    \b
    Example:
      kernels-neuron bench gemm --arch trn2 --lnc 1
    """
    from kernels_neuron.measure.against import moves, read_rows
    from kernels_neuron.measure.bench import bench

    if suite == VALIDATION:
        _refuse_filters(kernels, workload, dtype, arch, lnc, against)
        _validate(workers, json)
        return
    before = read_rows(against) if against else None
    todo = _tasks(kernels, suite, workload, dtype, arch, lnc)
    with progress("bench", len(todo)) as bar:
        rows = bench(todo, workers=workers, on_row=lambda row: bar.advance())
    moved = moves(rows, before) if before is not None else []
    shown = rows if before is None else [row for row in rows if row.key in {move.key for move in moved}]
    if json:
        print_json([row.to_json() for row in shown])
    elif before is None:
        _print(shown)
    else:
        _print_moves(moved, len(rows))
    for row in rows:
        if not row.ok:
            say(f"{'/'.join(map(str, row.key))}: no time, {row.problem}")
    if not all(row.ok for row in rows) or any(move.slower for move in moved):
        raise typer.Exit(1)


def _refuse_filters(*given: object) -> None:
    from kernels_neuron.errors import UsageError

    if any(given):
        raise UsageError(f"--suite {VALIDATION} takes no filters", hint="give --suite alone, with --workers or --json")


def _validate(workers: int | None, json: bool) -> None:
    """Print every published measurement beside its estimate; misses are part of the answer, not a failure."""
    from kernels_neuron.manifest import Manifest
    from kernels_neuron.measure.validation import is_validation, read_measurements, summary, validate

    folder = Manifest.read().root / "bench" / VALIDATION
    if not is_validation(folder):
        from kernels_neuron.errors import UsageError

        raise UsageError(f"there are no published measurements in {folder}", hint="run it from a checkout")
    measurements = read_measurements(folder)
    with progress("validate", len(measurements)) as bar:
        rows = validate(folder, measurements, workers=workers, on_row=lambda row: bar.advance())
    if json:
        print_json([row.to_json() for row in rows])
    else:
        _print_validation(rows)
        print(summary(rows))


def _print_validation(rows: "list[ValidationRow]") -> None:
    names = ("id", "kernel", "shape", "arch", "measured_us", "estimated_us", "error", "bound", "", "note")
    cells = []
    for row in rows:
        each = row.measurement
        error = None if row.error is None else f"{row.error:+.1%}"
        bound = None if each.within is None else f"{each.within:.0%}"
        times = (_short(each.measured_us), _short(row.estimated_us))
        cells.append(
            (each.id, each.what, each.shape, each.arch, *times, error, bound, row.verdict, row.problem or each.note)
        )
    table(names, cells)


def _tasks(
    kernels: list[str] | None,
    suite: str | None,
    workload: list[str] | None,
    dtype: list[str] | None,
    arch: list[str] | None,
    lnc: list[int] | None,
) -> "list[Task]":
    from kernels_neuron.errors import UsageError
    from kernels_neuron.flows.local import built_variants
    from kernels_neuron.manifest import Manifest
    from kernels_neuron.measure.cases import Filter, tasks
    from kernels_neuron.measure.suites import read_suite

    manifest = Manifest.read()
    keep = Filter.of(workload, dtype, arch, lnc)
    if suite is None:
        return tasks(manifest.select(kernels), built_variants(manifest, kernels), "bench", keep)
    if kernels or keep != Filter():
        raise UsageError("a suite says itself which rows it has", hint="give --suite alone, or filters alone")
    found = []
    for part in read_suite(manifest.root / "bench", suite):
        found += tasks(manifest.select(part.kernels), built_variants(manifest, part.kernels), "bench", part.keep)
    return found


def _print(rows: "list[BenchRow]") -> None:
    cells = []
    for row in rows:
        times = (row.estimated_us, row.estimated_low_us, row.estimated_high_us, row.body_us, row.bound_us)
        compared = (row.baseline_us, row.baseline_launches, row.speedup, row.speedup_with_launch, row.tensor_peak_share)
        cells.append((*row.key, *map(_short, times), *map(_short, compared)))
    table((*COLUMNS, *COMPARED), cells)
    print("all times are estimated by the latency model, not measured; speedup is baseline_us / body_us")
    if any(row.arch == "trn3" for row in rows):
        print("trn3 is unvalidated: documented constants only")


def _print_moves(moved: "list[Move]", total: int) -> None:
    if moved:
        names = ("kernel", "workload", "dtype", "arch", "lnc", "time", "before", "now", "now/before", "")
        table(
            names,
            [
                (*move.key, move.column, _short(move.before), _short(move.now), _short(move.ratio), _verdict(move))
                for move in moved
            ],
        )
    print(f"{len(moved)} of {total} rows moved, {sum(move.slower for move in moved)} slower")


def _verdict(move: "Move") -> str:
    return "SLOWER" if move.slower else "faster"


def _short(value: float | None) -> float | None:
    return round(value, 3) if isinstance(value, float) else value
