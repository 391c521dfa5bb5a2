"""A bench, or the comparison with published measurements, as one HTML page that needs nothing but itself."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .bench_figures import colours, groups, kernels_roofline, numbered, ranges
from .page import render_page
from .roofline import chart
from .validation_figures import KINDS, kind_of, kinds, scatters, steps

if TYPE_CHECKING:
    from kernels_neuron.measure.bench import BenchRow
    from kernels_neuron.measure.validation import Ladder, ValidationRow


def render(rows: "Sequence[BenchRow]", lacking: Mapping[str, Sequence[str]], environment: Mapping[str, Any]) -> str:
    """The page of a bench; the same bytes for the same rows and environment.

    lacking      chip -> the kernels that are not made for it
    environment  what the rows were made from, as results.environment gives it
    """
    numbers = numbered(rows)
    kernel_colours = colours([row.kernel for row in rows])
    dtype_colours = colours([row.dtype for row in rows], first=4)  # not those of the kernels
    found = groups(rows)
    return render_page(
        "bench.html.j2",
        rows=rows,
        groups=found,
        numbers=numbers,
        kernel_colours=kernel_colours,
        dtype_colours=dtype_colours,
        ranges=[drawn for group in found if (drawn := ranges(group, rows, dtype_colours))],
        charts={group.title: chart(kernels_roofline(group, numbers, kernel_colours)) for group in found},
        is_measured=any(row.measured_us is not None for row in rows),
        lacking=lacking,
        environment=environment,
    )


def render_validation(
    rows: "Sequence[ValidationRow]", ladders: "Sequence[Ladder]", environment: Mapping[str, Any]
) -> str:
    """The page of a validation: measured against estimated, the ladders, every row."""
    from kernels_neuron.measure.validation import misordered, summary

    drawn = [steps(ladder, rows, misordered(ladder, rows)) for ladder in ladders]
    return render_page(
        "validation.html.j2",
        rows=rows,
        summary=summary(rows),
        colour_of=lambda row: KINDS[kind_of(row)],
        kinds=kinds(rows),
        scatters=scatters(rows),
        ladders=[each for each in drawn if each is not None],
        environment=environment,
    )
