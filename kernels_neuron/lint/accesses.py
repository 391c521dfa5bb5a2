"""What instructions read and write, by the expressions a kernel passes them."""

import ast
from dataclasses import dataclass

from . import api
from .source import RETURNS_TILE, Source, short

# operands an instruction writes; all others are read
_WRITTEN = {"dst", "dsts", "val_dst", "idx_dst", "reduce_res", "dst_scale", "dst_idx"}


@dataclass(frozen=True)
class Access:
    """One call of nisa, or of a function of nl on tiles: its operands by name, as expressions.

    The target of `tile[..] = nl.load(x)` counts as the operand dst.
    """

    call: ast.Call
    name: str
    operands: dict[str, ast.expr]

    @property
    def writes(self) -> list[ast.expr]:
        """The operands that are written."""
        return [value for name, value in self.operands.items() if name in _WRITTEN]

    @property
    def reads(self) -> list[ast.expr]:
        """The operands that are read, flags and numbers among them."""
        return [value for name, value in self.operands.items() if name not in _WRITTEN]


def access(source: Source, node: ast.AST) -> Access | None:
    """The access a call makes; None where it is none, or its operands cannot be told apart."""
    dotted = source.called(node)
    if dotted is None or not isinstance(node, ast.Call):
        return None
    name = short(dotted)
    on_tiles = dotted in RETURNS_TILE or name == "nl.store"
    signature = api.signature(name) if name.startswith("nisa.") or on_tiles else None
    if (signature is None and not on_tiles) or any(isinstance(each, ast.Starred) for each in node.args):
        return None
    parameters = list(signature.parameters) if signature else ["x", "y"]
    operands = dict(zip(parameters, node.args, strict=False))
    operands |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    parent = source.parents[node]
    if on_tiles and isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Subscript):
        operands["dst"] = parent.targets[0]
    return Access(node, name, operands)


def accesses(source: Source, function: ast.AST) -> list[Access]:
    """The accesses of a function's own body, in the order of its text."""
    found = (access(source, node) for node in source.inside(function))
    return [each for each in found if each is not None]
