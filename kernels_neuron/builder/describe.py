"""api.json: what a built variant promises, read off the sources that ship in it and off spec.toml."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from kernels_neuron.spec import Spec

from .closure import Import, imports_of, resolve
from .rules import exported

# upstream's meaning of a layer that leaves a flag out
_FLAGS = {"has_backward": True, "can_torch_compile": False}


def describe(kernel: str, spec: Spec, trees: Mapping[str, ast.Module], backend: str) -> dict[str, Any]:
    """The API description of one variant (kernels_neuron.api says what counts as a change of it).

    trees    the syntax trees of the kernel's files and of common/
    backend  what get_backend() returns in this variant
    """
    names = exported(trees[f"{kernel}/__init__.py"]) or []
    functions = exported_functions(kernel, names, trees)
    layers = layer_classes(trees[f"{kernel}/layers.py"]) if "layers" in names else {}
    return {
        "kind": spec.kind,
        "names": sorted(names),
        "functions": {name: {"parameters": _parameters(node.args)} for name, node in functions.items()},
        "layers": {name: _layer(node, backend) for name, node in layers.items()},
        "dtypes": list(spec.dtypes),
        "inputs": {
            given.name: {"shape": list(given.shape), "dtypes": list(given.dtypes), "optional": given.optional}
            for given in spec.inputs.values()
        },
        "limits": {letter: list(ends) for letter, ends in spec.limits.items()},
        "without_copy": {name: list(layouts) for name, layouts in spec.strides.items()},
        "archs": list(spec.archs),
        "nki": list(spec.nki),
        "tolerances": {
            dtype: {"text": str(tolerance.rule), **asdict(tolerance.rule)}
            for dtype, tolerance in spec.tolerances.items()
        },
        "rounding": spec.rounding,
    }


def exported_functions(kernel: str, names: list[str], trees: Mapping[str, ast.Module]) -> dict[str, ast.FunctionDef]:
    """The functions among the exported names, found where __init__.py imports them from or defines them."""
    start = f"{kernel}/__init__.py"
    places = {name: [start] for name in names}
    for statement in imports_of(start, trees[start]):
        for name in statement.names:
            if name in places:
                places[name] += resolve(Import(start, 0, statement.level, statement.module, (name,)), trees)
    found: dict[str, ast.FunctionDef] = {}
    for name in names:
        for file in places[name]:
            for node in trees[file].body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    found[name] = node
    return found


def layer_classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """The public classes of a layers.py that have a forward."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    return {node.name: node for node in classes if forward_of(node) is not None}


def forward_of(node: ast.ClassDef) -> ast.FunctionDef | None:
    """A layer's forward, or None."""
    return next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "forward"), None)


def _layer(node: ast.ClassDef, backend: str) -> dict[str, Any]:
    forward = forward_of(node)
    assert forward is not None
    return {"parameters": _parameters(forward.args), **{flag: _flag(node, flag, backend) for flag in _FLAGS}}


def _flag(node: ast.ClassDef, flag: str, backend: str) -> bool | str:
    """The value a flag has in this variant; its source text where that cannot be told without running it."""
    for member in node.body:
        target = member.targets[0] if isinstance(member, ast.Assign) else getattr(member, "target", None)
        value = getattr(member, "value", None)
        if isinstance(target, ast.Name) and target.id == flag and value is not None:
            return _truth(value, backend)
    return _FLAGS[flag]


def _truth(value: ast.expr, backend: str) -> bool | str:
    if isinstance(value, ast.Constant) and isinstance(value.value, bool):
        return value.value
    if isinstance(value, ast.Compare) and len(value.ops) == 1 and ast.unparse(value.left) == "get_backend()":
        right = value.comparators[0]
        if isinstance(right, ast.Constant) and isinstance(value.ops[0], ast.Eq | ast.NotEq):
            return (right.value == backend) is isinstance(value.ops[0], ast.Eq)
    return ast.unparse(value)


def _parameters(arguments: ast.arguments) -> list[dict[str, str]]:
    return list(_each_parameter(arguments))


def _each_parameter(arguments: ast.arguments) -> Iterator[dict[str, str]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = len(positional) - len(arguments.defaults)
    for i, arg in enumerate(positional):
        kind = "positional only" if i < len(arguments.posonlyargs) else "positional"
        yield _parameter(arg, kind, arguments.defaults[i - missing] if i >= missing else None)
    if arguments.vararg:
        yield _parameter(arguments.vararg, "variable positional", None)
    for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(arg, "keyword", default)
    if arguments.kwarg:
        yield _parameter(arguments.kwarg, "variable keyword", None)


def _parameter(arg: ast.arg, kind: str, default: ast.expr | None) -> dict[str, str]:
    return {"name": arg.arg, "kind": kind, **({} if default is None else {"default": ast.unparse(default)})}
