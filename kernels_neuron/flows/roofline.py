"""Rooflines as a picture: points under the roofs of a chip, in the units of their drawing (data/figures.html.j2)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .axes import decades, log_position

# drawing area in the units of its SVG; the radius of a mark
WIDTH, HEIGHT, RADIUS, TEXT, LETTER = 900, 420, 9, 14, 7

Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Point:
    """A place on a roofline. `gops` in operations per ns, `per_byte` in operations per byte.

    mark    what stands in its circle, and in front of its name in the legend
    colour  number of its colour, see data/page.html.j2
    """

    name: str
    detail: str
    per_byte: float
    gops: float
    mark: str
    colour: int = 0


@dataclass(frozen=True)
class Roofline:
    """Points, and the roofs of the chip.

    roofs      (name, Gop/s) of each
    hbm_gbps   the slope on the left, bytes per ns
    """

    points: list[Point]
    roofs: list[tuple[str, float]]
    hbm_gbps: float


@dataclass(frozen=True)
class Mark:
    """A point where it is drawn: its place, and its circle, moved aside where another one is in the way."""

    point: Point
    x: float
    y: float
    circle_x: float
    circle_y: float

    @property
    def is_aside(self) -> bool:
        """Whether the circle is not at its place, which then has a dot of its own."""
        return (self.x, self.y) != (self.circle_x, self.circle_y)


@dataclass(frozen=True)
class Chart:
    """The roofline in the units of its drawing.

    columns, rows  grid lines: position, text
    slope          of the HBM line: where it begins and ends, its middle and its angle in degrees
    roofs          name, x where it begins, y, y of its name
    """

    width: int
    height: int
    columns: list[tuple[float, str]]
    rows: list[tuple[float, str]]
    slope: tuple[float, float, float, float]
    slope_angle: float
    slope_text: str
    roofs: list[tuple[str, float, float, float]]
    marks: list[Mark]


def chart(found: Roofline) -> Chart | None:
    """Where everything of a roofline is drawn; None where nothing does any operation."""
    if not found.points or not found.roofs:
        return None
    top = max(peak for _, peak in found.roofs)
    rates = [point.gops for point in found.points] + [peak for _, peak in found.roofs]
    low_rate, high_rate = min(rates) / 3, max(rates) * 3
    inside = [point.per_byte for point in found.points] + [peak / found.hbm_gbps for _, peak in found.roofs]
    low, high = min(inside) / 3, max(inside) * 3

    def x(per_byte: float) -> float:
        return WIDTH * log_position(per_byte, low, high)

    def y(gops: float) -> float:
        return HEIGHT * (1 - log_position(gops, low_rate, high_rate))

    # the slope begins where it enters the plot and ends at the highest roof
    begin = max(low, low_rate / found.hbm_gbps)
    slope = (x(begin), y(begin * found.hbm_gbps), x(top / found.hbm_gbps), y(top))
    roofs = _name_apart([(f"{name}: {rate(peak)}", x(peak / found.hbm_gbps), y(peak)) for name, peak in found.roofs])
    slope_text = f"HBM, {found.hbm_gbps:.0f} GB/s"
    words: list[Box] = [
        (WIDTH - 4 - LETTER * len(name), name_y - TEXT, WIDTH, name_y + 2) for name, _, _, name_y in roofs
    ]
    words += _along(slope, LETTER * len(slope_text))
    return Chart(
        width=WIDTH,
        height=HEIGHT,
        columns=[(x(value), f"{value:g}") for value in decades(low, high)],
        rows=[(y(value), rate(value)) for value in decades(low_rate, high_rate)],
        slope=slope,
        slope_angle=math.degrees(math.atan2(slope[3] - slope[1], slope[2] - slope[0])),
        slope_text=slope_text,
        roofs=roofs,
        marks=_marks([(point, x(point.per_byte), y(point.gops)) for point in found.points], words),
    )


def rate(gops: float) -> str:
    """A rate with its unit."""
    return f"{gops / 1e3:g} Top/s" if gops >= 1e3 else f"{gops:.4g} Gop/s"


def _name_apart(roofs: list[tuple[str, float, float]]) -> list[tuple[str, float, float, float]]:
    """Names above their roof, but below where another roof is too close above."""
    return [
        (name, x, y, y + 16 if any(0 < y - other < 2 * TEXT for _, _, other in roofs) else y - 6)
        for name, x, y in roofs
    ]


def _along(slope: tuple[float, float, float, float], length: float) -> list[Box]:
    """Boxes that cover text of a length above the middle of the slope."""
    x1, y1, x2, y2 = slope
    long = math.hypot(x2 - x1, y2 - y1) or 1.0
    steps = [length * (step / 8 - 0.5) / long + 0.5 for step in range(9)]
    middles = [(x1 + (x2 - x1) * step, y1 + (y2 - y1) * step - TEXT) for step in steps]
    return [(x - TEXT / 2, y - TEXT / 2, x + TEXT / 2, y + TEXT / 2) for x, y in middles]


def _marks(places: Sequence[tuple[Point, float, float]], words: Sequence[Box]) -> list[Mark]:
    """Circles that cover neither each other nor words, as near to their places as they can be."""
    marks: list[Mark] = []
    for point, x, y in places:
        circle_x, circle_y = next(
            (each_x, each_y)
            for each_x, each_y in _around(x, y)
            if all(math.hypot(each_x - mark.circle_x, each_y - mark.circle_y) >= 2 * RADIUS for mark in marks)
            and not any(_covers(each_x, each_y, box) for box in words)
        )
        marks.append(Mark(point, x, y, circle_x, circle_y))
    return marks


def _covers(x: float, y: float, box: Box) -> bool:
    """Whether a circle at (x, y) reaches into a box."""
    x0, y0, x1, y1 = box
    return math.hypot(x - min(max(x, x0), x1), y - min(max(y, y0), y1)) < RADIUS


def _around(x: float, y: float) -> Iterator[tuple[float, float]]:
    """The place itself, then places around it on growing circles, inside the drawing; never out of places."""
    yield x, y
    ring = 1
    while True:
        for step in range(8 * ring):
            angle = 2 * math.pi * step / (8 * ring)
            here = x + 2.2 * RADIUS * ring * math.cos(angle), y - 2.2 * RADIUS * ring * math.sin(angle)
            if (RADIUS <= here[0] <= WIDTH - RADIUS and RADIUS <= here[1] <= HEIGHT - RADIUS) or ring > 40:
                yield here
        ring += 1
