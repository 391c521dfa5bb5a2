"""Fills the table of docs/performance.md and the summaries there and in README.md from bench/results/validation.json.

kernels-neuron bench --suite validation --json > bench/results/validation.json
python docs/performance.py
"""

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "validation.json"
PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md")
HEAD = "| id | kernel | shape | chip | measured us | estimated us | error | bound | blind | |"
BLOCK = re.compile(r"(<!-- from validation.json: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = dict[str, Any]


def table(rows: list[Row]) -> str:
    """One line a measurement."""
    return "\n".join([HEAD, "|---" * (HEAD.count("|") - 1) + "|", *map(_line, rows)])


def _line(row: Row) -> str:
    error = "" if row["error"] is None else f"{row['error']:+.1%}"
    bound = "" if row["within"] is None else f"{row['within']:.0%}"
    cells = [row["id"], row["kernel"], row["shape"], row["arch"], f"{row['measured_us']:g}"]
    cells += ["" if row["estimated_us"] is None else f"{row['estimated_us']:.4g}", error, bound]
    return f"| {' | '.join([*cells, 'blind' if row['blind'] else '', row['verdict']])} |"


def summary(rows: list[Row]) -> str:
    """What the suite says in a paragraph."""
    bounded = [row for row in rows if row["within"] is not None and row["error"] is not None]
    held = sum(row["verdict"] == "ok" for row in bounded)
    blind = [row for row in bounded if row["blind"]]
    free = [row for row in rows if row["within"] is None and row["error"] is not None]
    close = sum(abs(row["error"]) <= 0.2 for row in free)
    return (
        f"{held} of the {len(bounded)} bounded measurements of the suite keep their bound, at a mean absolute error of "
        f"{_mean(bounded)}.\n{len(blind)} of them are blind, whole profiles that nothing was read off: {_mean(blind)}. "
        f"Of the {len(free)} that are only reported,\nmost of them compiled by an older compiler that moved loads and "
        f"chose engines, {close} are within 20 %."
    )


def _mean(rows: list[Row]) -> str:
    return f"{fmean(abs(row['error']) for row in rows):.1%}" if rows else "none"


def filled(text: str, rows: list[Row]) -> str:
    """A page with its marked blocks replaced."""
    made = {"table": table(rows), "summary": summary(rows)}
    return BLOCK.sub(lambda match: f"{match[1]}{made[match[2]]}\n{match[3]}", text)


if __name__ == "__main__":
    measured = json.loads(RESULTS.read_text())
    for page in PAGES:
        page.write_text(filled(page.read_text(), measured))
