"""`kernels-neuron list`: kernels, versions, variants, dtypes, what they serve."""

from typing import Annotated, Any

import typer

from kernels_neuron.manifest import Kernel, Manifest
from kernels_neuron.spec import Spec

from .output import print_json, table


def run(json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> None:
    """List the kernels of the nearest kernel.toml, or those that came with the installation.

    \b
    Example:
      kernels-neuron list --json
    """
    rows = [_row(kernel, Spec.read(kernel.folder)) for kernel in Manifest.read().select()]
    if json:
        print_json(rows)
        return
    columns = ("kernel", "repo", "version", "variants", "dtypes", "workloads", "serves")
    table(columns, [[row[column] for column in columns] for row in rows])
    for row in rows:
        for dtype, reason in row["loose"].items():
            print(f"{row['kernel']} {dtype} loose: {reason}")


def _row(kernel: Kernel, spec: Spec) -> dict[str, Any]:
    return {
        "kernel": kernel.name,
        "repo": kernel.repo,
        "version": kernel.version,
        "license": kernel.license,
        "variants": list(kernel.variants),
        "dtypes": list(spec.dtypes),
        "workloads": len(spec.workloads),
        "summary": spec.summary,
        "serves": list(spec.serves) or [spec.summary],
        "limits": {letter: list(ends) for letter, ends in spec.limits.items()},
        "nki": list(spec.nki),
        "archs": list(spec.archs),
        "loose": spec.loose,
    }
