"""NKI3xx: what flows through buffers and loops in a way that the chip does otherwise than Python."""

import ast
from collections.abc import Iterator

from .accesses import Access, accesses
from .rule import Hit, rule
from .source import Loop, Source, base_name, names_in, short
from .target import BETA, Target

Hits = Iterator[Hit]


@rule(
    "NKI301", "indexing after a reshape of the free axis", "warning",
    why="public reports show the device and the vendor's simulator disagree on an on-chip tile that is reshaped and "
    "then indexed [public reports]",
    fix="allocate the tile in the shape you index, or slice the tile as it is",
)  # fmt: skip
def reshape_then_index(source: Source, target: Target) -> Hits:
    """`tile.reshape(..)[i]`, at once or through a name, of a tile that the function allocated on chip or loaded."""
    for function in source.kernel_code:
        tiles = {*source.tiles(function), *_loaded(source, function)}
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


def _loaded(source: Source, function: ast.AST) -> set[str]:
    bound = source.scopes[function].bound.items()
    return {name for name, values in bound if len(values) == 1 and source.called(values[0]) == "nki.language.load"}


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
            if source.buffer_of(call) != "nl.psum" or _escapes(source, function, name, everything):
                continue
            products = [each for each in everything if "nc_matmul" in each.name and name in map(base_name, each.writes)]
            if products and all(_is_true(each.operands.get("accumulate")) for each in products):
                others = [each for each in everything if each not in products and name in map(base_name, each.writes)]
                after = f", which {short(others[0].name)} wrote" if others else ", which nothing wrote"
                yield Hit(products[0].call, f"nc_matmul adds to {name}{after}; no product overwrites it first")


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _escapes(source: Source, function: ast.AST, name: str, everything: list[Access]) -> bool:
    """Whether a tile is used other than as an operand of an instruction: whoever gets it may write it."""
    operands = {value for each in everything for value in each.operands.values()}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            view = _whole_view(source, node)
            is_stored_into = isinstance(view, ast.Subscript) and isinstance(view.ctx, ast.Store)
            if view is not None and view not in operands and not is_stored_into:
                return True
    return False


def _whole_view(source: Source, node: ast.expr) -> ast.expr | None:
    """The whole of `tile[:n].reshape(..)` around its name; None where only its shape or dtype is read."""
    while True:
        parent = source.parents[node]
        if isinstance(parent, ast.Attribute):
            if parent.attr in ("shape", "dtype", "ndim", "size", "buffer"):
                return None
            node = parent
        elif (isinstance(parent, ast.Subscript) and parent.value is node) or (
            isinstance(parent, ast.Call) and parent.func is node
        ):
            node = parent
        else:
            return node


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
                shown = _values_of(source, part) if _is_mask(source, part) else None
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


def _is_mask(source: Source, node: ast.expr) -> bool:
    """Whether an index picks as many elements as a comparison says: x > 0, or a name for nl.greater(x, 0)."""
    if isinstance(node, ast.Name):
        for scope in source.scopes_of(node):
            if node.id in scope.bound:
                value = scope.bound[node.id][0] if len(scope.bound[node.id]) == 1 else None
                return value is not None and _compares(source, value)
    return _compares(source, node)


def _compares(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Compare) or source.called(node) in _COMPARES


_COMPARES = {
    f"nki.language.{name}" for name in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
}


def _values_of(source: Source, node: ast.expr) -> str | None:
    """The tile whose values an expression is: tile, tile[0, 0], tile > 0; not tile.shape[0]."""
    if isinstance(node, ast.Compare):
        return next(filter(None, (_values_of(source, each) for each in (node.left, *node.comparators))), None)
    if isinstance(node, ast.Call) and source.called(node) in _COMPARES:
        return next(filter(None, (_values_of(source, each) for each in node.args)), None)
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
                shown = None if _is_mask(source, part) else _values_of(source, part)
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
    "NKI314", "tile read that nothing writes", "error", since="0.3",
    why="fresh SBUF and PSUM hold what was there before; the vendor's simulator puts NaN there, and integers look fine "
    "[simulator guide]",
    fix="write the tile first, by dma_copy, memset or an instruction",
)  # fmt: skip
def never_written(source: Source, target: Target) -> Hits:
    """A tile from nl.ndarray that this function alone sees, reads and never writes."""
    for function in source.kernel_code:
        everything = accesses(source, function)
        for name, call in source.tiles(function).items():
            if source.called(call) != "nki.language.ndarray" or _escapes(source, function, name, everything):
                continue
            reads = [each for each in everything if name in map(base_name, each.reads)]
            stored = any(base_name(node) == name for node in _stored_into(source, function))
            if reads and not stored and not any(name in map(base_name, each.writes) for each in everything):
                yield Hit(reads[0].call, f"{reads[0].name} reads {name}, which nothing writes")


def _stored_into(source: Source, function: ast.AST) -> list[ast.expr]:
    """The targets of `tile[..] = x` and `tile[..] += x`."""
    nodes = source.inside(function)
    return [node for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]


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
