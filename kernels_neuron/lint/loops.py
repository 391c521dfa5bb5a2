"""NKI3xx: what the turns of a loop share, and loops that run on the device."""

import ast
from collections.abc import Iterator

from .accesses import Access, access, accesses
from .rule import Hit, rule
from .source import Loop, Source, base_name, names_in, short
from .target import Target

Hits = Iterator[Hit]


@rule(
    "NKI302", "sum kept in SBUF from turn to turn", "note",
    why="each turn waits for the one before, and in-place sums outside PSUM have differed between the vendor's "
    "simulator and the device [public reports]",
    fix="let nc_matmul accumulate in PSUM, or give each turn a tile and add them at the end",
)  # fmt: skip
def in_place_sum(source: Source, target: Target) -> Hits:
    """A sum, a product or the like in a loop that reads and writes a tile from before the loop, PSUM apart."""
    for function in source.kernel_code:
        tiles = source.tiles(function)
        for node in source.inside(function):
            for loop in source.loops_of(node)[-1:]:
                name = _carries(source, node, loop, tiles) if _is_associative(source, node) else None
                if name:
                    yield Hit(node, f"{name}, allocated before the loop at line {loop.lineno}, is updated in place")


@rule(
    "NKI303", "buffer refilled by every turn of a loop", "note",
    why="a tile from outside the loop is one address: a turn waits until the one before has read it, where a tile "
    "allocated inside is its own in every turn [migration guide]",
    fix="allocate it inside the loop",
)  # fmt: skip
def refilled_buffer(source: Source, target: Target) -> Hits:
    """A tile allocated before a loop, wholly overwritten by a load at the start of each turn and read later in it."""
    for function in source.kernel_code:
        tiles = source.tiles(function)
        everything = accesses(source, function)
        for loop in [node for node in source.inside(function) if isinstance(node, Loop)]:
            inside = [each for each in everything if _within(source, each.call, loop)]
            for name, call in tiles.items():
                before = call.lineno < loop.lineno and not _within(source, call, loop)
                if before and _refills(source, loop, name, inside):
                    where = f"the loop at line {loop.lineno}"
                    yield Hit(loop, f"{name}, allocated at line {call.lineno}, is loaded anew in every turn of {where}")


def _refills(source: Source, loop: ast.AST, name: str, inside: list[Access]) -> bool:
    uses = [each for each in inside if name in {base_name(value) for value in each.operands.values()}]
    if len(uses) < 2 or not uses[0].name.endswith(("dma_copy", "dma_transpose", "dma_compute", "nl.load")):
        return False
    first = next((value for value in uses[0].writes if base_name(value) == name), None)
    return (
        first is not None
        and next(iter(source.loops_of(uses[0].call)), None) is loop  # an inner loop is reported itself
        and not _varies(source, first, loop)
        and any(name in {base_name(value) for value in each.reads} for each in uses[1:])
    )


def _varies(source: Source, view: ast.expr, loop: Loop) -> bool:
    """Whether a view may be another part of its tile in each turn: its index names something the loop binds."""
    index = names_in(view) - {base_name(view)}
    return bool(index & source.stores(loop))


def _within(source: Source, node: ast.AST, around: ast.AST) -> bool:
    return any(each is around for each in source.all_around(node))


@rule(
    "NKI304", "turns of a parallel loop that depend on each other", "error", until="0.3",
    why="affine_range promises that no turn needs another one, sums and products apart, and the compiler reorders "
    "them: the result is wrong on the device [SDK 2.26 documentation, affine_range]",
    fix="use nl.sequential_range",
)  # fmt: skip
def carried_in_parallel(source: Source, target: Target) -> Hits:
    """A tile that a turn of nl.affine_range reads as the turn before left it, other than to add to it."""
    for node, name, loop in _carried(source):
        if not _is_associative(source, node):
            yield Hit(node, f"{name} is carried from turn to turn of the affine_range at line {loop.lineno}")


@rule(
    "NKI305", "affine_range around a sum kept in SBUF", "warning",
    why="before 0.3 only sums and products may be carried from turn to turn, and people report wrong ones; from 0.3 on "
    "affine_range is a plain range and the name promises what does not hold [migration guide, public reports]",
    fix="use range, or nl.sequential_range before 0.3",
)  # fmt: skip
def sum_in_affine_range(source: Source, target: Target) -> Hits:
    """A tile that a turn of nl.affine_range adds to; from 0.3 on, one that it updates in any way."""
    for node, name, loop in _carried(source):
        if target.version >= (0, 3) or _is_associative(source, node):
            yield Hit(node, f"{name} is carried from turn to turn of the affine_range at line {loop.lineno}")


