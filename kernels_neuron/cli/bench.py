"""`kernels-neuron bench`: times of built kernels and of models, next to their bound and the unfused PyTorch ops."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .model_times import print_model
from .output import print_json, print_unvalidated, progress, require_place, say, say_lacking, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernels_neuron.measure.against import Move
    from kernels_neuron.measure.bench import BenchRow
    from kernels_neuron.measure.cases import Filter, Task
    from kernels_neuron.measure.validation import ValidationRow

COLUMNS = ("kernel", "workload", "dtype", "arch", "lnc", "estimated_us", "low", "high")
VALIDATION = "validation"
COMPARED = ("over_bound", "baseline_us", "ops", "speedup", "low", "high", "with_launch", "peak_share")
MEASURED = ("measured_us", "min", "max", "of")


def run(
    kernels: Annotated[list[str] | None, typer.Argument(metavar="[KERNEL]...", help="Folders or repo names.")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Only this workload; may be repeated.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Only this dtype.")] = None,
    arch: Annotated[list[str] | None, typer.Option(help="Only this chip; default trn2 and trn3.")] = None,
    lnc: Annotated[list[int] | None, typer.Option(help="Only this many physical cores; default 1 and 2.")] = None,
    suite: Annotated[str | None, typer.Option(help="The rows of bench/SUITE.toml.")] = None,
    model: Annotated[str | None, typer.Option(help="A whole model's layers instead, such as vit-b16.")] = None,
    against: Annotated[Path | None, typer.Option(help="Earlier rows, of --save or --json; print what moved.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the rows here, with commit, date and settings.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with pictures and tables here.")] = None,
    runner: Annotated[
        str | None, typer.Option(help="simulator or device; default: the device where there is one.")
    ] = None,
    repetitions: Annotated[int, typer.Option(help="On a device, calls that are timed.", min=1)] = 100,
    warmup: Annotated[int, typer.Option(help="On a device, calls before them.", min=1)] = 10,
    workers: Annotated[int | None, typer.Option(help="Processes; default: one per core.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list of rows.")] = False,
) -> None:
    """Estimate the time of the kernels' bench workloads, after checking each against its reference.

    Exits 1 when a case misses its reference, or with --against when a time grew: 1 % estimated, 10 % measured.
    On a Neuron device the same rows are measured, too.
    --suite validation holds the model against published measurements instead.

    \b
    Example:
      kernels-neuron bench gemm --arch trn2 --lnc 1
    """
    from kernels_neuron.manifest import Manifest
    from kernels_neuron.measure.against import moves, read_rows
    from kernels_neuron.measure.cases import Filter

    require_place(save, html)
    if model is not None:
        _refuse(
            f"--model {model} takes --dtype, --arch and --lnc alone",
            kernels,
            workload,
            suite,
            against,
            save,
            html,
            runner,
        )
        print_model(_one("dtype", dtype, "bfloat16"), _one("arch", arch, "trn2"), _one("lnc", lnc, 1), model, json)
        return
    if suite == VALIDATION:
        _refuse(f"--suite {VALIDATION} takes no filters", kernels, workload, dtype, arch, lnc, against, save, runner)
        _validate(workers, html, json)
        return
    before = read_rows(against) if against else None
    rows = _rows(kernels, suite, Filter.of(workload, dtype, arch, lnc), runner, (warmup, repetitions), workers)
    asked = {"kernels": kernels, "suite": suite, "workload": workload, "dtype": dtype, "arch": arch, "lnc": lnc}
    _write(save, html, rows, asked)
    moved = moves(rows, before) if before is not None else []
    shown = rows if before is None else [row for row in rows if row.key in {move.key for move in moved}]
    if json:
        print_json([row.to_json() for row in shown])
    elif before is None:
        _print(shown)
    else:
        _print_moves(moved, len(rows))
    say_lacking(Manifest.read().select(kernels), arch)
    for row in rows:
        if not row.ok:
            say(f"{'/'.join(map(str, row.key))}: no time, {row.problem}")
    if not all(row.ok for row in rows) or any(move.slower for move in moved):
        raise typer.Exit(1)


def _rows(
    kernels: list[str] | None,
    suite: str | None,
    keep: "Filter",
    runner: str | None,
    calls: tuple[int, int],
    workers: int | None,
) -> "list[BenchRow]":
    from kernels_neuron.measure.bench import bench, bench_on_device
    from kernels_neuron.measure.on_device import checked_runner, measuring_device, only_this_device
    from kernels_neuron.measure.timing import Timer

    if checked_runner(runner) == "simulator":
        todo = _tasks(kernels, suite, keep, lambda part: part)
        with progress("bench", len(todo)) as bar:
            return bench(todo, workers=workers, on_row=lambda row: bar.advance())
    device = measuring_device()
    todo = _tasks(kernels, suite, keep, lambda part: only_this_device(part, device))
    with progress("bench", len(todo)) as bar:
        return bench_on_device(todo, Timer(*calls), workers=workers, on_row=lambda row: bar.advance())


def _write(save: Path | None, html: Path | None, rows: "list[BenchRow]", asked: dict[str, Any]) -> None:
    if save is None and html is None:
        return
    from kernels_neuron.flows.results import environment, write_results
    from kernels_neuron.manifest import Manifest
    from kernels_neuron.measure.cases import lacking

    missing = lacking(Manifest.read().select(sorted({row.kernel for row in rows})))
    if save is not None:
        write_results(save, rows, missing, asked)
    if html is not None:
        from kernels_neuron.flows.bench_html import render

        html.write_text(render(rows, missing, environment(asked)), encoding="utf-8")


def _one(name: str, given: list[Any] | None, default: Any) -> Any:
    from kernels_neuron.errors import UsageError

    if given and len(given) > 1:
        raise UsageError(f"--model takes one {name}, got {len(given)}")
    return given[0] if given else default


def _refuse(message: str, *given: object) -> None:
    from kernels_neuron.errors import UsageError

    if any(each for each in given):
        raise UsageError(message, hint="leave the other filters and files out")


def _validate(workers: int | None, html: Path | None, json: bool) -> None:
    """Print every published measurement beside its estimate; misses are part of the answer, not a failure."""
    from kernels_neuron.manifest import Manifest
    from kernels_neuron.measure.validation import (
        is_validation,
        misordered,
        read_ladders,
        read_measurements,
        summary,
        validate,
    )

    folder = Manifest.read().root / "bench" / VALIDATION
    if not is_validation(folder):
        from kernels_neuron.errors import UsageError

        raise UsageError(f"there are no published measurements in {folder}", hint="run it from a checkout")
    measurements = read_measurements(folder)
    done = 0

    def on_row(row: "ValidationRow") -> None:
        nonlocal done
        done += 1
        bar.advance()
        if not sys.stderr.isatty():  # a bar shows there; minutes of silence would look like a hang elsewhere
            say(f"{done} of {len(measurements)}: {row.measurement.id} {row.verdict}")

    with progress("validate", len(measurements)) as bar:
        rows = validate(folder, measurements, workers=workers, on_row=on_row)
    if html is not None:
        from kernels_neuron.flows.bench_html import render_validation
        from kernels_neuron.flows.results import environment

        page = render_validation(rows, read_ladders(folder), environment({"suite": VALIDATION}))
        html.write_text(page, encoding="utf-8")
    if json:
        print_json([row.to_json() for row in rows])
    else:
        _print_validation(rows)
        print(summary(rows))
        for ladder in read_ladders(folder):
            pairs = [f"{one} and {other}" for one, other in misordered(ladder, rows)]
            print(f"ladder {ladder.name}: {'in order' if not pairs else 'out of order ' + ', '.join(pairs)}")


def _print_validation(rows: "list[ValidationRow]") -> None:
    names = ("id", "kernel", "shape", "arch", "measured_us", "estimated_us", "error", "bound", "first look", "", "note")
    cells = []
    for row in rows:
        each = row.measurement
        error = None if row.error is None else f"{row.error:+.1%}"
        bound = None if each.within is None else f"{each.within:.0%}"
        blind = None if each.first_error is None else f"{each.first_error:+.1%}"
        times = (_short(each.measured_us), _short(row.estimated_us))
        cells.append(
            (
                each.id,
                each.what,
                each.shape,
                each.arch,
                *times,
                error,
                bound,
                blind,
                row.verdict,
                row.problem or each.note,
            )
        )
    table(names, cells)


def _tasks(
    kernels: list[str] | None, suite: str | None, keep: "Filter", narrow: "Callable[[Filter], Filter]"
) -> "list[Task]":
    from kernels_neuron.errors import UsageError
    from kernels_neuron.flows.local import built_variants
    from kernels_neuron.manifest import Manifest
    from kernels_neuron.measure.cases import Filter, tasks
    from kernels_neuron.measure.suites import read_suite

    manifest = Manifest.read()
    if suite is None:
        return tasks(manifest.select(kernels), built_variants(manifest, kernels), "bench", narrow(keep))
    if kernels or keep != Filter():
        raise UsageError("a suite says itself which rows it has", hint="give --suite alone, or filters alone")
    found = []
    for part in read_suite(manifest.root / "bench", suite):
        variants = built_variants(manifest, part.kernels)
        found += tasks(manifest.select(part.kernels), variants, "bench", narrow(part.keep))
    return found


def _print(rows: "list[BenchRow]") -> None:
    is_measured = any(row.measured_us is not None for row in rows)
    cells = []
    for row in rows:
        times = (row.estimated_us, row.estimated_low_us, row.estimated_high_us)
        timed = (row.measured_us, row.measured_min_us, row.measured_max_us, row.measured_count) if is_measured else ()
        compared = (
            *(row.body_us, row.bound_us, row.body_over_bound, row.baseline_us, row.baseline_launches, row.speedup),
            *(row.speedup_low, row.speedup_high, row.speedup_with_launch, row.tensor_peak_share),
        )
        cells.append((*row.key, *map(_short, times), *map(_short, timed), *map(_short, compared)))
    table((*COLUMNS, *(MEASURED if is_measured else ()), "body_us", "bound_us", *COMPARED), cells)
    print("times but measured_us are estimated by the latency model; speedup is baseline_us / body_us")
    print_unvalidated(row.arch for row in rows)


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
