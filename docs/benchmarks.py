"""Fills the tables of README.md, docs/benchmarks.md and docs/kernels.md that quote bench/results/kernels.json.

kernels-neuron bench --suite kept --save bench/results/kernels.json
python docs/benchmarks.py
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "kernels.json"
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "kernels.md")
QUOTED = ("bfloat16", "trn2", 1)  # dtype, chip and cores of the README's table
HEAD = (
    "| kernel | workload | cores | estimated us | bound us | baseline us | body over bound | speedup | with launches |"
)
BLOCK = re.compile(r"(<!-- from kernels.json: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = dict[str, Any]


def table(kept: dict[str, Any]) -> str:
    """One line a workload, of the README's dtype, chip and cores."""
    return "\n".join([HEAD, "|---" * (HEAD.count("|") - 1) + "|", *map(_line, _quoted(kept))])


def _quoted(kept: dict[str, Any]) -> list[Row]:
    return [row for row in kept["rows"] if (row["dtype"], row["arch"], row["lnc"]) == QUOTED]


def _line(row: Row) -> str:
    times = [f"{row[name]:.1f}" for name in ("estimated_us", "bound_us", "baseline_us")]
    ratios = [f"{row['body_over_bound']:.2f}", _speedup(row), f"{row['speedup_with_launch']:.2f}"]
    return f"| {' | '.join([row['kernel'], row['workload'], str(row['lnc']), *times, *ratios])} |"


def _speedup(row: Row) -> str:
    return f"{row['speedup']:.2f} ({row['speedup_low']:.2f} to {row['speedup_high']:.2f})"


def bodies(kept: dict[str, Any]) -> str:
    """The same rows by their body, which is what a speedup is made of."""
    lines = [
        f"| {row['kernel']} | {row['workload']} | {row['body_us']:.1f} | {row['bound_us']:.1f} | {row['speedup']:.2f} |"
        for row in _quoted(kept)
    ]
    return "\n".join(["| kernel | workload | body us | bound us | speedup |", "|---|---|---|---|---|", *lines])


def chips(kept: dict[str, Any]) -> str:
    """One line a workload and dtype, a column for each chip and number of cores: body and speedup."""
    rows = kept["rows"]
    columns = list(dict.fromkeys((row["arch"], row["lnc"]) for row in rows))
    cells = {(row["kernel"], row["workload"], row["dtype"], row["arch"], row["lnc"]): row for row in rows}
    names = [f"{arch}, {lnc} core{'s' if lnc > 1 else ''}" for arch, lnc in columns]
    lines = [f"| kernel | workload | dtype | {' | '.join(names)} |", "|---" * (3 + len(columns)) + "|"]
    for kernel, workload, dtype in dict.fromkeys(key[:3] for key in cells):
        found = (cells.get((kernel, workload, dtype, *column)) for column in columns)
        texts = [f"{row['body_us']:.1f} us, {row['speedup']:.2f}" if row else "" for row in found]
        lines.append(f"| {kernel} | {workload} | {dtype} | {' | '.join(texts)} |")
    missing = [f"{arch} is missing for {', '.join(names)}: not made for it." for arch, names in kept["lacking"].items()]
    return "\n".join([*lines, "", *missing])


def made(kept: dict[str, Any]) -> str:
    """Where the rows come from."""
    return f"Made at commit {kept['commit'][:7]} on {kept['date']}, {len(kept['rows'])} rows."


def filled(text: str, kept: dict[str, Any]) -> str:
    """A page with its marked blocks replaced."""
    blocks = {"table": table(kept), "bodies": bodies(kept), "chips": chips(kept), "made": made(kept)}
    return BLOCK.sub(lambda match: f"{match[1]}{blocks[match[2]]}\n{match[3]}", text)


if __name__ == "__main__":
    results = json.loads(RESULTS.read_text())
    for page in PAGES:
        page.write_text(filled(page.read_text(), results))
