"""Comparing bench rows with earlier ones: what moved, and whether any of it is a slow-down."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels_neuron.errors import UsageError

from .bench import BenchRow

# share by which a time may grow; a model repeats exactly, a device does not
ESTIMATED_MAY_GROW = 0.01
MEASURED_MAY_GROW = 0.10
_KEY = ("kernel", "workload", "dtype", "arch", "lnc")


@dataclass(frozen=True)
class Move:
    """One time of one row that changed beyond its threshold. `ratio` is now / before; None where one has no number."""

    key: tuple[Any, ...]
    column: str
    before: float | None
    now: float | None

    @property
    def ratio(self) -> float | None:
        """now / before."""
        return self.now / self.before if self.before and self.now is not None else None

    @property
    def slower(self) -> bool:
        """Whether it got worse: a longer time, or none where there was one."""
        return self.now is None or (self.before is not None and self.now > self.before)


def read_rows(path: Path | str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of a file that `bench --save` or `bench --json` wrote, by kernel, workload, dtype, chip and cores."""
    path = Path(path)
    try:
        rows = json.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"there is no {path}", hint="write one with `kernels-neuron bench --save FILE`") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if isinstance(rows, dict):
        rows = rows.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and set(_KEY) <= set(row) for row in rows):
        raise UsageError(
            f"{path} is not a list of bench rows", hint="write one with `kernels-neuron bench --save FILE`"
        )
    return {tuple(row[key] for key in _KEY): row for row in rows}


def moves(rows: Sequence[BenchRow], before: dict[tuple[Any, ...], dict[str, Any]]) -> list[Move]:
    """What moved beyond its threshold, in the order of the rows. Rows without an earlier one are left out."""
    found = []
    for row in rows:
        old = before.get(row.key)
        if old is None:
            continue
        for column, threshold in (("estimated_us", ESTIMATED_MAY_GROW), ("measured_us", MEASURED_MAY_GROW)):
            then, now = old.get(column), getattr(row, column)
            if then is None or (now is None and column == "measured_us"):
                continue  # measured on another machine, or never
            if now is None or abs(now - then) > threshold * then:
                found.append(Move(row.key, column, then, now))
    return found
