"""NKI3xx: what flows through buffers and loops in a way that the chip does otherwise than Python."""

import ast
from collections.abc import Iterator

from .accesses import Access, access, accesses
from .rule import Hit, rule
from .source import Loop, Source, base_name, names_in, short
from .target import BETA, Target

Hits = Iterator[Hit]
_ON_CHIP = ("nl.sbuf", "nl.psum")


@rule(
    "NKI301", "indexing after a reshape of the free axis", "warning",
    why="public reports show the device and the vendor's simulator disagree on an on-chip tile that is reshaped and "
    "then indexed [public reports]",
    fix="allocate the tile in the shape you index, or slice the tile as it is",
)  # fmt: skip
def reshape_then_index(source: Source, target: Target) -> Hits:
    """`tile.reshape(..)[i]`, at once or through a name, of a tile that the function allocated on chip."""
    for function in source.kernel_code:
        tiles = _on_chip(source, function)
        reshaped = {
            name: base_name(values[0])
            for name, values in source.scopes[function].bound.items()
            if len(values) == 1 and _is_reshape(values[0]) and base_name(values[0]) in tiles
        }
        for node in source.inside(function):
            if isinstance(node, ast.Subscript) and not _takes_all(node.slice):
                inner = node.value
                name = inner.id if isinstance(inner, ast.Name) else None
                tile = reshaped.get(name or "") or (base_name(inner) if _is_reshape(inner) else None)
                if tile in tiles:
                    yield Hit(node, f"a reshaped view of {tile} is indexed")


def _is_reshape(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reshape"


def _takes_all(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        (isinstance(each, ast.Slice) and each.lower is None and each.upper is None and each.step is None)
        or (isinstance(each, ast.Constant) and each.value is ...)
        for each in parts
    )


def _on_chip(source: Source, function: ast.AST) -> dict[str, ast.Call]:
    found = source.allocations(function)
    return {name: call for name, call in found.items() if source.buffer_of(call) in _ON_CHIP}


@rule(
    "NKI302", "sum kept in SBUF from turn to turn", "note",
    why="each turn waits for the one before, and in-place sums outside PSUM have differed between the vendor's "
    "simulator and the device [public reports]",
    fix="let nc_matmul accumulate in PSUM, or give each turn a tile and add them at the end",
)  # fmt: skip
def in_place_sum(source: Source, target: Target) -> Hits:
    """An instruction in a loop that reads and writes a tile from before the loop, PSUM accumulation apart."""
    for function, loop, each in _in_loops(source):
        if each.name in ("nisa.nc_matmul", "nisa.nc_matmul_mx", "nisa.activation", "nisa.activation_reduce"):
            continue
        for written in each.writes:
            name = base_name(written)
            call = _on_chip(source, function).get(name or "")
            if call is None or _within(source, call, loop) or _varies(source, written, loop):
                continue
            if any(ast.unparse(read) == ast.unparse(written) for read in each.reads):
                message = f"{name}, allocated before the loop at line {loop.lineno}, is updated in place"
                yield Hit(each.call, message)


@rule(
    "NKI303", "buffer refilled by every turn of a loop", "note",
    why="a tile from outside the loop is one address: a turn waits until the one before has read it, where a tile "
    "allocated inside is its own in every turn [migration guide]",
    fix="allocate it inside the loop",
)  # fmt: skip
def refilled_buffer(source: Source, target: Target) -> Hits:
    """A tile allocated before a loop, wholly overwritten by a load at the start of each turn and read later in it."""
    for function in source.kernel_code:
        tiles = _on_chip(source, function)
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
    if len(uses) < 2 or not uses[0].name.endswith(("dma_copy", "dma_transpose", "dma_compute")):
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


def _in_loops(source: Source) -> Iterator[tuple[ast.AST, Loop, Access]]:
    for function in source.kernel_code:
        for each in accesses(source, function):
            loops = source.loops_of(each.call)
            if loops:
                yield function, loops[-1], each


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


def _carries(source: Source, node: ast.AST, loop: ast.For, tiles: dict[str, ast.Call]) -> str | None:
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
    "NKI306", "accumulation without a start", "error", since="0.3",
    why="accumulate=True adds to what an earlier matmul left: on bytes that no overwriting matmul wrote, a memset "
    "included, the sum is undefined on every chip [API reference, nc_matmul]",
    fix="leave accumulate out, or pass accumulate=k > 0 so that the first product overwrites",
)  # fmt: skip
def accumulate_start(source: Source, target: Target) -> Hits:
    """A PSUM tile that matmuls of this function write with accumulate=True only."""
    for function in source.kernel_code:
        everything = accesses(source, function)
        for name, call in source.allocations(function).items():
            if source.buffer_of(call) != "nl.psum" or _escapes(source, function, name):
                continue
            products = [each for each in everything if "nc_matmul" in each.name and name in map(base_name, each.writes)]
            if products and all(_is_true(each.operands.get("accumulate")) for each in products):
                others = [each for each in everything if each not in products and name in map(base_name, each.writes)]
                after = f", which {short(others[0].name)} wrote" if others else ", which nothing wrote"
                yield Hit(products[0].call, f"nc_matmul adds to {name}{after}; no product overwrites it first")


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _escapes(source: Source, function: ast.AST, name: str) -> bool:
    """Whether a tile is handed to code that this function does not show."""
    for node in source.inside(function):
        if isinstance(node, ast.Call) and source.nki_name(node.func) is None:
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(name in names_in(each) for each in arguments):
                return True
        if isinstance(node, ast.Assign | ast.Return) and node.value is not None and name in _whole_names(node.value):
            return True
    nested = [each for each in source.functions if source.function_of(each) is function]
    return any(name in names_in(each) for each in nested)