_ASSOCIATIVE = {
    f"nki.language.{name}" for name in ("add", "multiply", "maximum", "minimum", "bitwise_or", "bitwise_and")
}


def _is_associative(source: Source, node: ast.AST) -> bool:
    """Whether the order of turns does not matter to an update: sums, products, the largest, the smallest."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add | ast.Mult)
    value = node.value if isinstance(node, ast.Assign) else node
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Add | ast.Mult)
    if source.called(value) in _ASSOCIATIVE:
        return True
    found = access(source, value)
    ops = [found.operands[name] for name in ("op", "op0", "op1") if name in found.operands] if found else []
    return bool(ops) and all(source.nki_name(op) in _ASSOCIATIVE for op in ops)


def _carried(source: Source) -> Iterator[tuple[ast.AST, str, ast.For]]:
    for function in source.kernel_code:
        tiles = source.allocations(function)
        for loop in [node for node in source.inside(function) if isinstance(node, ast.For)]:
            if source.called(loop.iter) != "nki.language.affine_range":
                continue
            seen: set[str] = set()
            for node in ast.walk(loop):
                name = _carries(source, node, loop, tiles)
                if name and name not in seen:
                    seen.add(name)
                    yield node, name, loop


def _carries(source: Source, node: ast.AST, loop: Loop, tiles: dict[str, ast.Call]) -> str | None:
    """The tile from before the loop that a statement updates in place, sums that matmuls make in PSUM apart."""
    written: list[ast.expr] = []
    reads: list[ast.expr] = []
    if isinstance(node, ast.AugAssign):
        written, reads = [node.target], [node.target]
    elif isinstance(node, ast.Assign):
        written, reads = node.targets, [each for each in ast.walk(node.value) if isinstance(each, ast.expr)]
    elif (found := access(source, node)) is not None:
        written, reads = found.writes, found.reads
    texts = {ast.unparse(each) for each in reads if isinstance(each, ast.Name | ast.Subscript)}
    for each in written:
        name = base_name(each)
        call = tiles.get(name or "")
        if call is None or _within(source, call, loop) or _varies(source, each, loop):
            continue
        if source.buffer_of(call) != "nl.psum" and ast.unparse(each) in texts:
            return name
    return None


@rule(
    "NKI310", "loops on the device inside each other", "warning", since="0.2",
    why="nested dynamic_range with values carried between turns fails with `Could not find register`; nothing says "
    "that fori_loop and while_loop are free of it [release notes 0.4]",
    fix="unroll the inner loop with range",
)  # fmt: skip
def nested_dynamic_loops(source: Source, target: Target) -> Hits:
    """nl.dynamic_range inside nl.dynamic_range, nl.fori_loop or nl.while_loop in the body of another."""
    bodies: dict[str, int] = {}
    for node in source.kernel_nodes:
        if isinstance(node, ast.Call) and source.called(node) in _DEVICE_LOOPS:
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            bodies |= {each.id: node.lineno for each in arguments if isinstance(each, ast.Name)}
    for node in source.kernel_nodes:
        outer: int | None = None
        if isinstance(node, ast.For) and source.called(node.iter) == "nki.language.dynamic_range":
            around = [each for each in source.loops_of(node) if isinstance(each, ast.For)]
            lines = [each.lineno for each in around if source.called(each.iter) == "nki.language.dynamic_range"]
            outer = next(iter(lines), None)
        elif source.called(node) in _DEVICE_LOOPS:
            owner = source.function_of(node)
            outer = bodies.get(owner.name) if isinstance(owner, ast.FunctionDef) else None
        if outer is not None:
            yield Hit(node, f"the dynamic loop runs inside the one at line {outer}")


_DEVICE_LOOPS = ("nki.language.fori_loop", "nki.language.while_loop")


@rule(
    "NKI311", "loop on the device inside no_reorder", "error", since="0.2",
    why="dynamic loops cannot sit inside no_reorder [dynamic loops deep dive]",
    fix="put no_reorder inside the loop's body",
)  # fmt: skip
def dynamic_loop_in_no_reorder(source: Source, target: Target) -> Hits:
    """nl.fori_loop, nl.while_loop or nl.dynamic_range within `with nl.no_reorder()`."""
    loops = {f"nki.language.{name}" for name in ("dynamic_range", "fori_loop", "while_loop")}
    for node in source.kernel_nodes:
        if source.called(node) in loops:
            for each in source.around(node):
                if isinstance(each, ast.With) and any(
                    source.called(item.context_expr) == "nki.language.no_reorder" for item in each.items
                ):
                    yield Hit(node, f"{short(source.called(node) or '')} sits inside nl.no_reorder")
