"""Fills the tables of docs/performance.md and the summaries there and in README.md from bench/results/.

kernels-neuron bench --suite validation --json > bench/results/validation.json
python bench/sensitivity.py --save bench/results/sensitivity.json
python docs/performance.py
"""

import json
import re
from pathlib import Path
from statistics import fmean, median
from typing import Any

from kernels_neuron.arch import UNCERTAINTY, chip

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "validation.json"
SENSITIVITY = ROOT / "bench" / "results" / "sensitivity.json"
PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md")
HEAD = "| id | kernel | shape | chip | measured us | estimated us | error | bound | first look | |"
BLOCK = re.compile(r"(<!-- from (?:validation|sensitivity).json: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
FELT = 0.001  # the least change of a row that makes a constant matter
TAG = re.compile(r"\[(\w+)\]|(assumed)")

TRN2 = chip("trn2")
Row = dict[str, Any]


def table(rows: list[Row]) -> str:
    """One line a measurement."""
    return "\n".join([HEAD, "|---" * (HEAD.count("|") - 1) + "|", *map(_line, rows)])


def _line(row: Row) -> str:
    error = _percent(row["error"])
    bound = "" if row["within"] is None else f"{row['within']:.0%}"
    cells = [row["id"], row["kernel"], row["shape"], row["arch"], f"{row['measured_us']:g}"]
    cells += ["" if row["estimated_us"] is None else f"{row['estimated_us']:.4g}", error, bound]
    return f"| {' | '.join([*cells, _percent(row['first_error']), row['verdict']])} |"


def _percent(error: float | None) -> str:
    return "" if error is None else f"{error:+.1%}"


def summary(rows: list[Row]) -> str:
    """What the suite says in a paragraph."""
    bounded = [row for row in rows if row["within"] is not None and row["error"] is not None]
    held = sum(row["verdict"] == "ok" for row in bounded)
    blind = [abs(row["first_error"]) for row in rows if row["first_error"] is not None]
    near = sum(error <= 0.15 for error in blind)
    free = [row for row in rows if row["within"] is None and row["error"] is not None]
    close = sum(abs(row["error"]) <= 0.2 for row in free)
    return (
        f"{held} of the {len(bounded)} bounded measurements of the suite keep their bound, at a mean absolute error of "
        f"{_mean(bounded)}.\n{len(blind)} rows were first estimated blind, nothing fixed with them in sight: {near} of "
        f"these first estimates are within 15 %, the median error is\n{median(blind):.0%}. "
        f"Of the {len(free)} rows that are only reported, most of them compiled by an older compiler that moved loads "
        f"and chose\nengines, {close} are within 20 %."
    )


def constants(sensitivity: dict[str, Any]) -> str:
    """The constants of the model by how far what they may be off moves an estimate; one line for what moves none."""
    found = [(name, _worst(changes)) for name, changes in sensitivity["changes"].items()]
    felt = sorted((each for each in found if abs(each[1][1]) >= FELT), key=lambda each: -abs(each[1][1]))
    lines = ["| constant | value | may be off by | known from | moves most | by | on average |", "|---" * 7 + "|"]
    for name, (row, change) in felt:
        part, _, constant = name.rpartition(".")
        value = getattr(TRN2.engine(part) if part else TRN2, constant)
        average = fmean(map(abs, sensitivity["changes"][name].values()))
        apart = f"{UNCERTAINTY[name]:g}"
        cells = [f"`{name}`", f"{value:g}", apart, _source(name), row, f"{abs(change):.1%}", f"{average:.1%}"]
        lines.append(f"| {' | '.join(cells)} |")
    others = ", ".join(f"`{name}`" for name, (_, change) in found if abs(change) < FELT)
    return "\n".join([*lines, "", f"These move no row by {FELT:.1%}: {others}."])


def _worst(changes: dict[str, float]) -> tuple[str, float]:
    return max(changes.items(), key=lambda each: abs(each[1]))


def _source(name: str) -> str:
    """How well a constant is known, by the tag of its line in arch.UNCERTAINTY."""
    line = next(line for line in (ROOT / "kernels_neuron" / "arch.py").read_text().splitlines() if f'"{name}":' in line)
    found = TAG.search(line)
    assert found is not None, f"{name} says no source"
    return found[1] or found[2]


def _mean(rows: list[Row]) -> str:
    return f"{fmean(abs(row['error']) for row in rows):.1%}" if rows else "none"


def filled(text: str, rows: list[Row], sensitivity: dict[str, Any]) -> str:
    """A page with its marked blocks replaced."""
    made = {"table": table(rows), "summary": summary(rows), "constants": constants(sensitivity)}
    return BLOCK.sub(lambda match: f"{match[1]}{made[match[2]]}\n{match[3]}", text)


if __name__ == "__main__":
    measured, changes = json.loads(RESULTS.read_text()), json.loads(SENSITIVITY.read_text())
    for page in PAGES:
        page.write_text(filled(page.read_text(), measured, changes))
