"""The card: README.md of a Hub repo, rendered from the kernel's sources, its spec and the results of its benchmarks."""

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels_neuron.api import ROUNDINGS
from kernels_neuron.errors import UsageError
from kernels_neuron.manifest import Kernel
from kernels_neuron.spec import Spec

from .describe import exported_functions, forward_of, layer_classes
from .generate import render
from .rules import exported

RESULTS = "bench/results"
_CASE = ("workload", "dtype", "arch", "lnc")


def read_results(root: Path) -> list[dict[str, Any]]:
    """The rows of every file in bench/results/ that `kernels-neuron bench --save` wrote, each with file and commit.

    Such a row is a number's only way onto a card: of two for the same case the file later by name counts. Other JSON
    files there are passed over; refuses one that cannot be read.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in sorted((root / RESULTS).glob("*.json")):
        try:
            found = json.loads(path.read_bytes())
        except ValueError as error:
            raise UsageError(f"{path} is not JSON: {error}", hint="write it again, or remove it") from None
        if not isinstance(found, dict) or not found.get("commit"):
            continue
        source = f"{RESULTS}/{path.name} at {found['commit'][:7]}" + (" and changes" if found.get("dirty") else "")
        for row in found.get("rows", ()):
            if {"kernel", "estimated_us", *_CASE} <= set(row):
                rows[tuple(row[key] for key in ("kernel", *_CASE))] = {**row, "source": source}
    return list(rows.values())


def card_text(
    kernel: Kernel,
    spec: Spec,
    trees: Mapping[str, ast.Module],
    provenance: dict[str, Any] | None,
    has_benchmark: bool,
    results: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """README.md of the Hub repo: front matter, functions, layers, limits, tolerances; estimated and measured times.

    results  rows of read_results, of which those of this kernel count
    """
    commit = (provenance or {}).get("kernel", {})
    names = exported(trees[f"{kernel.name}/__init__.py"]) or []
    return render(
        "card.md.jinja",
        repo=kernel.repo,
        kernel=kernel.name,
        version=kernel.version,
        license=kernel.license,
        summary=_sentence(spec.summary),
        source=spec.source,
        functions=[_described(node, name) for name, node in exported_functions(kernel.name, names, trees).items()],
        layers=_layers(trees[f"{kernel.name}/layers.py"]) if "layers" in names else [],
        dtypes=spec.dtypes,
        nki=spec.nki,
        archs=spec.archs,
        inputs=[_input(given) for given in spec.inputs.values()],
        limits=spec.limits,
        strides=spec.strides,
        workloads=len(spec.workloads),
        tolerances={dtype: str(tolerance.rule) for dtype, tolerance in spec.tolerances.items()},
        loose=spec.loose,
        rounding=ROUNDINGS[spec.rounding],
        keeps_weights="kept_weights" in names,
        has_benchmark=has_benchmark,
        estimated=(estimated := _times(kernel, results, "estimated_us")),
        unvalidated=sorted({row["arch"] for row in estimated if not row.get("validated")}),
        measured=_times(kernel, results, "measured_us"),
        commit=commit.get("commit"),
        dirty=commit.get("dirty"),
    )


def _times(kernel: Kernel, results: Sequence[Mapping[str, Any]], column: str) -> list[Mapping[str, Any]]:
    """The rows of a kernel with a number in this column."""
    return [row for row in results if row["kernel"] == kernel.name and row.get(column) is not None]


def _sentence(text: str) -> str:
    """Capitalized, unless it opens with a formula."""
    return text[:1].upper() + text[1:] if text[:2].isalpha() else text


def _input(given: Any) -> dict[str, Any]:
    dtypes = ["the kernel's" if name == "$dtype" else name for name in given.dtypes]
    shape = ", ".join(str(axis) for axis in given.shape)
    return {"name": given.name, "shape": f"[{shape}]", "dtype": " or ".join(dtypes), "optional": given.optional}


def _layers(tree: ast.Module) -> list[dict[str, str]]:
    described = []
    for name, node in layer_classes(tree).items():
        forward = forward_of(node)
        if forward is not None:
            described.append(_described(forward, f"{name}.forward") | {"summary": _first_line(node)})
    return described


def _described(node: ast.FunctionDef, name: str) -> dict[str, str]:
    arguments = ast.unparse(_unannotated(node.args))
    return {"signature": f"{name}({arguments})", "summary": _first_line(node)}


def _unannotated(arguments: ast.arguments) -> ast.arguments:
    def plain(arg: ast.arg | None) -> ast.arg | None:
        return None if arg is None else ast.arg(arg.arg)

    return ast.arguments(
        posonlyargs=[ast.arg(arg.arg) for arg in arguments.posonlyargs],
        args=[ast.arg(arg.arg) for arg in arguments.args],
        vararg=plain(arguments.vararg),
        kwonlyargs=[ast.arg(arg.arg) for arg in arguments.kwonlyargs],
        kw_defaults=arguments.kw_defaults,
        kwarg=plain(arguments.kwarg),
        defaults=arguments.defaults,
    )


def _first_line(node: ast.FunctionDef | ast.ClassDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]
