"""A profile as one HTML page that needs nothing but itself: timeline, roofline, what would help, tables."""

from typing import TYPE_CHECKING

from .page import render_page
from .profile_figures import lanes, roofline, ticks
from .roofline import chart

if TYPE_CHECKING:
    from kernels_neuron.cost.profile import Profile

LINES_SHOWN = 20
# drawing areas, in the units of their SVG
ROW, WIDTH = 26, 1100
LABELS, LETTER = 120, 7


def render(profile: "Profile") -> str:
    """The page of one profile; the same bytes for the same profile, but for how long the simulator took."""
    drawn = lanes(profile)
    return render_page(
        "profile.html.j2",
        p=profile,
        lanes=drawn,
        ticks=ticks(drawn.body_us),
        row=ROW,
        labels=max([LABELS, *(LETTER * len(track.name) for track in drawn.tracks)]),
        width=WIDTH,
        chart=chart(roofline(profile)),
        shown=LINES_SHOWN,
    )
