"""Addresses for tiles that do not fit one above the other: side by side across partitions, results over dead operands.

place.py asks for this last, before it reports that SBUF is too small. Two liberties are taken that it does not take:

- a tile of at most 64 partitions may start at partition 64, one of at most 32 at any quadrant. Operands that one
  instruction reads together keep a common start, as engines demand, and what TensorE reads stays at partition 0;
- the result of an elementwise instruction may take the bytes of an operand that it is the last to read.

Source: start-partition rule of the NKI reference. That the vendor's compiler packs so is assumed: kernels of its public
library whose live tiles take one and a half times a partition's bytes run on the chip.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .lives import Life
from .trace import Place, Record, Trace

QUADRANT = 32
# engines read an element of these before they write it, whatever the performance mode
ELEMENTWISE = frozenset(
    ("activation", "reciprocal", "scalar_tensor_tensor", "tensor_copy", "tensor_scalar", "tensor_tensor")
)


@dataclass
class Block:
    """Tiles that take the same bytes one after the other, and where: `start` is the first partition.

    first, last  record indices between which the bytes are taken
    """

    tiles: list[int]
    partitions: int
    nbytes: int
    first: int
    last: int
    start: int = 0
    byte: int = -1

    @property
    def end(self) -> int:
        """One past the last partition."""
        return self.start + self.partitions

    @property
    def quadrants(self) -> slice:
        return slice(self.start // QUADRANT, -(-self.end // QUADRANT))


def pack(trace: Trace, free: Sequence[Life], pinned: Sequence[Life], capacity: int) -> dict[int, Place] | None:
    """Places of the tiles in `free`, clear of the pinned ones; None when this order of placing finds none either."""
    blocks = _blocks(trace, free)
    fixed = [
        Block([life.tile.id], life.tile.partitions, life.tile.nbytes, life.first, life.last, *life.tile.address)
        for life in pinned
        if life.tile.address is not None
    ]
    _choose_starts(_groups(trace, blocks), [*blocks, *fixed], capacity)
    by_area = sorted(blocks, key=lambda block: (-block.partitions * block.nbytes, block.first))
    for order in (by_area, sorted(blocks, key=lambda block: block.first)):
        if _fit(order, fixed, capacity):
            return {tile: Place("sbuf", block.start, block.byte) for block in blocks for tile in block.tiles}
    return None


# ---- results in place


def _blocks(trace: Trace, free: Sequence[Life]) -> list[Block]:
    """One block a tile, but one for both where a result can take the place of an operand."""
    blocks: list[Block] = []
    ending: dict[int, list[Block]] = defaultdict(list)
    for life in free:
        record = trace.records[life.first]
        heir = next((block for block in ending[life.first] if _replaces(trace, record, life, block)), None)
        if heir is None:
            heir = Block([], life.tile.partitions, life.tile.nbytes, life.first, life.last)
            blocks.append(heir)
        else:
            ending[heir.last].remove(heir)
        heir.tiles.append(life.tile.id)
        heir.last = life.last
        ending[heir.last].append(heir)
    return blocks


def _replaces(trace: Trace, record: Record, life: Life, block: Block) -> bool:
    """Whether `record` reads the last tile of `block` and writes `life`'s, byte for byte alike."""
    if record.name not in ELEMENTWISE:
        return False
    old, new = trace.tiles[block.tiles[-1]], life.tile
    if (old.partitions, old.nbytes, old.dtype) != (new.partitions, new.nbytes, new.dtype):
        return False
    shapes = {region[1:] for region in (*record.reads, *record.writes) if region.tile in (old.id, new.id)}
    return len(shapes) == 1


# ---- start partitions


def _groups(trace: Trace, blocks: Sequence[Block]) -> list[list[Block]]:
    """Blocks that must start on one partition, except for groups that must start at 0."""
    owner = {tile: block for block in blocks for tile in block.tiles}
    root = {id(block): block for block in blocks}

    def find(block: Block) -> Block:
        while root[id(block)] is not block:
            root[id(block)] = root[id(root[id(block)])]
            block = root[id(block)]
        return block

    at_zero = {id(block) for block in blocks if block.partitions > 2 * QUADRANT}
    for record in trace.records:
        if record.engine == "dma":
            continue
        read = [owner[region.tile] for region in record.reads if region.tile in owner]
        if record.engine == "tensor" or len(read) < sum(trace.tiles[region.tile].on_chip for region in record.reads):
            at_zero.update(map(id, read))
        for block in read[1:]:
            root[id(find(block))] = find(read[0])
    members: dict[int, list[Block]] = defaultdict(list)
    for block in blocks:
        members[id(find(block))].append(block)
    return [group for group in members.values() if not any(id(block) in at_zero for block in group)]


def _choose_starts(groups: list[list[Block]], blocks: Sequence[Block], capacity: int) -> None:
    """Spread the groups over the quadrants until none is over capacity at any time, or no move of one group helps."""
    moments = np.unique([block.first for block in blocks])
    load = np.zeros((4, len(moments)), np.int64)

    def add(some: Iterable[Block], sign: int) -> None:
        for block in some:
            span = slice(*np.searchsorted(moments, (block.first, block.last + 1)))
            load[block.quadrants, span] += sign * block.nbytes

    def moved(group: list[Block], start: int) -> int:
        """What is over capacity after `group` has moved to `start`."""
        add(group, -1)
        for block in group:
            block.start = start
        add(group, 1)
        return excess()

    def excess() -> int:
        """Bytes over capacity, summed over quadrants and moments: it falls with a move that the peak does not show."""
        return int(np.maximum(load - capacity, 0).sum())

    add(blocks, 1)
    for _ in range(4 * len(groups)):
        over = excess()
        if not over:
            return
        quadrant, moment = np.unravel_index(int(load.argmax()), load.shape)
        best: tuple[int, list[Block] | None, int] = (over, None, 0)
        for group in groups:
            if not any(_loads(block, int(quadrant), int(moments[moment])) for block in group):
                continue
            before = group[0].start
            for start in _starts(max(block.partitions for block in group)):
                if start != before and (reached := moved(group, start)) < best[0]:
                    best = (reached, group, start)
            moved(group, before)
        if best[1] is None:
            return
        moved(best[1], best[2])


def _starts(partitions: int) -> range:
    return range(0, 4 * QUADRANT, QUADRANT if partitions <= QUADRANT else 2 * QUADRANT)


def _loads(block: Block, quadrant: int, moment: int) -> bool:
    lanes = block.quadrants
    return block.first <= moment <= block.last and lanes.start <= quadrant < lanes.stop


# ---- bytes


def _fit(order: Sequence[Block], fixed: Sequence[Block], capacity: int) -> bool:
    """Give each block, in this order, the lowest bytes that are free while it lives."""
    blocks = [*fixed, *order]
    first, last, low, end = (
        np.array([getattr(block, name) for block in blocks]) for name in ("first", "last", "start", "end")
    )
    for i in range(len(fixed), len(blocks)):
        others = (first[:i] <= last[i]) & (first[i] <= last[:i]) & (low[:i] < end[i]) & (low[i] < end[:i])
        byte = 0
        for other in sorted((blocks[j] for j in np.flatnonzero(others)), key=lambda block: block.byte):
            if byte + blocks[i].nbytes <= other.byte:
                break
            byte = max(byte, -(-(other.byte + other.nbytes) // 4) * 4)
        if byte + blocks[i].nbytes > capacity:
            return False
        blocks[i].byte = byte
    return True
