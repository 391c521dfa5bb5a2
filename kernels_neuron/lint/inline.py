"""Which function of a file a call runs, and what its parameters are then bound to."""

import ast
from typing import Any

from .source import Source


def helper(source: Source, node: ast.Call) -> ast.FunctionDef | None:
    """The function at the top of the file that a call by its name runs; None where that is not certain."""
    if not isinstance(node.func, ast.Name):
        return None
    name = node.func.id
    *inner, module = source.scopes_of(node)
    if any(name in scope.bound or name in scope.imports for scope in inner) or module.bound.get(name) != [None]:
        return None
    found = [each for each in source.tree.body if isinstance(each, ast.FunctionDef) and each.name == name]
    return found[0] if len(found) == 1 else None


def bound(function: ast.FunctionDef, arguments: list[Any], keywords: dict[str, Any]) -> dict[str, Any] | None:
    """Parameter -> value; a default that is no constant is left out. None where the call does not fit."""
    given = function.args
    if given.vararg or given.kwarg or given.posonlyargs or len(arguments) > len(given.args):
        return None
    names = [each.arg for each in (*given.args, *given.kwonlyargs)]
    defaults = dict(zip(names[len(given.args) - len(given.defaults) :], given.defaults, strict=False))
    defaults |= {
        each.arg: value for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None
    }
    values = {name: value.value for name, value in defaults.items() if isinstance(value, ast.Constant)}
    values |= dict(zip(names, arguments, strict=False)) | keywords
    if not set(values) <= set(names) or set(names) - set(values) - set(defaults):
        return None
    return values
