"""How the estimates move when a constant of the model moves by what it may be off.

    .venv/bin/python bench/sensitivity.py --save bench/results/sensitivity.json

Each constant of arch.UNCERTAINTY is moved up and down on trn2 while everything else stays, and rows of the validation
suite are estimated again: profiles replayed, kernels from their source, transfers made beforehand. Reported is the
larger change of the two, per row, as a share of the row's estimate. It takes minutes, a line each.
"""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import results_file

from kernels_neuron.arch import UNCERTAINTY, Arch, chip, moved
from kernels_neuron.cost.imported import Imported
from kernels_neuron.cost.neuron_profile import read_profile
from kernels_neuron.cost.profile import profile
from kernels_neuron.measure.executors import run_all
from kernels_neuron.measure.source import load_function, make_arguments
from kernels_neuron.measure.validation import OWN_TRACES, TRACES, Measurement, read_measurements
from kernels_neuron.settings import Settings

FOLDER = Path(__file__).parent / "validation"
ROWS = (
    *("GT-01", "GT-03", "GT-05", "GT-07"),
    *("replay-S1024-baseline-bf16", "replay-S1024-fused-fp32"),
    *("attention-one-512-bfloat16", "attention-three-512-float32"),
    *("mlp-gelu-256x512x1024-float32", "mlp-tanh-256x512x1024-bfloat16"),
    *("vector-add-1000", "vector-add-2", "transpose-1024"),
)


def estimate_us(measurement: Measurement, arch: Arch) -> float:
    """The row's estimate with the model of `arch`."""
    if measurement.trace:
        places = [FOLDER / OWN_TRACES, Path(os.environ.get(TRACES) or FOLDER / OWN_TRACES)]
        path = next(place / measurement.trace for place in places if (place / measurement.trace).is_file())
        return Imported.of(read_profile(path), arch=arch).mean_body_us()
    function = load_function(str(FOLDER / measurement.kernel))
    arguments = make_arguments(function, measurement.inputs, measurement.args)
    found = profile(function, arch=arch, settings=Settings(execute=False), **arguments)
    return found.estimated_us if measurement.quantity == "call" else found.body_us


def changes(measurements: list[Measurement], name: str) -> dict[str, float]:
    """Row -> the larger change of its estimate, up or down, when one constant moves."""
    arch, found = chip("trn2"), {}
    for each in measurements:
        here, by = estimate_us(each, arch), UNCERTAINTY[name]
        apart = [estimate_us(each, moved(arch, name, sign * by)) / here - 1 for sign in (1, -1)]
        found[each.id] = max(apart, key=abs)
    return found


def sensitivity(
    rows: tuple[str, ...] = ROWS, names: tuple[str, ...] = tuple(UNCERTAINTY), on_name: Callable[[str], None] = print
) -> dict[str, dict[str, float]]:
    """Constant -> row -> change."""
    measurements = [each for each in read_measurements(FOLDER) if each.id in rows]
    found = run_all(partial(_named, measurements), list(names), on_row=lambda row: on_name(row[0]))
    return dict(found)


def _named(measurements: list[Measurement], name: str) -> tuple[str, dict[str, float]]:
    return name, changes(measurements, name)


def main() -> None:
    """Read the command line, move every constant and write what it did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, help="write the result here")
    asked = parser.parse_args()
    found = sensitivity(on_name=lambda name: print(name, file=sys.stderr))
    row: dict[str, Any] = {"environment": results_file.environment("numpy"), "rows": list(ROWS), "changes": found}
    results_file.write(asked.save, row)


if __name__ == "__main__":
    main()
