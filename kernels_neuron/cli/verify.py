"""`kernels-neuron verify`: numeric equivalence of built kernels to their PyTorch references."""

from typing import TYPE_CHECKING, Annotated

import typer

from .output import print_json, progress, say, say_lacking, table

if TYPE_CHECKING:
    from kernels_neuron.measure.verify import VerifyRow


def run(
    kernels: Annotated[list[str] | None, typer.Argument(metavar="[KERNEL]...", help="Folders or repo names.")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Only this workload; may be repeated.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Only this dtype.")] = None,
    arch: Annotated[list[str] | None, typer.Option(help="Only this chip; default trn2 and trn3.")] = None,
    lnc: Annotated[list[int] | None, typer.Option(help="Only this many physical cores; default 1 and 2.")] = None,
    runner: Annotated[
        str | None, typer.Option(help="simulator or device; default: the device where there is one.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; default: one per core.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list of rows.")] = False,
) -> None:
    """Run every workload of the kernels and compare with the reference in float64.

    They run in the simulator, or on a Neuron device, whose chip is --arch.

    Exits 1 when a case misses its tolerance or did not run a kernel.

    \b
    Example:
      kernels-neuron verify layernorm --dtype bfloat16
    """
    from kernels_neuron.flows.local import built_variants
    from kernels_neuron.manifest import Manifest
    from kernels_neuron.measure.cases import Filter, tasks
    from kernels_neuron.measure.on_device import checked_runner, find_device, only_this_device, verify_on_device
    from kernels_neuron.measure.verify import verify

    manifest = Manifest.read()
    keep = Filter.of(workload, dtype, arch, lnc)
    on_device = checked_runner(runner) == "device"
    if on_device:
        keep = only_this_device(keep, find_device())
    todo = tasks(manifest.select(kernels), built_variants(manifest, kernels), "test", keep)
    with progress("verify", len(todo)) as bar:
        if on_device:
            rows = verify_on_device(todo, on_row=lambda row: bar.advance())
        else:
            rows = verify(todo, workers=workers, on_row=lambda row: bar.advance())
    if json:
        print_json([row.to_json() for row in rows])
    else:
        _print(rows)
    say_lacking(manifest.select(kernels), arch)
    for row in rows:
        if json and not row.ok:
            say(f"{row.kernel}/{row.workload}/{row.dtype}/{row.arch}/lnc{row.lnc}: {row.problem}")
    if not all(row.ok for row in rows):
        raise typer.Exit(1)


def _print(rows: "list[VerifyRow]") -> None:
    columns = ("kernel", "workload", "dtype", "arch", "lnc", "", "error", "instructions", "")
    table(
        columns,
        [
            (
                row.kernel,
                row.workload,
                row.dtype,
                row.arch,
                row.lnc,
                "ok" if row.ok else "MISS",
                row.error,
                row.instructions,
                row.problem or ("loose" if row.loose else ""),
            )
            for row in rows
        ],
    )
    good = sum(row.ok for row in rows)
    print(f"{good} of {len(rows)} cases match their reference (error is the largest share of what is allowed)")
