"""What follows from shapes that the text fixes: refused calls, tiles that do not fit, loops too long to unroll."""

import ast
from collections.abc import Iterator

from kernels_neuron.arch import Arch
from kernels_neuron.sim.tensor import NkiTensor

from .accesses import accesses
from .evaluate import Facts, Refusal, facts
from .finding import Finding
from .rule import Hit, rule
from .source import Loop, Source, names_in
from .target import Target

Hits = Iterator[Hit]
MOST_INSTRUCTIONS = 50_000  # assumed: minutes of compilation; the vendor names no limit


def refused_calls(source: Source, target: Target) -> Iterator[Finding]:
    """Calls with known operands that the simulator refuses on every chip of the target, under the simulator's rule."""
    first, *others = [facts(source, target, arch).refusals for arch in target.chips]
    elsewhere = [{(each.node, each.rule) for each in refusals} for refusals in others]
    seen: set[tuple[ast.AST, str]] = set()
    for each in first:
        key = (each.node, each.rule)
        if key not in seen and all(key in refusals for refusals in elsewhere):
            seen.add(key)
            yield _finding(source, each)


def _finding(source: Source, refusal: Refusal) -> Finding:
    line, column = getattr(refusal.node, "lineno", 1), getattr(refusal.node, "col_offset", 0) + 1
    return Finding(source.path, line, column, refusal.rule, "error", refusal.message, refusal.hint)


@rule(
    "NKI320", "tiles that do not fit at one time", "error",
    why="SBUF holds 192, 224 or 256 KiB a partition on trn1, trn2 and trn3, PSUM 8 banks of 2 KiB; what is live at one "
    "time has to fit, and the vendor's simulator does not check [architecture guides]",
    fix="make the tiles smaller, or use one before the next is written",
)  # fmt: skip
def capacity(source: Source, target: Target) -> Hits:
    """Tiles of known shape whose uses overlap and that take more than a partition has."""
    if target.version < (0, 3):
        return  # before, tiles spread over block dims
    for function in source.kernel_code:
        found = [_overfull(source, function, facts(source, target, arch), arch) for arch in target.chips]
        if all(found):
            yield found[0]  # type: ignore[misc]


Life = tuple[int, int, str, NkiTensor, ast.Call]  # first and last line, name, tile, where it is allocated


def _lives(source: Source, function: ast.AST, known: Facts) -> list[Life]:
    return [
        (*span, name, known.tiles[call], call)
        for name, call in source.allocations(function).items()
        if call in known.tiles and (span := _span(source, function, name, call)) is not None
    ]


def _overfull(source: Source, function: ast.AST, known: Facts, arch: Arch) -> Hit | None:
    lives = _lives(source, function, known)
    for buffer, capacity in (("sbuf", arch.sbuf_partition_bytes), ("psum", arch.psum_banks * arch.psum_bank_bytes)):
        inside = [each for each in lives if each[3].buffer.value == buffer]
        moments = [[each for each in inside if each[0] <= start <= each[1]] for start, *_ in inside]
        sums = [sum(_bytes(tile, arch) for _, _, _, tile, _ in live) for live in moments]
        if max(sums, default=0) > capacity:
            fullest = moments[sums.index(max(sums))]
            listed = ", ".join(f"{n} ({_bytes(t, arch):,}, line {c.lineno})" for _, _, n, t, c in fullest)
            live_bytes = f"{max(sums):,} bytes a partition live in {buffer.upper()}, {arch.name} has {capacity:,}"
            return Hit(fullest[-1][4], f"{live_bytes}: {listed}")
    return None


