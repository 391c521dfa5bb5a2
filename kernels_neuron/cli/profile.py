"""`kernels-neuron profile`: estimate anybody's kernel on a chip, or hold a device's profile against the model."""

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from .output import print_json, require_place, say, table

if TYPE_CHECKING:
    from kernels_neuron.cost.choices import Choice
    from kernels_neuron.cost.imported import Comparison
    from kernels_neuron.cost.profile import Profile
    from kernels_neuron.cost.traffic import DmaUse

TIMED_OUT = 124  # what coreutils' timeout exits with
LINES_SHOWN = 8
PROGRAMS_SHOWN = 8  # with a column each


def run(
    kernel: Annotated[
        str | None, typer.Argument(metavar="[FILE.py:FUNC]", help="An nki.jit function in a file.")
    ] = None,
    input: Annotated[list[str] | None, typer.Option(help="A tensor, NAME=128x512:bfloat16, random values.")] = None,
    arg: Annotated[list[str] | None, typer.Option(help="Any other argument, NAME=VALUE.")] = None,
    arch: Annotated[str, typer.Option(help="The chip: trn1, trn2 or trn3.")] = "trn2",
    lnc: Annotated[int, typer.Option(help="Physical cores, 1 or 2.")] = 1,
    ranks: Annotated[int, typer.Option(help="Ranks that run it at once, for nki.collectives; up to 64.")] = 1,
    price_only: Annotated[bool, typer.Option("--price-only", help="Compute no values.")] = False,
    choices: Annotated[
        bool, typer.Option("--choices", help="Also with each engine that the kernel leaves open chosen otherwise.")
    ] = False,
    limit: Annotated[float | None, typer.Option(help="Stop after so many seconds, with exit status 124.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome trace for ui.perfetto.dev here.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with timeline, roofline and tables here.")] = None,
    imported: Annotated[
        Path | None, typer.Option("--import", help="A profile.json(.gz) of the Neuron profiler to replay instead.")
    ] = None,
    parts: Annotated[
        bool, typer.Option("--parts", help="With --import: also with each part of the model off.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate how long a kernel takes and where the time goes, by the latency model.

    With --import, replay a profile taken on a device and report measured against modelled times.

    \b
    Example:
      kernels-neuron profile softmax.py:softmax --input x=128x512:bfloat16 --trace out.json
    """
    from kernels_neuron.errors import UsageError
    from kernels_neuron.measure.source import TimeLimit

    if imported is not None:
        if kernel is not None or input or arg or trace is not None or html is not None:
            raise UsageError("--import replays a profile and runs no kernel", hint="give --import alone")
        _import(imported, parts, json)
        return
    if kernel is None:
        raise UsageError("profile takes a kernel or --import", hint="name one: kernels-neuron profile FILE.py:FUNC")
    require_place(trace, html)
    try:
        found, others = _profile(kernel, input or [], arg or [], arch, (lnc, ranks), price_only, choices, limit)
    except TimeLimit as error:
        if json:
            print_json({"error": str(error), "hint": error.hint})
        else:
            say(f"error: {error}")
        raise typer.Exit(TIMED_OUT) from None
    if trace is not None:
        found.write_trace(trace)
    if html is not None:
        from kernels_neuron.flows.profile_html import render

        html.write_text(render(found), encoding="utf-8")
    if json:
        print_json(found.to_json() | ({"choices": [each.to_json() for each in others]} if choices else {}))
    else:
        _print(found)
        if choices:
            _print_choices(others)


def _import(path: Path, parts: bool, json: bool) -> None:
    from kernels_neuron.cost.imported import compare_profile
    from kernels_neuron.cost.switches import SWITCHES

    found = compare_profile(path, SWITCHES if parts else ())
    if json:
        print_json(found.to_json())
    else:
        _print_comparison(found)


def _print_comparison(found: "Comparison") -> None:
    measured = found.measured_body_us
    print(f"{found.file.name} on {found.arch.name}, {found.instructions} instructions")
    print(f"  measured body   {measured:.2f} us")
    spread = f"{found.low_us:.2f} to {found.high_us:.2f} over the TensorE throttle phases"
    print(f"  estimated body  {found.estimated_body_us:.2f} us ({spread}), {found.error:+.1%}")
    if found.estimated_at_phase_us is not None:
        print(f"  estimated with the profile's own phase {found.estimated_at_phase_us:.2f} us")
    if found.unpriced:
        print(f"  priced as one element a cycle, for want of a price: {', '.join(found.unpriced)}")
    print("\nfrom the first DMA trigger to the last write of each engine, and time with work, in us")
    names = ("engine", "measured", "estimated", "low", "high", "error", "busy measured", "busy estimated")
    rows = []
    for name, each in found.engines.items():
        error = each.estimated_body_us / each.measured_body_us - 1 if each.measured_body_us > 0 else None
        times = (each.measured_body_us, each.estimated_body_us, each.low_us, each.high_us)
        share = None if error is None else f"{error:+.1%}"
        rows.append(
            (
                name,
                *(round(us, 2) for us in times),
                share,
                round(each.measured_busy_us, 2),
                round(each.estimated_busy_us, 2),
            )
        )
    table(names, rows)
    print("\nmean duration of each kind of instruction, and how much later the model ends it, in us")
    kinds = ("engine", "instruction", "count", "measured", "estimated", "ends later")
    cells = [(k.engine, k.opcode, k.count, k.measured_us, k.estimated_us, k.ends_us) for k in found.kinds]
    table(kinds, [(*each[:3], *(round(us, 3) for us in each[3:])) for each in cells])
    if found.without:
        print("\nthe model with one part off")
        rows_off = [(part, round(us, 2), f"{us / measured - 1:+.1%}") for part, us in found.without.items()]
        table(("off", "estimated", "error"), rows_off)


def _profile(
    kernel: str,
    inputs: list[str],
    values: list[str],
    arch: str,
    size: tuple[int, int],
    price_only: bool,
    others: bool,
    limit: float | None,
) -> "tuple[Profile, list[Choice]]":
    from kernels_neuron.arch import chip
    from kernels_neuron.cost.choices import choices
    from kernels_neuron.cost.profile import profile, profile_ranks
    from kernels_neuron.errors import KernelError, KernelsNeuronError, UsageError
    from kernels_neuron.measure.cases import PAIRED
    from kernels_neuron.measure.source import KERNEL_RAISES, load_function, located, make_arguments, time_limit
    from kernels_neuron.settings import Settings
    from kernels_neuron.sim.run import MAX_RANKS

    lnc, ranks = size
    if lnc not in (1, 2):
        raise UsageError(f"--lnc is 1 or 2, got {lnc}")
    if not 1 <= ranks <= MAX_RANKS:
        raise UsageError(f"--ranks is 1 to {MAX_RANKS}, got {ranks}")
    if ranks > 1 and others:
        raise UsageError("--choices tries one rank, got --ranks", hint="leave one of them out")
    chosen = chip(arch)
    if lnc > 1 and chosen.generation < PAIRED:
        raise UsageError(f"{chosen.name} has no logical cores of two", hint="leave --lnc out, or take trn2 or trn3")
    with time_limit(limit):
        function = load_function(kernel)
        arguments = make_arguments(function, inputs, values)
        try:
            settings = Settings(lnc=lnc, execute=not price_only, reuse=False)
            if ranks > 1:
                of_rank = [make_arguments(function, inputs, values, rank) for rank in range(ranks)]
                return profile_ranks(function, of_rank, arch=chosen, settings=settings), []
            found = profile(function, arch=chosen, settings=settings, **arguments)
            if not others:
                return found, []
            tried = choices(function, body_us=found.body_us, arch=chosen, settings=settings, **arguments)
            return found, tried
        except KernelsNeuronError:
            raise
        except KERNEL_RAISES as error:
            raise KernelError(located(error), rule="python") from error


def _print(found: "Profile") -> None:
    cores = f" on {found.lnc} cores" if found.lnc > 1 else ""
    ranks = f", {found.ranks} ranks{' each' if cores else ''}{cores}" if found.ranks > 1 else cores
    note = "" if found.validated else ", unvalidated on this chip"
    print(f"{found.kernel} on {found.arch.name}{ranks}: estimated {found.estimated_us:.2f} us{note}")
    has_spread = found.high_us > found.low_us
    spread = f" ({found.low_us:.2f} to {found.high_us:.2f} over the TensorE throttle phases)" if has_spread else ""
    print(f"  body {found.body_us:.2f} us{spread}, one launch {found.launch_us:.2f} us")
    print(f"  bound {found.bound_us:.2f} us, {found.instructions} instructions, simulated in {found.sim_wall_s:.2f} s")
    if found.unmeasured:
        print(f"  no measurement backs {', '.join(found.unmeasured)}")
    print()
    table(("engine", "busy"), [(name, f"{share:.1%}") for name, share in found.engines.items()])
    _print_dma(found.dma)
    if found.meetings:
        _print_meetings(found)
    print("\nwhat would help most if it were free")
    helped = [(round(h.saved_us, 3), f"{h.share:.1%}", h.part, h.name) for h in found.would_help if h.saved_us > 0]
    table(("saved us", "of body", "", ""), helped[:LINES_SHOWN])
    print("\ncritical path")
    rows = [
        (
            f"{s.share:.1%}",
            s.engine,
            s.instruction,
            s.where,
            round(s.us, 3),
            s.times,
            str(s.waits[0][0]) if s.waits else None,
        )
        for s in found.path
    ]
    table(("share", "engine", "instruction", "line", "us", "times", "waiting for"), rows[:LINES_SHOWN])
    if len(rows) > LINES_SHOWN:
        print(f"and {len(rows) - LINES_SHOWN} more lines")


def _print_dma(found: "DmaUse") -> None:
    total = found.total
    if not total.transfers:
        return
    print(
        f"\nDMA {total.nbytes:,} bytes in {total.transfers} transfers: {found.share_of_peak:.1%} of what the engines "
        f"could move in the body, {found.busy_share_of_peak:.1%} of it while they have work\n"
        f"  {total.descriptors:,} descriptors of {total.mean_descriptor_bytes:,.0f} bytes in the mean, "
        f"{total.small_share:.1%} of them under {found.efficient_bytes}"
    )


def _print_meetings(found: "Profile") -> None:
    print("\nwhere programs meet: an exchange by itself, and how long each waited for the others in all, in us")
    programs = list(found.bodies_us)
    if len(programs) > PROGRAMS_SHOWN:
        several = []
        for each in found.meetings:
            by_program = sorted(each.waited_us.items(), key=lambda item: item[1])
            waits = (by_program[0][1], fmean(us for _, us in by_program), by_program[-1][1])
            times = (round(us, 3) for us in (each.exchange_us, *waits))
            several.append((each.where, each.instruction, each.times, *times, by_program[-1][0]))
        table(("line", "instruction", "times", "exchange", "least", "mean", "most", "by"), several)
        return
    rows = [
        (each.where, each.instruction, each.times, round(each.exchange_us, 3))
        + tuple(round(each.waited_us[name], 3) if name in each.waited_us else None for name in programs)
        for each in found.meetings
    ]
    ends = ("", "ended", None, None, *(round(us, 3) for us in found.bodies_us.values()))
    table(("line", "instruction", "times", "exchange", *programs), [*rows, ends])


def _print_choices(found: "list[Choice]") -> None:
    print("\nengines that the kernel leaves open, one chosen otherwise; the estimate above stays")
    rows = [
        (each.what, each.engine, each.other, round(each.body_us, 3), f"{each.change:+.1%}")
        if each.body_us is not None and each.change is not None
        else (each.what, each.engine, each.other, None, "refused by the chip")
        for each in found
    ]
    table(("instruction", "engine", "instead", "body_us", ""), rows)
