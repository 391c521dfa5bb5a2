"""`kernels-neuron lint`: what an NKI version or a chip will refuse, found in a kernel's text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernels_neuron.errors import UsageError

from .output import print_json, progress

if TYPE_CHECKING:
    from kernels_neuron.lint import Finding, Selection


def run(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="[PATH]...", help=".py files, or folders.")] = None,
    nki: Annotated[str, typer.Option(help="The NKI version it is for: beta, 0.1 .. 0.7.")] = "0.7",
    arch: Annotated[
        str | None, typer.Option(help="The chip it is for: trn1, trn2, trn3. Default: what no chip accepts.")
    ] = None,
    select: Annotated[list[str] | None, typer.Option(help="Only this rule, or rules that start so: NKI3.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not this rule, or rules that start so.")] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Also run it: the workloads of kernel folders, or FILE.py:FUNC.")
    ] = False,
    input: Annotated[
        list[str] | None, typer.Option(help="With --run FILE.py:FUNC: a tensor, NAME=128x512:bfloat16.")
    ] = None,
    arg: Annotated[list[str] | None, typer.Option(help="The same for any other argument, NAME=VALUE.")] = None,
    lnc: Annotated[int, typer.Option(help="The same: physical cores, 1 or 2.")] = 1,
    rules: Annotated[bool, typer.Option("--rules", help="Print the rules instead.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list of findings.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print the findings as SARIF 2.1.0.")] = False,
) -> None:
    """Find what an NKI version or a chip refuses, without importing the files.

    Exits 1 when a finding is an error. Silence one with `# lint: ignore[NKI303] why`.

    \b
    Example:
      kernels-neuron lint --run softmax.py:softmax --input x=128x512:bfloat16
    """
    from kernels_neuron.lint import Selection, Target, lint
    from kernels_neuron.lint.sarif import sarif as as_sarif

    if rules:
        _print_rules(json)
        return
    if not paths:
        raise UsageError("lint takes files or folders", hint="name one: kernels-neuron lint nki_src")
    if json and sarif:
        raise UsageError("--json and --sarif both print on stdout", hint="give one of them")
    selection = Selection(select or [], ignore or [])
    functions = _functions(paths, run)
    found = lint([functions[path][0] if path in functions else path for path in paths], Target.of(nki, arch), selection)
    if run:
        from kernels_neuron.flows.function_findings import function_findings

        folders = [path for path in paths if path not in functions]
        found += _run(folders, nki, arch, selection) if folders else []
        for file, function in functions.values():
            found += function_findings(
                file, function, input or [], arg or [], nki=nki, arch=arch or "trn2", lnc=lnc, selection=selection
            )
        found = sorted({*found})
    if sarif:
        print_json(as_sarif(found))
    elif json:
        print_json([each.to_json() for each in found])
    else:
        _print(found)
    if any(each.severity == "error" for each in found):
        raise typer.Exit(1)


def _functions(paths: list[Path], run: bool) -> dict[Path, tuple[Path, str]]:
    """The file and the function of every path that is FILE.py:FUNC."""
    if not any(".py:" in str(path) for path in paths):
        return {}
    from kernels_neuron.flows.function_findings import function_of

    functions = {path: target for path in paths if (target := function_of(path))}
    if functions and not run:
        raise UsageError("a function is run, and a text is linted as a whole", hint="give --run, or the file alone")
    return functions


def _run(paths: list[Path], nki: str, arch: str | None, selection: "Selection") -> "list[Finding]":
    from kernels_neuron.flows.findings import run_findings

    with progress("run") as bar:
        return run_findings(
            paths, nki=nki, arch=arch, selection=selection, on_case=bar.advance, expect=lambda count: bar.move(0, count)
        )


def _print(found: "list[Finding]") -> None:
    for each in found:
        print(each)
        if each.hint:
            print(f"    hint: {each.hint}")
    counts = [(sum(each.severity == kind for each in found), kind) for kind in ("error", "warning", "note")]
    print(", ".join(f"{count} {kind}{'s' * (count != 1)}" for count, kind in counts))


def _print_rules(json: bool) -> None:
    from kernels_neuron.lint import rule_table, simulator_rules
    from kernels_neuron.sim.rulebook import RULES

    listed = rule_table()
    if json:
        print_json({"rules": listed, "simulator": simulator_rules()})
        return
    for each in listed:
        print(f"{each['id']}  {each['severity']}: {each['title']} (NKI {each['nki']}; chips {each['chips']})")
        for word in ("why", "fix"):
            if each[word]:
                print(f"    {word}: {each[word]}")
    print("\nand, for calls whose operands the text fixes and for --run, the simulator's rules, all of them errors:")
    for id, of_run in RULES.items():
        print(f"{id}: {of_run.says} (NKI {of_run.versions}; chips {of_run.chips}) [{of_run.source}]")
