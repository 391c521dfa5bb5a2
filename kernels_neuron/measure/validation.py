"""The model against published measurements: bench/<suite>/measurements.toml, one row per measurement.

Each row names a kernel of the folder, written from the description of the published one, or a profile to replay. The
kernels are priced, not executed.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from kernels_neuron.arch import CHIPS, chip
from kernels_neuron.errors import FileProblems
from kernels_neuron.tables import Table, read_toml

from .executors import run_all

OWN_TRACES = "traces"  # a folder beside the measurements, looked at first
TRACES = "KERNELS_NEURON_TRN2_TRACES"
MEASUREMENTS = "measurements.toml"
STEP, TIE = 0.10, 0.01  # measurements further apart are steps of a ladder, estimates closer than that ties
QUANTITIES = ("body", "call", "instruction", "step", "first", "last", "seen", "data", "replay")


@dataclass(frozen=True)
class Measurement:
    """One published number. `quantity` says what was timed, see the head of the file; `of` which part of the kernel.

    within  the relative error that the model has to keep, None for rows that are only reported
    note    why a row is only reported, or what to know about it
    first_us   the first estimate of a row for which nothing of the model was fixed with it in sight, else None
    """

    id: str
    what: str
    shape: str
    arch: str
    quantity: str
    measured_us: float
    of: str = ""
    kernel: str = ""
    inputs: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    trace: str = ""
    within: float | None = None
    note: str = ""
    first_us: float | None = None

    @property
    def first_error(self) -> float | None:
        """The first, blind estimate over measured, less one."""
        return None if self.first_us is None else self.first_us / self.measured_us - 1


@dataclass(frozen=True)
class Ladder:
    """A published sequence of versions of one kernel, by the ids of its rows.

    excepted  pairs of rows that may come in the wrong order, each with the cause
    """

    name: str
    rows: tuple[str, ...]
    excepted: dict[tuple[str, str], str]


@dataclass(frozen=True)
class ValidationRow:
    """A measurement and its estimate. `estimated_us` is None where it cannot be made here, `problem` says why."""

    measurement: Measurement
    estimated_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    problem: str | None = None

    @property
    def error(self) -> float | None:
        """Estimated over measured, less one."""
        return None if self.estimated_us is None else self.estimated_us / self.measurement.measured_us - 1

    @property
    def verdict(self) -> str:
        """ok, MISS, reported (no bound is set) or skipped."""
        if self.error is None:
            return "skipped"
        if self.measurement.within is None:
            return "reported"
        return "ok" if abs(self.error) <= self.measurement.within else "MISS"

    def to_json(self) -> dict[str, Any]:
        """The row as `bench --suite validation --json` prints it."""
        each = self.measurement
        return {
            "id": each.id,
            "kernel": each.what,
            "shape": each.shape,
            "arch": each.arch,
            "quantity": each.quantity,
            "measured_us": each.measured_us,
            "estimated_us": self.estimated_us,
            "estimated_low_us": self.low_us,
            "estimated_high_us": self.high_us,
            "error": self.error,
            "within": each.within,
            "verdict": self.verdict,
            "first_us": each.first_us,
            "first_error": each.first_error,
            "note": self.problem or each.note,
        }


@dataclass(frozen=True)
class Summary:
    """What a validation says in one line: rows by verdict and the mean absolute error of those with a bound."""

    total: int
    held: int
    missed: int
    reported: int
    skipped: int
    mean_absolute_error: float | None

    def __str__(self) -> str:
        error = "" if self.mean_absolute_error is None else f", mean absolute error {self.mean_absolute_error:.1%}"
        rest = f"{self.reported} only reported, {self.skipped} skipped"
        return f"{self.held} of {self.held + self.missed} measurements within their bound{error}; {rest}"


def summary(rows: Sequence[ValidationRow]) -> Summary:
    """Count the verdicts of a validation."""
    verdicts = [row.verdict for row in rows]
    errors = [abs(row.error) for row in rows if row.error is not None and row.measurement.within is not None]
    return Summary(
        total=len(rows),
        held=verdicts.count("ok"),
        missed=verdicts.count("MISS"),
        reported=verdicts.count("reported"),
        skipped=verdicts.count("skipped"),
        mean_absolute_error=fmean(errors) if errors else None,
    )


def misordered(ladder: Ladder, rows: Sequence[ValidationRow]) -> list[tuple[str, str]]:
    """Pairs (faster, slower) by measurement that the estimates put the other way round, exceptions left out.

    Pairs count whose measurements differ by more than 10 %; estimates within 1 % of each other are ties.
    """
    known = {row.measurement.id: row for row in rows if row.estimated_us is not None}
    steps = [known[name] for name in ladder.rows if name in known]
    wrong = []
    for one in steps:
        for other in steps:
            faster = other.measurement.measured_us > one.measurement.measured_us * (1 + STEP)
            assert one.estimated_us is not None and other.estimated_us is not None
            if faster and other.estimated_us < one.estimated_us * (1 - TIE):
                wrong.append((one.measurement.id, other.measurement.id))
    return [pair for pair in wrong if pair not in ladder.excepted]


def is_validation(folder: Path) -> bool:
    """Whether a folder of bench/ holds published measurements."""
    return (folder / MEASUREMENTS).is_file()


def read_measurements(folder: Path) -> list[Measurement]:
    """The measurements of a folder, every problem of the file at once."""
    return _read(folder)[0]


def read_ladders(folder: Path) -> list[Ladder]:
    """The ladders among the measurements of a folder."""
    return _read(folder)[1]


def _read(folder: Path) -> tuple[list[Measurement], list[Ladder]]:
    path = folder / MEASUREMENTS
    problems: list[str] = []
    top = Table(read_toml(path, "published measurements are listed as [[measurement]]"), "", problems)
    rows, ladders = top.take("measurement", list, [], required=True), top.take("ladder", list, [])
    top.done()
    found = [_measurement(row, f"measurement[{i}]", problems) for i, row in enumerate(rows)]
    ids = [each.id for each in found]
    problems += [f"measurement: {name!r} appears twice" for name in sorted({i for i in ids if ids.count(i) > 1})]
    steps = [_ladder(row, f"ladder[{i}]", set(ids), problems) for i, row in enumerate(ladders)]
    if problems:
        raise FileProblems(path, problems)
    return found, steps


def _ladder(row: dict[str, Any], where: str, ids: set[str], problems: list[str]) -> Ladder:
    table = Table(row, where, problems)
    name, rows, excepted = table.take("name", str, "", required=True), table.take_strings("rows"), {}
    for pair in table.take("excepted", list, []):
        if isinstance(pair, list) and len(pair) == 3 and all(isinstance(part, str) for part in pair):
            excepted[pair[0], pair[1]] = pair[2]
        else:
            table.problem("excepted", f"lists [faster row, slower row, cause], got {pair!r}")
    for each in sorted({*rows, *(name for pair in excepted for name in pair)} - ids):
        table.problem("rows", f"names {each!r}, which is no measurement")
    table.done()
    return Ladder(name, tuple(rows), excepted)


def _measurement(row: dict[str, Any], where: str, problems: list[str]) -> Measurement:
    table = Table(row, where, problems)
    texts = {key: table.take(key, str, "", required=True) for key in ("id", "what", "shape", "arch", "quantity")}
    table.one_of("arch", texts["arch"], CHIPS, "chip")
    table.one_of("quantity", texts["quantity"], QUANTITIES, "quantity")
    texts |= {key: table.take(key, str, "") for key in ("of", "kernel", "trace", "note")}
    measured = table.take("measured_us", float, 1.0, required=True)
    inputs, args, within = table.take_strings("inputs"), table.take_strings("args"), table.take("within", float)
    first = table.take("first_us", float)
    if not texts["trace"] and not texts["kernel"]:
        table.problem("kernel", "is missing, and so is trace: a row needs one of them")
    table.done()
    return Measurement(**texts, measured_us=measured, inputs=inputs, args=args, within=within, first_us=first)


def validate(
    folder: Path,
    measurements: Sequence[Measurement],
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    on_row: Callable[[ValidationRow], None] | None = None,
) -> list[ValidationRow]:
    """A row per measurement, in their order. `workers` and `executor` as in executors.run_all, `on_row` once a row."""
    alike: dict[tuple[Any, ...], list[Measurement]] = {}
    for each in measurements:
        alike.setdefault((each.kernel, each.trace, each.inputs, each.args, each.arch), []).append(each)

    def on_rows(rows: list[ValidationRow]) -> None:
        if on_row is not None:
            for row in rows:
                on_row(row)

    groups = list(alike.values())
    found = run_all(partial(validate_alike, folder), groups, workers=workers, executor=executor, on_row=on_rows)
    rows = {row.measurement.id: row for rows in found for row in rows}
    return [rows[each.id] for each in measurements]


def validate_one(folder: Path, measurement: Measurement) -> ValidationRow:
    """Estimate one measurement."""
    return validate_alike(folder, [measurement])[0]


def validate_alike(folder: Path, measurements: Sequence[Measurement]) -> list[ValidationRow]:
    """Estimate measurements of one kernel on the same inputs, which is priced once."""
    first = measurements[0]
    if first.quantity == "replay":
        return [_replayed(folder, each) for each in measurements]
    from kernels_neuron.cost.profile import profile
    from kernels_neuron.settings import Settings

    from .source import load_function, make_arguments

    function = load_function(str(folder / first.kernel))
    arguments = make_arguments(function, first.inputs, first.args)
    found = profile(function, arch=chip(first.arch), settings=Settings(execute=False), **arguments)
    return [_estimated(each, found) for each in measurements]


def _estimated(measurement: Measurement, found: Any) -> ValidationRow:
    if measurement.quantity == "body":
        return ValidationRow(measurement, found.body_us, found.low_us, found.high_us)
    if measurement.quantity == "call":
        return ValidationRow(measurement, found.estimated_us, found.estimated_low_us, found.estimated_high_us)
    return ValidationRow(measurement, _part_us(measurement, found))


def _replayed(folder: Path, measurement: Measurement) -> ValidationRow:
    from kernels_neuron.cost.imported import compare_profile

    places = [folder / OWN_TRACES, Path(os.environ.get(TRACES) or OWN_TRACES)]
    path = next((place / measurement.trace for place in places if (place / measurement.trace).is_file()), None)
    if path is None:
        return ValidationRow(measurement, problem=f"{TRACES} names no folder with {measurement.trace}")
    found = compare_profile(path)
    return ValidationRow(measurement, found.estimated_body_us, found.low_us, found.high_us)


def _part_us(measurement: Measurement, found: Any) -> float:
    """The time of one instruction or transfer of a profiled kernel."""
    trace, line, of = found.trace, found.timeline, measurement.of
    if measurement.quantity in ("instruction", "step"):
        steps = [index for index, record in enumerate(trace.records) if record.name == of]
        first = steps[0] if measurement.quantity == "instruction" else steps[-1]
        return (line.end[steps[-1]] - line.start[first]) / 1e3
    [index] = [
        index
        for index, record in enumerate(trace.records)
        if record.price.transfer is not None and record.price.transfer.direction == of
    ]
    first, last = line.data[index]
    arch, transfer = found.arch, trace.records[index].price.transfer
    visible = line.start[index] + (arch.dma_generation_ns if transfer.dge == "sw" else 0.0)
    waiting = arch.engine("vector").wake_ns
    ends = {"first": first, "last": last, "seen": line.seen[index] + waiting}
    return (last - first if measurement.quantity == "data" else ends[measurement.quantity] - visible) / 1e3
