"""`kernels-neuron build`: kernel.toml and nki_src/ to Hub repos under build/."""

from pathlib import Path
from typing import Annotated

import typer

from kernels_neuron.builder import build
from kernels_neuron.manifest import Manifest

from .output import print_json, table


def run(
    kernels: Annotated[list[str] | None, typer.Argument(metavar="[KERNEL]...", help="Folders or repo names.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to build; default: build/ beside kernel.toml.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Build kernels as Hub repos; all of them when none is named. A repo that is up to date is left as it is.

    \b
    Example:
      kernels-neuron build layernorm
    """
    built = build(Manifest.read(), kernels, out)
    if json:
        print_json(
            [
                {
                    "kernel": one.name,
                    "repo": one.hub_name,
                    "root": str(one.root),
                    "variants": {variant: str(path) for variant, path in one.variants.items()},
                    "digest": one.digest,
                }
                for one in built
            ]
        )
        return
    table(
        ("kernel", "repo", "variants", "digest", "root"),
        [(one.name, one.hub_name, list(one.variants), one.digest[:12], str(one.root)) for one in built],
    )
