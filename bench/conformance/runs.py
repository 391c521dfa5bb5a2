"""Runs of the harness from beginning to end, a line of JSON each beside the rows: how long a sample takes in one go."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def runs_of(results: Path) -> Path:
    """The file of runs that belongs to a file of rows."""
    return results.with_name(f"{results.stem}-runs.jsonl")


def read_runs(results: Path) -> list[dict[str, Any]]:
    """All runs that ended."""
    path = runs_of(results)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def in_one_go(runs: Iterable[dict[str, Any]], sample: int, seed: int) -> str:
    """The last time that all of the sample ran at once, in words."""
    together: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        if (run["sample"], run["seed"], run["again"]) == (sample, seed, None):
            together[run["date"], run["ours"], run["memory"]].append(run)
    whole = [each for each in together.values() if sum(run["cases"] for run in each) == sample]
    if not whole:
        return "It was not taken in one go, but added up."
    last = whole[-1]
    minutes = max(run["wall_s"] for run in last) / 60
    return (
        f"In one go, in {len(last)} processes side by side with {last[0]['memory']:g} GiB each, the sample took "
        f"{minutes:.0f} minutes ({last[0]['date']}, commit {last[0]['ours']})."
    )
