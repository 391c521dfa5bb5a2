"""`kernels-neuron demo`: the main job, end to end, on real images and a real model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import print_json, progress, say, table

if TYPE_CHECKING:
    from kernels_neuron.flows.demo import Demo


def run(
    out: Annotated[Path, typer.Option(help="Folder for report.html and report.json.")] = Path("out"),
    json: Annotated[bool, typer.Option("--json", help="Print report.json instead of a summary.")] = False,
) -> None:
    """Classify real images with kernels that were built, published, fetched and swapped into a trained model.

    Builds nki_src, serves a registry on a free loopback port, publishes to it, fetches from it into an empty cache and
    classifies 360 handwritten digits in the simulator. Uses no network but loopback. Exits 1 when a prediction differs
    or a number is outside its limit.

    \b
    Example:
      kernels-neuron demo --out out
    """
    from kernels_neuron.flows.demo import run_demo

    with progress("demo") as bar:
        steps: set[str] = set()

        def tell(what: str, done: int, of: int) -> None:
            if what not in steps:
                steps.add(what)
                say(what)
            if of:
                bar.describe("images")
                bar.move(done, of)

        demo = run_demo(out, tell=tell)
    if json:
        print_json(demo.report)
    else:
        _print(demo)
    if not demo.ok:
        raise typer.Exit(1)


def _print(demo: "Demo") -> None:
    report = demo.report
    for name, value in _summary(report):
        print(f"{name:<28}{value}")
    print("\nestimated, not measured:")
    table(("layer", "estimated_us", "body_us", "baseline_us", "speedup", "speedup_with_launch"), report["speedups"])
    kept = [row for row in report["modules"] if row["outcome"] == "kept"]
    if kept:
        print("\nkept as they were:")
        table(("path", "kind", "reason"), kept)
    for problem in report["problems"]:
        print(f"\nnot ok: {problem}")
    print(f"\n{demo.html}\n{demo.json}")


def _summary(report: dict[str, Any]) -> list[tuple[str, str]]:
    errors = ", ".join(f"{error:.1e} {dtype}" for dtype, error in report["logits_rel_l2"].items())
    return [
        ("images", str(report["images"])),
        ("accuracy before", f"{report['accuracy_before']:.4f}"),
        ("accuracy after", f"{report['accuracy_after']:.4f}"),
        ("same predictions", "yes" if report["predictions_equal"] else "no"),
        ("logits, relative L2", errors),
        ("FLOPs in kernels", f"{report['flop_share_swapped']:.1%}"),
        ("instructions simulated", f"{report['instructions']:,}"),
    ]
