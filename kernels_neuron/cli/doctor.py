"""`kernels-neuron doctor`: what is installed, which path will run, what is missing."""

from dataclasses import asdict
from typing import Annotated

import typer

from kernels_neuron.flows.doctor import Diagnosis, diagnose

from .output import print_json, table


def run(json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Say what is installed, where kernels will run on this machine, and what is missing.

    Exits 1 when a part that every installation needs is missing or too old.

    \b
    Example:
      kernels-neuron doctor
    """
    found = diagnose()
    if json:
        print_json({**asdict(found), "ok": found.ok})
    else:
        _print(found)
    if not found.ok:
        raise typer.Exit(1)


def _print(found: Diagnosis) -> None:
    print(f"kernels-neuron {found.version}, python {found.python}")
    print(f"kernels run on: {found.path} ({found.why})")
    print(f"emulated torch device: {'on' if found.emulated_device else 'off'} ({found.emulated_device_why})\n")
    columns = ("part", "installed", "asked", "for", "state")
    table(columns, [(p.name, p.version, p.asked or None, p.needed_by or "everything", p.state) for p in found.parts])
    for note in found.notes:
        print(f"\nnote: {note}")
    extras = sorted({part.needed_by for part in found.parts if part.state in ("missing", "old")} - {"", "device"})
    if extras:
        print(f"\nto add what is missing: pip install 'kernels-neuron[{','.join(extras)}]'")