def _whole_names(node: ast.AST) -> set[str]:
    """Names passed on as they are, or as views: x, x[..], (x, y), x.reshape(..)."""
    if isinstance(node, ast.Tuple | ast.List):
        return set().union(*map(_whole_names, node.elts)) if node.elts else set()
    name = base_name(node) if isinstance(node, ast.expr) else None
    return {name} if name else set()


@rule(
    "NKI307", "shape that depends on values", "error", since="0.1",
    why="shapes, bounds and indices are fixed when the kernel is traced, before any tile has values [language guide]",
    fix="compute on the whole tile and select with nl.where or nisa.tensor_copy_predicated; gather rows with "
    ".ap(.., vector_offset=..)",
)  # fmt: skip
def data_dependent_shape(source: Source, target: Target) -> Hits:
    """x[x > 0]; the values of a tile as a bound of a loop or a size."""
    for node in source.kernel_nodes:
        if isinstance(node, ast.Subscript) and source.nki_name(node.value) is None:
            for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
                shown = _values_of(source, part) if isinstance(part, ast.Compare) else None
                if isinstance(part, ast.Compare) and base_name(node.value) in names_in(part):
                    shown = base_name(node.value)
                if shown:
                    yield Hit(node, f"{ast.unparse(node.value)} is indexed by the values of {shown}")
        elif isinstance(node, ast.Call):
            name = source.called(node) or getattr(node.func, "id", "")
            if name == "range" or name in _SIZED:
                for argument in node.args[:3]:
                    for part in argument.elts if isinstance(argument, ast.Tuple | ast.List) else [argument]:
                        shown = _values_of(source, part)
                        if shown:
                            yield Hit(node, f"{short(name)} takes numbers, not the values of {shown}")


_SIZED = {
    *(f"nki.language.{name}" for name in ("ndarray", "zeros", "ones", "full", "ds")),
    *(f"nki.language.{name}_range" for name in ("static", "affine", "sequential")),
}


def _values_of(source: Source, node: ast.expr) -> str | None:
    """The tile whose values an expression is: tile, tile[0, 0], tile > 0; not tile.shape[0]."""
    if isinstance(node, ast.Compare):
        return next(filter(None, (_values_of(source, each) for each in (node.left, *node.comparators))), None)
    plain = node
    while isinstance(plain, ast.Subscript):
        plain = plain.value
    return plain.id if isinstance(plain, ast.Name) and source.is_tile(plain) else None


@rule(
    "NKI313", "index by the values of a tile", "warning", since="0.1",
    why="indexing with a tile went with the Beta; public kernels of 0.3 still have the form in DMA [migration guide]",
    fix="gather with .ap(.., vector_offset=tile, indirect_dim=0), take one row with .ap(.., scalar_offset=tile)",
)  # fmt: skip
def index_by_tile(source: Source, target: Target) -> Hits:
    """x[tile], x[tile[:, 0], :n]."""
    for node in source.kernel_nodes:
        if isinstance(node, ast.Subscript) and source.nki_name(node.value) is None:
            for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
                shown = None if isinstance(part, ast.Compare) else _values_of(source, part)
                if shown:
                    yield Hit(node, f"{ast.unparse(node.value)} is indexed by the tile {shown}")


@rule(
    "NKI308", "store without the bound of its load", "error",
    why="the load stops at the edge of the tensor and the store does not: the last turn writes past the end, or over "
    "rows of another program [public reports]",
    fix="give the store the bound, or the mask, that the load has",
)  # fmt: skip
def unbounded_store(source: Source, target: Target) -> Hits:
    """A loop that loads x[i : min(..)] and stores y[i : i + size]; in the Beta, a load with a mask, a store without."""
    for function in source.kernel_code:
        bounded = _bounded_names(source, function)
        turns: dict[Loop, list[Access]] = {}
        for each in accesses(source, function):
            for loop in source.loops_of(each.call)[:1]:
                turns.setdefault(loop, []).append(each)
        for inside in turns.values():
            if target.version == BETA:
                yield from _unmasked(source, inside)
            loads = [pair for each in inside for pair in _row_slices(each, "src")]
            stopped = {start for start, edge in loads if _mentions_min(edge, bounded)}
            for each in inside:
                for start, edge in _row_slices(each, "dst"):
                    if start in stopped and not _mentions_min(edge, bounded):
                        message = f"the store goes from {start} to {ast.unparse(edge)}, its load stops at a min()"
                        yield Hit(each.call, message)


