"""The text the builder adds to a kernel's sources: __init__.py, _ops.py, _limits.py and the card."""

import ast
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernels_neuron.api import ROUNDINGS
from kernels_neuron.manifest import Kernel
from kernels_neuron.spec import Spec

from .describe import exported_functions, forward_of, layer_classes
from .rules import exported

if TYPE_CHECKING:
    import jinja2


@functools.cache
def _environment() -> "jinja2.Environment":
    import jinja2

    loader = jinja2.PackageLoader("kernels_neuron.builder")
    return jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **values: Any) -> bytes:
    """One of builder/templates with its variables filled in."""
    return _environment().get_template(template).render(values).encode()


def init_text(kernel: Kernel, spec: Spec, trees: Mapping[str, ast.Module]) -> bytes:
    """The variant's __init__.py: it re-exports the public face of the kernel."""
    names = exported(trees[f"{kernel.name}/__init__.py"]) or []
    shown = ["__all__"] + (["layers"] if "layers" in names else [])
    return render("__init__.py.jinja", summary=spec.summary, kernel=kernel.name, names=", ".join(shown))


def ops_text(id: str, backend: str) -> bytes:
    """The variant's _ops.py: how operators are named and registered."""
    return render("_ops.py.jinja", id=id, backend=backend)


def limits_text(spec: Spec) -> bytes:
    """The variant's _limits.py: what ops.py refuses by."""
    return render("_limits.py.jinja", dtypes=spec.dtypes, limits=spec.limits)


def card_text(
    kernel: Kernel, spec: Spec, trees: Mapping[str, ast.Module], provenance: dict[str, Any] | None, has_benchmark: bool
) -> bytes:
    """README.md of the Hub repo: front matter, functions, layers, limits and tolerances."""
    commit = (provenance or {}).get("kernel", {})
    names = exported(trees[f"{kernel.name}/__init__.py"]) or []
    return render(
        "card.md.jinja",
        repo=kernel.repo,
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
        has_benchmark=has_benchmark,
        commit=commit.get("commit"),
        dirty=commit.get("dirty"),
    )


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