def _bytes(tile: NkiTensor, arch: Arch) -> int:
    """Bytes of a partition; PSUM is given out in banks."""
    nbytes = tile.storage.tile.nbytes
    return nbytes if tile.buffer.value == "sbuf" else -(-nbytes // arch.psum_bank_bytes) * arch.psum_bank_bytes


def _span(source: Source, function: ast.AST, name: str, call: ast.Call) -> tuple[int, int] | None:
    """First and last line that use a tile for sure, to the end of a loop around the use but not the allocation."""
    if any(isinstance(each, Loop | ast.If | ast.Try | ast.IfExp) for each in source.around(call)):
        return None
    lines: list[int] = []
    for each in accesses(source, function):
        if name not in set().union(*map(names_in, each.operands.values())):
            continue
        around = list(source.around(each.call))
        if any(isinstance(outer, ast.If | ast.Try) for outer in around):
            continue
        lines.append(each.call.lineno)
        loops = [outer for outer in around if isinstance(outer, Loop)]
        if loops:
            lines.append(loops[-1].end_lineno or loops[-1].lineno)
    return (min(lines), max(lines)) if lines else None


@rule(
    "NKI322", "PSUM tile that ends inside another bank", "warning", chips=("trn1", "trn2"),
    why="a matmul of these chips writes within one bank of 2 KiB a partition; a tile that is no whole number of banks "
    "crosses a border somewhere [architecture guides]",
    fix="take tiles of at most nl.tile_size.psum_bank_fmax float32 elements",
)  # fmt: skip
def crossed_bank(source: Source, target: Target) -> Hits:
    """A PSUM tile of known shape, wider than a bank and not a multiple of one."""
    arch = target.chips[0]
    for call, tile in facts(source, target, arch).tiles.items():
        nbytes = tile.storage.tile.nbytes
        if tile.buffer.value == "psum" and nbytes > arch.psum_bank_bytes and nbytes % arch.psum_bank_bytes:
            yield Hit(call, f"the tile takes {nbytes:,} bytes a partition, a bank has {arch.psum_bank_bytes:,}")


@rule(
    "NKI323", "tiles pinned onto each other", "error", since="0.3",
    why="both are live at the same address: one overwrites the other, and the vendor's simulator keeps them apart "
    "[simulator guide]",
    fix="move one of them, or use it only after the last use of the other",
)  # fmt: skip
def pinned_overlap(source: Source, target: Target) -> Hits:
    """Two tiles with address= and known shapes that share bytes and whose uses overlap."""
    known = facts(source, target, target.chips[0])
    for function in source.kernel_code:
        lives = [each for each in _lives(source, function, known) if each[3].storage.tile.address is not None]
        for position, (start, end, name, tile, call) in enumerate(lives):
            for other_start, other_end, other_name, other, _ in lives[:position]:
                if start <= other_end and other_start <= end and _shared_bytes(tile, other):
                    shared = _shared_bytes(tile, other)
                    yield Hit(call, f"{name} and {other_name} share {shared} bytes of a partition while both are live")


def _shared_bytes(tile: NkiTensor, other: NkiTensor) -> int:
    one, two = tile.storage.tile, other.storage.tile
    if one.buffer != two.buffer or one.address is None or two.address is None:
        return 0
    (p, byte), (q, other_byte) = one.address, two.address
    if p >= q + two.partitions or q >= p + one.partitions:
        return 0
    return max(0, min(byte + one.nbytes, other_byte + two.nbytes) - max(byte, other_byte))


@rule(
    "NKI321", "more instructions than a compiler likes", "warning",
    why="range is unrolled while the kernel is traced: compile time and the size of the program grow with every turn "
    "[language guide]",
    fix="make the tiles larger, or loop on the device with nl.fori_loop",
)  # fmt: skip
def instruction_count(source: Source, target: Target) -> Hits:
    """Loops of known length around instructions, multiplied."""
    turns = facts(source, target, target.chips[0]).turns
    for function in source.kernel_code:
        counts: dict[Loop, int] = {}
        for each in accesses(source, function):
            loops = source.loops_of(each.call)
            if not loops or not each.name.startswith("nisa."):
                continue
            product = 1
            for loop in loops:
                product *= turns.get(loop, 1)
            counts[loops[-1]] = counts.get(loops[-1], 0) + product
        for loop, count in counts.items():
            if count > MOST_INSTRUCTIONS:
                yield Hit(loop, f"the loop unrolls to about {count:,} instructions")
