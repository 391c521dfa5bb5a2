"""The text the builder adds to a kernel's sources: __init__.py, _ops.py, _limits.py."""

import ast
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernels_neuron.manifest import Kernel
from kernels_neuron.spec import Spec

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
