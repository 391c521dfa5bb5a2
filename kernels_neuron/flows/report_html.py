"""The demo's result as one HTML page that needs nothing but itself."""

from collections.abc import Mapping
from typing import Any

from . import figures
from .page import render_page


def render(report: Mapping[str, Any], limits: Mapping[str, Mapping[str, float]]) -> str:
    """report: what report.json holds; limits: {"logits": {dtype: x}, "layers": {dtype: x}}."""
    return render_page("report.html.j2", r=report, limits=limits, figures=_figures(report, limits))


def _figures(report: Mapping[str, Any], limits: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    from markupsafe import Markup

    checked = [row for row in report["modules"] if row["rel_l2"]]
    by_dtype = {dtype: [row["rel_l2"][dtype] for row in checked] for dtype in report["dtypes"]}
    layers = [row["layer"] for row in report["speedups"]]
    speedups = [row["speedup"] or 0.0 for row in report["speedups"]]
    engines = report["engines_us"]
    drawn = {
        "digits": figures.digits(report["samples"]),
        "errors": figures.errors([row["path"] for row in checked], by_dtype, limits["layers"]),
        "speedups": figures.bars(layers, speedups, "baseline_us / body_us", "{:.2f}", line_at=1.0),
        "engines": figures.bars(list(engines), list(engines.values()), "estimated busy us of one batch", "{:.1f}"),
    }
    return {name: Markup(svg) for name, svg in drawn.items()}  # our own drawings, not to be escaped
