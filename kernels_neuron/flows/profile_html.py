"""A profile as one HTML page that needs nothing but itself: timeline, roofline, what would help, tables."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .page import render_page
from .profile_figures import Point, Roofline, decades, lanes, log_position, roofline, ticks

if TYPE_CHECKING:
    from kernels_neuron.cost.profile import Profile

LINES_SHOWN = 20
# drawing areas, in the units of their SVG
ROW, LABELS, WIDTH = 26, 120, 1100
PLOT_WIDTH, PLOT_HEIGHT, TEXT = 900, 420, 14


def render(profile: "Profile") -> str:
    """The page of one profile; the same bytes for the same profile, but for how long the simulator took."""
    drawn = lanes(profile)
    return render_page(
        "profile.html.j2",
        p=profile,
        lanes=drawn,
        ticks=ticks(drawn.body_us),
        row=ROW,
        labels=LABELS,
        width=WIDTH,
        chart=chart(roofline(profile)),
        shown=LINES_SHOWN,
    )


@dataclass(frozen=True)
class Mark:
    """A point of the roofline where it is drawn, with its number in the legend; the kernel's is 0."""

    number: int
    point: Point
    x: float
    y: float


@dataclass(frozen=True)
class Chart:
    """The roofline in the units of its drawing.

    columns, rows  grid lines: position, text
    roofs          name, x where it begins, y, y of its name
    """

    width: int
    height: int
    columns: list[tuple[float, str]]
    rows: list[tuple[float, str]]
    slope: tuple[float, float, float, float]
    slope_text: str
    roofs: list[tuple[str, float, float, float]]
    marks: list[Mark]


def chart(found: Roofline) -> Chart | None:
    """Where everything of a roofline is drawn; None where the kernel does no operation."""
    if not found.points or not found.roofs:
        return None
    top = max(peak for _, peak in found.roofs)
    rates = [point.gops for point in found.points] + [peak for _, peak in found.roofs]
    low_rate, high_rate = min(rates) / 3, top * 3
    ridge = [peak / found.hbm_gbps for _, peak in found.roofs]
    inside = [point.per_byte for point in found.points] + ridge
    low, high = min(inside) / 3, max(inside) * 3

    def x(per_byte: float) -> float:
        return PLOT_WIDTH * log_position(per_byte, low, high)

    def y(gops: float) -> float:
        return PLOT_HEIGHT * (1 - log_position(gops, low_rate, high_rate))

    # the slope begins where it enters the plot and ends at the highest roof
    begin = max(low, low_rate / found.hbm_gbps)
    return Chart(
        width=PLOT_WIDTH,
        height=PLOT_HEIGHT,
        columns=[(x(value), _power(value)) for value in decades(low, high)],
        rows=[(y(value), _rate(value)) for value in decades(low_rate, high_rate)],
        slope=(x(begin), y(begin * found.hbm_gbps), x(top / found.hbm_gbps), y(top)),
        slope_text=f"HBM, {found.hbm_gbps:.0f} GB/s",
        roofs=_name_apart(
            [(f"{name}: {_rate(peak)}", x(peak / found.hbm_gbps), y(peak)) for name, peak in found.roofs]
        ),
        marks=[
            Mark(number, point, x(point.per_byte), y(point.gops))
            for number, point in enumerate(found.points, start=0 if found.points[0].kernel else 1)
        ],
    )


def _name_apart(roofs: list[tuple[str, float, float]]) -> list[tuple[str, float, float, float]]:
    """Names above their roof, but below where another roof is too close above."""
    return [
        (name, x, y, y + 16 if any(0 < y - other < 2 * TEXT for _, _, other in roofs) else y - 6)
        for name, x, y in roofs
    ]


def _power(value: float) -> str:
    return f"{value:g}"


def _rate(gops: float) -> str:
    return f"{gops / 1e3:g} Top/s" if gops >= 1e3 else f"{gops:.4g} Gop/s"
