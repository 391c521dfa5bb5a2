"""Writes the figures of docs/registry.md from bench/results/. Run it after a benchmark: `python docs/registry.py`.

A test fails while the page is not what this would write.
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "registry.md"
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- figures: python docs/registry.py -->\n", "<!-- end of figures -->\n"
NONE = "no run is kept; `{}` makes one"


def page(text: str) -> str:
    """The page with its figures written anew."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + figures() + "\n" + END + rest.partition(END)[2]


def figures() -> str:
    """The table."""
    rows = [_load(_read("registry_load")), _throughput(_read("registry_throughput"))]
    lines = ["| benchmark | result | run |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _read(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def _load(row: dict[str, Any] | None) -> tuple[str, str, str]:
    what = "50 real clients, 2,000 fetches of a kernel of 20 files"
    if row is None:
        return what, NONE.format("python bench/registry_load.py"), ""
    what = f"{row['clients']} real clients, {row['fetches']:,} fetches of a kernel of {row['files']} files"
    return what, f"{row['errors']} errors; a fetch took {row['median_s']} s, p99 {row['p99_s']} s", _run(row)


def _throughput(row: dict[str, Any] | None) -> tuple[str, str, str]:
    what = "GET of small files, keep-alive, wrk"
    if row is None:
        return what, NONE.format("python bench/registry_throughput.py"), ""
    ours, theirs = row["medians"]["registry"], row["medians"]["static"]
    speed = f"{ours['requests_per_s']:,.0f} a second to {theirs['requests_per_s']:,.0f} of StaticFiles"
    said = f"{speed}, a ratio of {row['registry_over_static']:.2f}; p99 {ours['p99_us'] / 1e3:.1f} ms"
    said += f" to {theirs['p99_us'] / 1e3:.1f} ms"
    return f"{what}, {row['rounds']} x {row['seconds']} s", said, _run(row)


def _run(row: dict[str, Any]) -> str:
    where = row["environment"]
    busy = f", {where['cpus']} cores under a load of {where['load']}"
    return f"{where['date'][:10]}, commit {where['commit'][:7]}{' and changes' if where['dirty'] else ''}{busy}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
