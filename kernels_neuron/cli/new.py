"""`kernels-neuron new`: a kernel folder that already verifies."""

from typing import Annotated

import typer

from kernels_neuron.builder import scaffold

from .output import print_json, say


def run(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and underscores, such as my_gelu.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Start a kernel: nki_src/NAME with kernel, reference, operators, layers, workloads; its table in kernel.toml.

    Where no kernel.toml lies in this folder or above, a new project begins here.

    \b
    Example:
      kernels-neuron new my_gelu
    """
    folder = scaffold(name)
    if json:
        print_json({"kernel": name, "folder": str(folder)})
        return
    print(folder)
    say(f"it computes y = scale * x; change kernel.py, reference.py and spec.toml, then `kernels-neuron verify {name}`")
