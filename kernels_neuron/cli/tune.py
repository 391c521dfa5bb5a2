"""`kernels-neuron tune`: the best tile parameters of a kernel, found by estimate, verified, and written beside it."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import print_json, print_unvalidated, progress, say, table

if TYPE_CHECKING:
    from kernels_neuron.measure.tune import TuneRow

COLUMNS = ("workload", "dtype", "arch", "lnc", "priced", "illegal", "before_us", "after_us", "", "tiles")


def run(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="A folder or repo name.")],
    workload: Annotated[list[str] | None, typer.Option(help="Only this workload; may be repeated.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Only this dtype.")] = None,
    arch: Annotated[list[str] | None, typer.Option(help="Only this chip; default trn2 and trn3.")] = None,
    lnc: Annotated[list[int] | None, typer.Option(help="Only this many physical cores; default 1 and 2.")] = None,
    budget: Annotated[int, typer.Option(min=1, help="Candidates to price for each case.")] = 1000,
    scheduler: Annotated[str | None, typer.Option(help="A Dask scheduler to run on, tcp://HOST:PORT.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; default: one per core.")] = None,
    journal: Annotated[Path | None, typer.Option(help="Prices so far; default out/tune/KERNEL.jsonl.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing but the journal.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list of rows.")] = False,
) -> None:
    """Search the tile parameters that [tune] of spec.toml declares, on the bench workloads.

    Candidates are priced without computing; winners are run against the reference, then written to tuned.py beside
    the kernel. A search that was stopped goes on where it was. Exits 1 when what is faster misses the reference.

    \b
    Example:
      kernels-neuron tune gemm --arch trn2 --budget 200
    """
    from kernels_neuron.errors import UsageError
    from kernels_neuron.flows.tune import tune_kernel
    from kernels_neuron.measure.cases import Filter
    from kernels_neuron.measure.executors import dask_executor

    if scheduler is not None and workers is not None:
        raise UsageError("--workers and --scheduler exclude each other", hint="the cluster decides how many workers")
    place: AbstractContextManager[Any] = nullcontext() if scheduler is None else dask_executor(scheduler)
    with place as executor, progress("price") as bar:
        done = tune_kernel(
            kernel,
            Filter.of(workload, dtype, arch, lnc),
            budget=budget,
            workers=workers,
            executor=executor,
            journal=journal,
            write=not dry_run,
            on_priced=bar.move,
        )
    if json:
        print_json([row.to_json() for row in done.rows])
    else:
        _print(done.rows)
    say(f"wrote {done.written}" if done.written else "wrote nothing")
    for row in done.rows:
        if row.problem:
            say(f"{row.workload}/{row.dtype}/{row.arch}/lnc{row.lnc}: {row.problem}")
    if any(row.verdict == "missed" for row in done.rows):
        raise typer.Exit(1)


def _print(rows: "list[TuneRow]") -> None:
    cells = []
    for row in rows:
        tiles = " ".join(f"{name}={value}" for name, value in (row.tiles or {}).items())
        times = (round(row.before_us, 3), round(row.after_us, 3))
        illegal = sum(row.illegal.values())
        cells.append((row.workload, row.dtype, row.arch, row.lnc, row.priced, illegal, *times, row.verdict, tiles))
    table(COLUMNS, cells)
    reasons = sorted({reason for row in rows for reason in row.illegal})
    for reason in reasons:
        print(f"illegal: {sum(row.illegal.get(reason, 0) for row in rows)} {reason}")
    print("before_us and after_us are estimated by the latency model, launches apart, not measured")
    print_unvalidated(row.arch for row in rows)
