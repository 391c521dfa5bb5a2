"""`kernels-neuron profile`: run anybody's kernel in the simulator and estimate its time on the chip."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .output import print_json, say, table

if TYPE_CHECKING:
    from kernels_neuron.cost.profile import Profile

TIMED_OUT = 124  # what coreutils' timeout exits with
LINES_SHOWN = 8


def run(
    kernel: Annotated[str, typer.Argument(metavar="FILE.py:FUNC", help="An nki.jit function in a file.")],
    input: Annotated[list[str] | None, typer.Option(help="A tensor, NAME=128x512:bfloat16, random values.")] = None,
    arg: Annotated[list[str] | None, typer.Option(help="Any other argument, NAME=VALUE.")] = None,
    arch: Annotated[str, typer.Option(help="The chip: trn1, trn2 or trn3.")] = "trn2",
    lnc: Annotated[int, typer.Option(help="Physical cores, 1 or 2.")] = 1,
    price_only: Annotated[bool, typer.Option("--price-only", help="Compute no values.")] = False,
    limit: Annotated[float | None, typer.Option(help="Stop after so many seconds, with exit status 124.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome trace for ui.perfetto.dev here.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate how long a kernel takes and where the time goes, by the latency model.

    \b
    Example:
      kernels-neuron profile softmax.py:softmax --input x=128x512:bfloat16 --trace out.json
    """
    from kernels_neuron.measure.source import TimeLimit

    try:
        found = _profile(kernel, input or [], arg or [], arch, lnc, price_only, limit)
    except TimeLimit as error:
        if json:
            print_json({"error": str(error), "hint": error.hint})
        else:
            say(f"error: {error}")
        raise typer.Exit(TIMED_OUT) from None
    if trace is not None:
        found.write_trace(trace)
    if json:
        print_json(found.to_json())
    else:
        _print(found)


def _profile(
    kernel: str, inputs: list[str], values: list[str], arch: str, lnc: int, price_only: bool, limit: float | None
) -> "Profile":
    from kernels_neuron.arch import chip
    from kernels_neuron.cost.profile import profile
    from kernels_neuron.errors import KernelError, KernelsNeuronError, UsageError
    from kernels_neuron.measure.source import KERNEL_RAISES, load_function, located, make_arguments, time_limit
    from kernels_neuron.settings import Settings

    if lnc not in (1, 2):
        raise UsageError(f"lnc is 1 or 2, got {lnc}")
    chosen = chip(arch)
    with time_limit(limit):
        function = load_function(kernel)
        arguments = make_arguments(function, inputs, values)
        try:
            return profile(function, arch=chosen, settings=Settings(lnc=lnc, execute=not price_only), **arguments)
        except KernelsNeuronError:
            raise
        except KERNEL_RAISES as error:
            raise KernelError(located(error), rule="python") from error


def _print(found: "Profile") -> None:
    cores = f" on {found.lnc} cores" if found.lnc > 1 else ""
    note = "" if found.validated else ", unvalidated on this chip"
    print(f"{found.kernel} on {found.arch.name}{cores}: estimated {found.estimated_us:.2f} us{note}")
    spread = f"{found.low_us:.2f} to {found.high_us:.2f} over the TensorE throttle phases"
    print(f"  body {found.body_us:.2f} us ({spread}), one launch {found.launch_us:.2f} us")
    print(
        f"  bound {found.bound_us:.2f} us, {found.instructions} instructions, simulated in {found.sim_wall_s:.2f} s\n"
    )
    table(("engine", "busy"), [(name, f"{share:.1%}") for name, share in found.engines.items()])
    print("\ncritical path")
    rows = [(f"{s.share:.1%}", s.engine, s.instruction, s.where, round(s.us, 3), s.times) for s in found.path]
    table(("share", "engine", "instruction", "line", "us", "times"), rows[:LINES_SHOWN])
    if len(rows) > LINES_SHOWN:
        print(f"and {len(rows) - LINES_SHOWN} more lines")
