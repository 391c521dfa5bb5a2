"""`kernels-neuron check`: what the Hub and upstream `kernels` demand of build/, all problems at once."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kernels_neuron.builder import check
from kernels_neuron.manifest import Manifest

from .output import print_json


def run(
    kernels: Annotated[list[str] | None, typer.Argument(metavar="[KERNEL]...", help="Folders or repo names.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where it was built; default: build/ beside kernel.toml.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list of problems.")] = False,
) -> None:
    """Check built repos before they are published: metadata, digests, imports, layers, operators, card.

    Exits 1 when there is a problem.

    \b
    Example:
      kernels-neuron check layernorm
    """
    manifest = Manifest.read()
    problems = check(manifest, kernels, out)
    if json:
        print_json([asdict(problem) for problem in problems])
    else:
        for problem in problems:
            print(f"{problem.kernel}  {problem.where}: {problem.text}")
        wrong = len({problem.kernel for problem in problems})
        total = len(manifest.select(kernels))
        count = f", {len(problems)} problem{'s' if len(problems) > 1 else ''}" if problems else ""
        print(f"{total - wrong} of {total} kernels can be published{count}")
    if problems:
        raise typer.Exit(1)
