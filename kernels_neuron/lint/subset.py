"""NKI2xx: Python that the parsing front ends before NKI 0.7 reject, or that no document says they take.

From 0.7 on a kernel is specialised by running it as Python, so most of these rules end there.
Source: NKI language guide, migration guide, release notes 0.7.
"""

import ast
from collections.abc import Iterator

from .rule import Hit, rule
from .source import Source, base_name
from .target import Target

Hits = Iterator[Hit]
_UNDOCUMENTED = (
    "the language guide names the Python a kernel may use before 0.7, and this is not among it [language guide]"
)


@rule(
    "NKI201", "`is` in a kernel", "error", since="0.3", until="0.7",
    why="the parser rejects the operators is and is not from 0.3 to 0.6 [migration guide]",
    fix="write == and !=",
)  # fmt: skip
def identity(source: Source, target: Target) -> Hits:
    """`is` and `is not`, other than with None, which public kernels of 0.3 compile with."""
    for node in source.kernel_nodes:
        if isinstance(node, ast.Compare):
            for operator, right in zip(node.ops, node.comparators, strict=True):
                if isinstance(operator, ast.Is | ast.IsNot) and not _is_none(right) and not _is_none(node.left):
                    yield Hit(
                        node, f"`{'is' if isinstance(operator, ast.Is) else 'is not'}` is rejected in kernel code"
                    )


@rule(
    "NKI202", "`is None` in a kernel", "note", since="0.3", until="0.7",
    why="the guide rejects every `is`; public kernels of 0.3 use `is None` all the same [migration guide, nki-library]",
    fix="write == None to be on the guide's side",
)  # fmt: skip
def identity_with_none(source: Source, target: Target) -> Hits:
    """`is None` and `is not None`."""
    for node in source.kernel_nodes:
        if not isinstance(node, ast.Compare) or not any(isinstance(each, ast.Is | ast.IsNot) for each in node.ops):
            continue
        if any(map(_is_none, (node.left, *node.comparators))):
            yield Hit(node, "`is` with None is against the guide before NKI 0.7")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


@rule(
    "NKI203", "keyword-only parameter of a kernel", "error", since="0.3", until="0.7",
    why="a bare * in the signature of a kernel is rejected [migration guide]",
    fix="take the * out; callers may still pass keywords",
)  # fmt: skip
def keyword_only(source: Source, target: Target) -> Hits:
    """`def kernel(x, *, eps)`."""
    for function in source.entries:
        for each in function.args.kwonlyargs:
            yield Hit(each, f"{function.name} takes {each.arg} by keyword only")


@rule(
    "NKI204", "list as an argument of a kernel", "error", since="0.3", until="0.7",
    why="lists are rejected as arguments of a launched kernel [migration guide]",
    fix="take a tuple",
)  # fmt: skip
def list_argument(source: Source, target: Target) -> Hits:
    """A parameter of a kernel that is annotated as a list, or defaults to one."""
    for function in source.entries:
        arguments = function.args
        plain = [*arguments.posonlyargs, *arguments.args]
        defaults = dict(zip([each.arg for each in reversed(plain)], reversed(arguments.defaults), strict=False))
        for each in plain:
            kind = each.annotation.value if isinstance(each.annotation, ast.Subscript) else each.annotation
            is_list = isinstance(kind, ast.Name | ast.Attribute) and getattr(kind, "id", getattr(kind, "attr", "")) in (
                "list",
                "List",
            )
            if is_list or isinstance(defaults.get(each.arg), ast.List):
                yield Hit(each, f"{function.name} takes {each.arg} as a list")


@rule(
    "NKI205", "try in a kernel", "warning", until="0.7", since="0.1",
    why=_UNDOCUMENTED, fix="check before, with if or assert",
)  # fmt: skip
def try_statement(source: Source, target: Target) -> Hits:
    """try, except, raise from within."""
    yield from _each(source, ast.Try | ast.TryStar, "try is outside the documented subset")


@rule(
    "NKI206", "generator in a kernel", "warning", until="0.7", since="0.1",
    why=_UNDOCUMENTED, fix="build a list with append",
)  # fmt: skip
def generator(source: Source, target: Target) -> Hits:
    """yield, and generator expressions."""
    kinds = ast.Yield | ast.YieldFrom | ast.GeneratorExp
    yield from _each(source, kinds, "a generator is outside the documented subset")


@rule(
    "NKI207", "lambda in a kernel", "warning", until="0.7", since="0.1",
    why=_UNDOCUMENTED, fix="write a function with a name",
)  # fmt: skip
def lambda_expression(source: Source, target: Target) -> Hits:
    """lambda, whatever it captures."""
    yield from _each(source, ast.Lambda, "lambda is outside the documented subset")


@rule(
    "NKI208", "comprehension in a kernel", "note", until="0.7", since="0.1",
    why="the guide does not name it; public kernels of 0.3 use list comprehensions [language guide, nki-library]",
    fix="build it with append in a for loop",
)  # fmt: skip
def comprehension(source: Source, target: Target) -> Hits:
    """List, set and dict comprehensions."""
    kinds = ast.ListComp | ast.SetComp | ast.DictComp
    yield from _each(source, kinds, "a comprehension is outside the documented subset")


@rule(
    "NKI209", "*args or **kwargs in a kernel", "warning", until="0.7", since="0.1",
    why=_UNDOCUMENTED, fix="name the parameters",
)  # fmt: skip
def star_parameters(source: Source, target: Target) -> Hits:
    """`def f(*args, **kwargs)` in kernel code."""
    for function in source.kernel_code:
        for each in (function.args.vararg, function.args.kwarg):
            if each is not None:
                yield Hit(each, f"{function.name} takes *{each.arg}, which is outside the documented subset")


