"""Integer expressions over named sizes, as spec.toml writes them: "(H//P)*(W//P) + 1", "tile_n * 4 <= 2048"."""

import ast
import itertools
import operator
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

Result = TypeVar("Result")

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type, Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def evaluate(expression: int | str, sizes: Mapping[str, int]) -> int:
    """The integer a shape expression such as "(H//P)*(W//P) + 1" stands for. Raises ValueError on anything else."""
    if isinstance(expression, int):
        return expression
    return _guarded(expression, lambda node: _value(node, sizes))


def holds(expression: str, sizes: Mapping[str, int]) -> bool:
    """Whether a comparison such as "tile_m * tile_n <= 65536" is true. Raises ValueError on anything else."""
    return _guarded(expression, lambda node: _truth(node, sizes))


def names_in(expression: str) -> list[str]:
    """The names an expression uses, each once."""
    return list(dict.fromkeys(re.findall(r"[A-Za-z_]\w*", expression)))


def _guarded(expression: str, read: Callable[[ast.expr], Result]) -> Result:
    try:
        return read(ast.parse(expression, mode="eval").body)
    except SyntaxError:
        raise ValueError(f"{expression!r} is not an expression") from None
    except ZeroDivisionError:
        raise ValueError(f"{expression!r} divides by zero") from None


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in sizes:
            raise ValueError(f"no size is given for {node.id}")
        return sizes[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, sizes), _value(node.right, sizes))
    raise ValueError(f"{ast.unparse(node)!r} is none of letters, integers, + - * // % and brackets")


def _truth(node: ast.expr, sizes: Mapping[str, int]) -> bool:
    if not isinstance(node, ast.Compare) or any(type(op) not in _COMPARISONS for op in node.ops):
        raise ValueError(f"{ast.unparse(node)!r} is no comparison by < <= > >= == !=")
    values = [_value(each, sizes) for each in (node.left, *node.comparators)]
    return all(_COMPARISONS[type(op)](*pair) for op, pair in zip(node.ops, itertools.pairwise(values), strict=True))
