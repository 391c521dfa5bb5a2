"""What the Hub, upstream `kernels` and our own promises demand of a kernel's sources; each rule is one function."""

import ast
import sys
from collections.abc import Iterator, Mapping

from kernels_neuron.tables import unknown

from .closure import GENERATED, imports_of, resolve

MAY_IMPORT = {"nki", "torch"}
OLDEST_PYTHON = (3, 9)
LAYER_MEMBERS = ("forward", "has_backward", "can_torch_compile")
PREFIX = "add_op_namespace_prefix"
# functions whose first argument is the name of an operator
REGISTERS = {
    "custom_op", "triton_op", "nki_op", "define_op", "define", "impl",
    "register_fake", "register_kernel", "register_autograd", "register_vmap", "register_torch_dispatch",
}  # fmt: skip


def parse(file: str, source: bytes, problems: list[str]) -> ast.Module | None:
    """The syntax tree of a file as Python 3.9 reads it; a problem and None where it cannot."""
    try:
        return ast.parse(source, filename=file, feature_version=OLDEST_PYTHON)
    except SyntaxError as error:
        problems.append(f"{file}:{error.lineno}: not Python 3.9: {error.msg}")
    except ValueError as error:
        problems.append(f"{file}: not Python: {error}")
    return None


def source_problems(kernel: str, trees: Mapping[str, ast.Module]) -> list[str]:
    """All problems of the sources of one kernel, each starting with file and line.

    trees  the files to look at, by path relative to nki_src or to a variant
    """
    problems: list[str] = []
    for file, tree in sorted(trees.items()):
        if file in GENERATED:
            continue
        for rule in (_imports, _annotations, _operator_names):
            problems += [f"{file}:{line}: {text}" for line, text in rule(kernel, file, tree, trees)]
        if file == f"{kernel}/layers.py":
            problems += [f"{file}:{line}: {text}" for line, text in _layers(tree)]
    return problems


Problems = Iterator[tuple[int, str]]


def _imports(kernel: str, file: str, tree: ast.Module, trees: Mapping[str, ast.Module]) -> Problems:
    """Absolute: nki, torch, the standard library. Relative: what ships with the kernel."""
    known = {**trees, **dict.fromkeys(GENERATED)}
    for statement in imports_of(file, tree):
        root = statement.module.split(".")[0]
        if statement.level:
            if not resolve(statement, known):
                outside = statement.level > 1 and root not in ("", kernel, "common")
                yield (
                    statement.line,
                    f"{statement} {_OUTSIDE if outside else 'names no module that ships with the kernel'}",
                )
        elif root in (kernel, "common", "nki_src"):
            yield statement.line, f"{statement} has to be relative: a variant is loaded under another name"
        elif root not in MAY_IMPORT and root not in sys.stdlib_module_names:
            yield statement.line, f"{statement}: a kernel may import nki, torch, the standard library and what ships"
        elif root == "torch" and file == f"{kernel}/kernel.py":
            yield statement.line, f"{statement}: kernel.py runs on the device and imports nki only"


_OUTSIDE = "reaches out of the kernel's folder; what two kernels share belongs in common/"


def _annotations(kernel: str, file: str, tree: ast.Module, trees: Mapping[str, ast.Module]) -> Problems:
    """`X | None` parses in Python 3.9 and fails when it is evaluated."""
    for node in ast.walk(tree):
        spots: list[ast.expr | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            spots.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            spots.append(node.annotation)
        for spot in spots:
            for part in ast.walk(spot) if spot is not None else ():
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr):
                    yield part.lineno, f"{ast.unparse(part)} needs Python 3.10, write Optional or Union"
                    break


def _operator_names(kernel: str, file: str, tree: ast.Module, trees: Mapping[str, ast.Module]) -> Problems:
    """An operator's name is a call of add_op_namespace_prefix, so that two builds do not share one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name, first = _called(node), node.args[0]
        if name == "Library" and isinstance(first, ast.Constant):
            yield node.lineno, f"Library({first.value!r}) has a fixed namespace; use ._ops.define_op"
        elif name in REGISTERS and isinstance(first, ast.Constant | ast.JoinedStr):
            yield node.lineno, f"{name}({ast.unparse(first)}, ...) has a fixed name; write {PREFIX}(...)"


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _layers(tree: ast.Module) -> Problems:
    """A layer takes all its state from the module it replaces: forward and the two flags, nothing else."""
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        for member in node.body:
            for name in _bound(member):
                if name not in LAYER_MEMBERS:
                    yield member.lineno, f"layer {node.name} has a member {name}; {_ONLY}"
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _is_self(inner.value):
                yield inner.lineno, f"layer {node.name} sets self.{inner.attr}, and a layer keeps no state"


_ONLY = f"a layer may have {', '.join(LAYER_MEMBERS)}"


def _bound(member: ast.stmt) -> list[str]:
    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [member.name]
    if isinstance(member, ast.Assign):
        return [target.id for target in member.targets if isinstance(target, ast.Name)]
    if isinstance(member, ast.AnnAssign) and member.value is not None and isinstance(member.target, ast.Name):
        return [member.target.id]
    return []


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def exported(tree: ast.Module) -> list[str] | None:
    """The names in a package's `__all__`, or None where it has none that can be read off the source."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                return None
            return [str(name) for name in value] if isinstance(value, list | tuple) else None
    return None


def export_problems(kernel: str, entry: str, trees: Mapping[str, ast.Module]) -> list[str]:
    """What is wrong with the public names of a kernel folder."""
    file = f"{kernel}/__init__.py"
    if file not in trees:
        return [f"{file}: is missing, and it is the kernel's public face"]
    names = exported(trees[file])
    if names is None:
        return [f"{file}: has no __all__ = [...] of plain strings"]
    problems = (
        [] if entry in names else [f"{file}: __all__ leaves out {entry!r}, the entry: {unknown('name', entry, names)}"]
    )
    if "layers" in names and f"{kernel}/layers.py" not in trees:
        problems.append(f"{file}: __all__ names layers, and there is no layers.py")
    return problems