@rule(
    "NKI210", "recursion in a kernel", "warning", until="0.7", since="0.1",
    why="calls are inlined while the kernel is traced, and no document says that recursion ends [language guide]",
    fix="write a loop",
)  # fmt: skip
def recursion(source: Source, target: Target) -> Hits:
    """A function that calls itself."""
    for function in source.kernel_code:
        if isinstance(source.parents[function], ast.ClassDef):
            continue
        for node in source.inside(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function.name:
                yield Hit(node, f"{function.name} calls itself")


@rule(
    "NKI211", "dict key that is not a string", "warning", until="0.7", since="0.1",
    why="dicts in kernels have string keys only [language guide]",
    fix="use a string, or a list by position",
)  # fmt: skip
def dict_key(source: Source, target: Target) -> Hits:
    """`{1: a}` in kernel code."""
    for node in source.kernel_nodes:
        if isinstance(node, ast.Dict):
            for key in node.keys:
                literal = isinstance(key, ast.Constant) and not isinstance(key.value, str)
                is_tile = isinstance(key, ast.Name | ast.Subscript) and source.is_tile(_peeled(key))
                if key is not None and (literal or is_tile or isinstance(key, ast.Tuple)):
                    yield Hit(key, f"the dict has the key {ast.unparse(key)}")


@rule(
    "NKI212", "class that does not inherit nl.NKIObject", "warning", until="0.7", since="0.1",
    why="classes in kernels inherit nl.NKIObject and nothing else, enums apart [language guide]",
    fix="class Name(nl.NKIObject)",
)  # fmt: skip
def plain_class(source: Source, target: Target) -> Hits:
    """A class of this file without that base, made inside kernel code."""
    classes = {node.name: node for node in source.nodes if isinstance(node, ast.ClassDef)}
    used = {
        node.func.id
        for node in source.kernel_nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes
    }
    for name in sorted(used, key=lambda name: classes[name].lineno):
        bases = classes[name].bases
        known = [source.resolve(base) or "" for base in bases]
        # a base of this file may inherit it in turn
        in_file = any(isinstance(base, ast.Name) and base.id in classes for base in bases)
        others = any(each and not each.endswith(("NKIObject", "Enum", "NamedTuple")) for each in known)
        if not in_file and (not bases or others):
            yield Hit(classes[name], f"{name} is made in a kernel and does not inherit nl.NKIObject")


@rule(
    "NKI213", "numpy or torch in a kernel", "warning", since="0.1",
    why="numpy runs while the kernel is traced, on no value of a tile; before 0.7 the parser may refuse it "
    "[language guide]",
    fix="use nl and nisa on tiles, math on numbers; pass arrays in as arguments or through nl.shared_constant",
)  # fmt: skip
def array_library(source: Source, target: Target) -> Hits:
    """A call of numpy or torch inside kernel code, on a tile or, before 0.7, on anything."""
    for node in source.kernel_nodes:
        if isinstance(node, ast.Call):
            name = source.resolve(node.func) or ""
            on_tile = any(source.is_tile(argument) for argument in node.args)
            if name.startswith(("numpy.", "torch.")) and (on_tile or target.version < (0, 7)):
                yield Hit(node, f"{name} is called inside kernel code")


@rule(
    "NKI214", "branch on the values of a tile", "error", since="0.1",
    why="values of tiles are not known while a kernel is traced; a register there is a TypeError from 0.7 on "
    "[API reference, VirtualRegister]",
    fix="compute both and select with nisa.tensor_copy_predicated or nl.where; loop with nl.while_loop over a register",
)  # fmt: skip
def branch_on_values(source: Source, target: Target) -> Hits:
    """`if`, `while` or a conditional expression that compares a tile, `while` on a tile."""
    for node in source.kernel_nodes:
        if not isinstance(node, ast.If | ast.While | ast.IfExp):
            continue
        for part in ast.walk(node.test):
            values = [part.left, *part.comparators] if isinstance(part, ast.Compare) else []
            if isinstance(part, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in part.ops):
                continue
            if isinstance(node, ast.While) and part is node.test:
                values.append(node.test)
            for value in values:
                is_values = isinstance(value, ast.Name | ast.Subscript) and source.is_tile(_peeled(value))
                if is_values and not any(map(_is_none, values)):
                    yield Hit(node, f"the test looks at the values of {base_name(value)}")
                    break


def _peeled(node: ast.expr) -> ast.expr:
    """The name under subscripts alone: tile[0, 0] is values, tile.shape[0] is not."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node if isinstance(node, ast.Name) else ast.Constant(None)


@rule(
    "NKI215", "text made from a tile", "warning", until="0.7", since="0.1",
    why="an f-string is evaluated while the kernel is traced, before the tile has values [language guide]",
    fix="print values with nl.device_print",
)  # fmt: skip
def tile_in_text(source: Source, target: Target) -> Hits:
    """f"{tile}"."""
    for node in source.kernel_nodes:
        shown = node.value if isinstance(node, ast.FormattedValue) else None
        if isinstance(shown, ast.Name | ast.Subscript) and source.is_tile(_peeled(shown)):
            yield Hit(shown, f"the text shows {base_name(shown)} before it has values")


def _each(source: Source, kinds: object, message: str) -> Hits:
    for node in source.kernel_nodes:
        if isinstance(node, kinds):  # type: ignore[arg-type]
            yield Hit(node, message)