def _unmasked(source: Source, inside: list[Access]) -> Hits:
    masked = [each for each in inside if each.name == "nl.load" and "mask" in each.operands]
    indices = set().union(*(names_in(each.operands.get("src")) for each in masked)) if masked else set()
    for each in inside:
        if each.name == "nl.store" and "mask" not in each.operands and indices & _index_names(each.operands.get("dst")):
            yield Hit(each.call, "the store has no mask, and the load of this loop has one")


def _index_names(node: ast.expr | None) -> set[str]:
    return names_in(node) - {base_name(node) or ""} if node is not None else set()


def _row_slices(each: Access, operand: str) -> list[tuple[str, ast.expr]]:
    """(start, end) of the first index of a DMA's operand, as text and expression."""
    if each.name not in ("nisa.dma_copy", "nl.load", "nl.store"):
        return []
    view = each.operands.get(operand)
    if not isinstance(view, ast.Subscript):
        return []
    first = view.slice.elts[0] if isinstance(view.slice, ast.Tuple) and view.slice.elts else view.slice
    if isinstance(first, ast.Slice) and first.lower is not None and first.upper is not None:
        return [(ast.unparse(first.lower), first.upper)]
    return []


def _bounded_names(source: Source, function: ast.AST) -> set[str]:
    """Names that may hold a min(): bound to a call, to something made from such a name, or to what is unknown."""
    bound = source.scopes[function].bound
    reads = {name: set().union(*map(names_in, values)) for name, values in bound.items()}
    # an argument may be such a bound, the number of a turn is not
    turns = {name for node in source.inside(function) if isinstance(node, ast.For) for name in names_in(node.target)}
    found = {name for name, values in bound.items() if any(value is None or _calls(value) for value in values)} - turns
    while True:  # size = min(..); end = start + size; and so on
        more = {name for name, names in reads.items() if names & found} - found
        if not more:
            return found
        found |= more


def _mentions_min(node: ast.expr, bounded: set[str]) -> bool:
    return _calls(node) or bool(names_in(node) & bounded)


def _calls(node: ast.expr) -> bool:
    """Whether an expression calls something that may bound it."""
    calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(getattr(each.func, "id", "") not in ("range", "len") for each in calls)


@rule(
    "NKI309", "allocation that nothing uses", "warning",
    why="it takes SBUF or PSUM from the tiles that are used, or is left over from an edit",
    fix="delete it",
)  # fmt: skip
def unused_allocation(source: Source, target: Target) -> Hits:
    """A name bound to a new tile and never read."""
    for function in source.kernel_code:
        read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        for name, call in source.allocations(function).items():
            if name not in read and not name.startswith("_") and name not in source.scopes[function].foreign:
                yield Hit(call, f"{name} is allocated and never used")


@rule(
    "NKI310", "loops on the device inside each other", "warning", since="0.2", until="0.7",
    why="nested dynamic_range with values carried between turns fails with `Could not find register` "
    "[release notes 0.4]",
    fix="unroll the inner loop with range",
)  # fmt: skip
def nested_dynamic_loops(source: Source, target: Target) -> Hits:
    """nl.dynamic_range inside nl.dynamic_range."""
    for node in source.kernel_nodes:
        if isinstance(node, ast.For) and source.called(node.iter) == "nki.language.dynamic_range":
            for outer in source.loops_of(node):
                if isinstance(outer, ast.For) and source.called(outer.iter) == "nki.language.dynamic_range":
                    yield Hit(node, f"the dynamic loop runs inside the one at line {outer.lineno}")
                    break


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


@rule(
    "NKI312", "copy with a bias", "note",
    why="some releases dropped the bias of activation when op is nl.copy: fn(x * scale + bias) holds for every other "
    "function [public reports]",
    fix="check it on the device, or add with nisa.tensor_scalar",
)  # fmt: skip
def copy_with_bias(source: Source, target: Target) -> Hits:
    """nisa.activation(op=nl.copy, bias=..)."""
    for function in source.kernel_code:
        for each in accesses(source, function):
            bias = each.operands.get("bias")
            given = bias is not None and not (isinstance(bias, ast.Constant) and not bias.value)
            if (
                each.name == "nisa.activation"
                and given
                and source.nki_name(each.operands.get("op")) == "nki.language.copy"
            ):
                yield Hit(each.call, "activation with op=nl.copy adds a bias")
