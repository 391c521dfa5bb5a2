"""What the pictures of a validation show, in the units of their drawing: measured against estimated, and ladders."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .axes import LogAxis

if TYPE_CHECKING:
    from kernels_neuron.measure.validation import Ladder, ValidationRow

SIDE, BAND = 560.0, 0.20  # of the scatter, and the error its band shows
MOST = 2.0  # estimates beyond half and twice the measurement stand at the edge of the picture of ratios
STEPS, RISE = 260.0, 130.0  # width and height of a ladder
# kind of row -> colour number of data/page.html.j2
KINDS = {"within its bound": 0, "blind, within its bound": 2, "beyond its bound": 3, "only reported": 7}


def kind_of(row: "ValidationRow") -> str:
    """What a row says about the model."""
    if row.verdict == "reported":
        return "only reported"
    if row.verdict == "MISS":
        return "beyond its bound"
    return "blind, within its bound" if row.measurement.first_us is not None else "within its bound"


@dataclass(frozen=True)
class Dot:
    """A measurement where it is drawn, with the range of its estimate and all of it in words."""

    x: float
    y: float
    low: float
    high: float
    colour: int
    text: str


@dataclass(frozen=True)
class Scatter:
    """Measured to the right, in us; estimated, or estimated over measured, upwards; both axes logarithmic.

    line  from where to where the two are equal
    band  corners of where the estimate is within 20 % of the measurement
    """

    side: float
    dots: list[Dot]
    columns: list[tuple[float, str]]
    rows: list[tuple[float, str]]
    up: str
    line: tuple[float, float]
    band: list[tuple[float, float]]


def kinds(rows: "Sequence[ValidationRow]") -> list[tuple[int, str, int]]:
    """(colour, kind, how many) of the rows that have an estimate."""
    found = [kind_of(row) for row in rows if row.estimated_us is not None]
    return [(colour, kind, found.count(kind)) for kind, colour in KINDS.items() if kind in found]


def scatters(rows: "Sequence[ValidationRow]") -> list[Scatter]:
    """Estimates, and their ratios to the measurements, of the rows that have one; nothing where none has."""
    known = [row for row in rows if row.estimated_us is not None]
    if not known:
        return []
    known.sort(key=lambda row: row.measurement.within is not None)  # bounded ones on top
    values = [value for row in known for value in (row.measurement.measured_us, row.estimated_us or 0.0)]
    across = LogAxis.over(values, SIDE)
    up, ratio = LogAxis(across.low, across.high, SIDE, turned=True), LogAxis(1 / MOST, MOST, SIDE, turned=True)
    ends = [(across.low, across.high, 1 + BAND), (across.high, across.low, 1 - BAND)]
    corners = [(value, factor) for low, high, factor in ends for value in (low, high)]
    ticks = [(ratio.at(value), f"{value - 1:+.0%}") for value in (0.5, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0)]
    return [
        Scatter(
            side=SIDE,
            dots=[_dot(row, across, up, 1.0) for row in known],
            columns=across.ticks,
            rows=up.ticks,
            up="estimated us",
            line=(SIDE, 0.0),
            band=[(across.at(value), up.at(value * factor)) for value, factor in corners],
        ),
        Scatter(
            side=SIDE,
            dots=[_dot(row, across, ratio, row.measurement.measured_us) for row in known],
            columns=across.ticks,
            rows=ticks,
            up="estimated over measured, less one",
            line=(ratio.at(1.0), ratio.at(1.0)),
            band=[(across.at(value), ratio.at(factor)) for value, factor in corners],
        ),
    ]


def _dot(row: "ValidationRow", across: LogAxis, up: LogAxis, unit: float) -> Dot:
    """A row with its estimates in units of `unit`; what the axis does not reach stands at its end."""
    assert row.estimated_us is not None and row.error is not None
    each = row.measurement
    low, high = row.low_us or row.estimated_us, row.high_us or row.estimated_us
    text = f"{each.id}, {each.what}, {each.shape}, {each.arch}: measured {each.measured_us:g} us, "
    text += f"estimated {row.estimated_us:.2f} us ({low:.2f} to {high:.2f}), {row.error:+.1%}"
    middle, bottom, top = (up.at(min(max(us / unit, up.low), up.high)) for us in (row.estimated_us, low, high))
    return Dot(across.at(each.measured_us), middle, bottom, top, KINDS[kind_of(row)], text)


@dataclass(frozen=True)
class Steps:
    """One ladder: the versions of a kernel from left to right, measured and estimated.

    ids       (x, text) of the versions
    excepted  why some pairs may come in the wrong order
    """

    name: str
    width: float
    height: float
    ids: list[tuple[float, str]]
    rows: list[tuple[float, str]]
    measured: list[tuple[float, float]]
    estimated: list[tuple[float, float]]
    texts: list[str]
    note: str
    excepted: list[str]


def steps(ladder: "Ladder", rows: "Sequence[ValidationRow]", wrong: Sequence[tuple[str, str]]) -> Steps | None:
    """A ladder by its measurements, slowest first; `wrong` are the pairs that the estimates put the other way round."""
    by_id = {row.measurement.id: row for row in rows if row.estimated_us is not None}
    known = [by_id[name] for name in ladder.rows if name in by_id]
    if not known:
        return None
    estimates = [row.estimated_us for row in known if row.estimated_us is not None]
    axis = LogAxis.over([*(row.measurement.measured_us for row in known), *estimates], RISE, turned=True)
    across = [STEPS * (number + 0.5) / len(known) for number in range(len(known))]
    kept = "in order, but for the exceptions below" if ladder.excepted else "in order"
    note = kept if not wrong else "out of order: " + ", ".join(f"{one} and {other}" for one, other in wrong)
    return Steps(
        name=ladder.name,
        width=STEPS,
        height=RISE,
        ids=[(x, str(number)) for number, x in enumerate(across, start=1)],
        rows=axis.ticks,
        measured=[(x, axis.at(row.measurement.measured_us)) for x, row in zip(across, known, strict=True)],
        estimated=[(x, axis.at(us)) for x, us in zip(across, estimates, strict=True)],
        texts=[
            f"{number}: {row.measurement.id}, {row.measurement.shape}, measured {row.measurement.measured_us:g} us, "
            f"estimated {us:.2f} us"
            for number, (row, us) in enumerate(zip(known, estimates, strict=True), start=1)
        ],
        note=note,
        excepted=sorted({f"{one}, excepted: {cause}" for (one, _), cause in ladder.excepted.items()}),
    )
