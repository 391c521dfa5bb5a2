"""What the pictures of a bench show, in the units of their drawing: ranges of speedups, all kernels on a roofline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels_neuron.arch import chip

from .axes import LogAxis
from .roofline import Point, Roofline

if TYPE_CHECKING:
    from kernels_neuron.measure.bench import BenchRow

COLOURS = 8
# drawing areas in the units of their SVG: a line of the range plot, its plot and its labels
LINE, PLOT, LETTER = 22, 330, 7.4

Name = tuple[str, str, str]  # kernel, workload, dtype


@dataclass(frozen=True)
class Group:
    """The rows of one chip with one number of cores."""

    arch: str
    lnc: int
    rows: "list[BenchRow]"

    @property
    def title(self) -> str:
        """What the rows ran on, in words."""
        return f"{self.arch}, {self.lnc} core{'s' if self.lnc > 1 else ''}"

    @property
    def validated(self) -> bool:
        """Whether the model of the chip was compared with measurements."""
        return chip(self.arch).validated


def groups(rows: "Sequence[BenchRow]") -> list[Group]:
    """The rows by chip and cores, in the order in which these come first."""
    found: dict[tuple[str, int], list[BenchRow]] = {}
    for row in rows:
        found.setdefault((row.arch, row.lnc), []).append(row)
    return [Group(*key, each) for key, each in sorted(found.items())]


def numbered(rows: "Sequence[BenchRow]") -> dict[Name, int]:
    """A number for each kernel, workload and dtype, the same on every chip."""
    names = dict.fromkeys((row.kernel, row.workload, row.dtype) for row in rows)
    return {name: number for number, name in enumerate(names, start=1)}


def colours(names: Sequence[str], first: int = 0) -> dict[str, int]:
    """A colour for each name, in the order they come first, counted from `first`."""
    return {name: number % COLOURS for number, name in enumerate(dict.fromkeys(names), start=first)}


@dataclass(frozen=True)
class Span:
    """A value from low to high where it is drawn, and in words."""

    low: float
    middle: float
    high: float
    y: float
    colour: int
    text: str


@dataclass(frozen=True)
class Ranges:
    """The speedups of one group: a line for each workload, a span for each dtype.

    labels, spans  of the lines; `one` is where a speedup of 1 stands
    """

    title: str
    labels: list[tuple[float, str]]
    spans: list[Span]
    ticks: list[tuple[float, str]]
    one: float
    left: float
    width: float
    height: float


def ranges(group: Group, rows: "Sequence[BenchRow]", colour_of: Mapping[str, int]) -> Ranges | None:
    """The range plot of one group on the axis of all `rows`; None where no row has a speedup."""
    speedups = [value for row in rows if row.ok for value in (row.speedup_low, row.speedup_high) if value]
    lines: dict[tuple[str, str], list[BenchRow]] = {}
    for row in group.rows:
        if row.speedup and row.speedup_low and row.speedup_high:
            lines.setdefault((row.kernel, row.workload), []).append(row)
    if not lines:
        return None
    axis = LogAxis.over([*speedups, 1.0], PLOT)
    labels, spans = [], []
    for number, ((kernel, workload), of_line) in enumerate(lines.items()):
        middle = LINE * (number + 0.5)
        labels.append((middle, f"{kernel} {workload}"))
        apart = min(7.0, (LINE - 8) / len(of_line))
        for place, row in enumerate(of_line):
            assert row.speedup and row.speedup_low and row.speedup_high
            values = (row.speedup_low, row.speedup, row.speedup_high)
            text = f"{kernel} {workload} {row.dtype}: {values[1]:.2f}, {values[0]:.2f} to {values[2]:.2f}, estimated"
            y = middle + apart * (place - (len(of_line) - 1) / 2)
            low, here, high = (axis.at(value) for value in values)
            spans.append(Span(low, here, high, y, colour_of[row.dtype], text))
    left = LETTER * max(len(text) for _, text in labels) + 10
    return Ranges(group.title, labels, spans, axis.ticks, axis.at(1.0), left, PLOT, LINE * len(lines))


def kernels_roofline(group: Group, numbers: Mapping[Name, int], colour_of: Mapping[str, int]) -> Roofline:
    """Every row of a group by its useful operations per byte of its tensors, at their rate over the body."""
    from kernels_neuron.cost.bound import bandwidth_gbps, peak_tflops

    arch = chip(group.arch)
    points = [
        Point(
            f"{row.kernel} {row.workload} {row.dtype}",
            f"body {row.body_us:.1f} us, bound {row.bound_us:.1f} us, estimated",
            row.flops / row.hbm_bytes,
            row.flops / (row.body_us * 1e3),
            mark=str(numbers[row.kernel, row.workload, row.dtype]),
            colour=colour_of[row.kernel],
        )
        for row in group.rows
        if row.flops and row.hbm_bytes and row.body_us
    ]
    peaks: dict[float, list[str]] = {}
    for dtype in dict.fromkeys(row.dtype for row in group.rows):
        peaks.setdefault(peak_tflops(arch, dtype, group.lnc) * 1e3, []).append(dtype)
    roofs = [(f"TensorE, {' and '.join(dtypes)}", peak) for peak, dtypes in peaks.items()]
    return Roofline(points, roofs, bandwidth_gbps(arch, group.lnc))
