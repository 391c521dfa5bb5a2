"""The demo report's pictures, as SVG text: digits with both answers, errors by layer, time by engine, speedups."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY, DARK = "#9aa5b1", "#1f4e79"
COLUMNS = 8


def digits(samples: Sequence[Mapping[str, Any]]) -> str:
    """Each sample: "pixels" [8][8], "label", "before", "after" {dtype: digit}; a wrong answer is marked with an x."""

    def draw(figure: "Figure") -> None:
        axes = figure.subplots(_rows(samples), COLUMNS, squeeze=False).reshape(-1)
        for axis in axes:
            axis.set_axis_off()
        for axis, sample in zip(axes, samples, strict=False):
            axis.imshow(sample["pixels"], cmap="gray_r", vmin=0, vmax=16)
            answers = {sample["before"], *sample["after"].values()}
            mark = "" if answers == {sample["label"]} else "  x"
            after = "/".join(str(digit) for digit in dict.fromkeys(sample["after"].values()))
            axis.set_title(f"{sample['label']}: {sample['before']} | {after}{mark}", fontsize=9)

    return _svg(draw, width=9.0, height=1.35 * _rows(samples))


def errors(paths: Sequence[str], by_dtype: Mapping[str, Sequence[float]], limits: Mapping[str, float]) -> str:
    """Relative L2 of each module's output on a logarithmic axis, one marker a dtype, its limit as a dashed line."""

    def draw(figure: "Figure") -> None:
        axis = figure.subplots()
        for (dtype, values), marker, shade in zip(by_dtype.items(), "os^", (DARK, GREY, "black"), strict=False):
            axis.plot([max(value, 1e-9) for value in values], range(len(paths)), marker, color=shade, label=dtype)
            axis.axvline(limits[dtype], color=shade, linestyle="--", linewidth=1, label=f"limit {dtype}")
        axis.set_xscale("log")
        axis.set_xlabel("relative L2 error of the module's output")
        axis.grid(axis="x", linewidth=0.3)
        axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        _name_rows(axis, paths)

    return _svg(draw, width=9.0, height=1.2 + 0.24 * len(paths))


def bars(names: Sequence[str], values: Sequence[float], label: str, number: str, line_at: float | None = None) -> str:
    """Horizontal bars with their values written out by the format `number`; a dashed line where `line_at` says."""

    def draw(figure: "Figure") -> None:
        axis = figure.subplots()
        drawn = axis.barh(range(len(names)), values, color=GREY, edgecolor=DARK)
        axis.bar_label(drawn, labels=[number.format(value) for value in values], padding=3, fontsize=8)
        axis.margins(x=0.15)
        axis.set_xlabel(label)
        if line_at is not None:
            axis.axvline(line_at, color=DARK, linestyle="--", linewidth=1)
        _name_rows(axis, names)

    return _svg(draw, width=9.0, height=1.0 + 0.26 * len(names))


def _name_rows(axis: "Axes", names: Sequence[str]) -> None:
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.invert_yaxis()


def _rows(samples: Sequence[object]) -> int:
    return max(1, math.ceil(len(samples) / COLUMNS))


def _svg(draw: Callable[["Figure"], None], *, width: float, height: float) -> str:
    """The drawing as an <svg> element, the same bytes for the same data."""
    import matplotlib
    from matplotlib.figure import Figure

    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "kernels-neuron", "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
