"""Which cases a run takes: their kernel, a stratified sample, a shard, and what was done before. No clone needed."""

import json
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def kernel_of(case: str) -> str:
    """The kernel a case is counted under, by its test file: `.../test_rope_hf.py::Test::test[x]` -> rope_hf."""
    return Path(case.split("::", 1)[0]).stem.removeprefix("test_")


def sample(cases: Sequence[str], size: int, seed: int) -> list[str]:
    """`size` cases, each kernel in proportion to its number of cases and with one at least, the same for the same seed.

    Proportions are rounded by largest remainder, so that the counts add up.
    """
    strata = defaultdict(list)
    for case in cases:
        strata[kernel_of(case)].append(case)
    if size >= len(cases):
        return list(cases)
    quota = {kernel: max(1.0, size * len(members) / len(cases)) for kernel, members in strata.items()}
    counts = {kernel: int(share) for kernel, share in quota.items()}
    by_remainder = sorted(quota, key=lambda kernel: (counts[kernel] - quota[kernel], kernel))
    for kernel in by_remainder[: max(0, size - sum(counts.values()))]:
        counts[kernel] += 1
    chosen = {
        case
        for kernel in sorted(strata)
        for case in random.Random(f"{seed}/{kernel}").sample(sorted(strata[kernel]), counts[kernel])
    }
    return [case for case in cases if case in chosen]


def shard(cases: Sequence[str], index: int, count: int) -> list[str]:
    """Every `count`-th case, starting with case `index` (from 1): shards differ in one case at most and cover all."""
    if not 1 <= index <= count:
        raise ValueError(f"a shard is i/n with 1 <= i <= n, got {index}/{count}")
    return list(cases[index - 1 :: count])


def read_rows(path: Path) -> dict[str, Row]:
    """The last row of each case in a results file; a line cut short by a kill is left out."""
    rows = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            rows[row["id"]] = row
    return rows


def left_to_do(cases: Iterable[str], done: Mapping[str, Row], *, again: str | None = None) -> list[str]:
    """Cases without a row, and those whose row failed with the error class `again` ("all": with any)."""
    return [
        case
        for case in cases
        if case not in done or (again is not None and not done[case]["ok"] and again in ("all", done[case]["error"]))
    ]


def cheapest_first(cases: Sequence[str], rows: Iterable[Row]) -> list[str]:
    """Cases ordered by the median processor time of their kernel's rows, kernels without rows last.

    A run that is stopped has then made as many rows as it could.
    """
    seconds = defaultdict(list)
    for row in rows:
        seconds[row["kernel"]].append(row["cpu_s"])
    median = {kernel: statistics.median(times) for kernel, times in seconds.items()}
    return sorted(cases, key=lambda case: median.get(kernel_of(case), float("inf")))
