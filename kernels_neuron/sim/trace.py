"""What a run leaves behind: one record per engine step, numbers only, no array kept alive.

A Trace belongs to one program (one physical core). `tiles` describes every allocation, `records` every step in program
order, `places` (filled by place.py when the run ends) the address of every on-chip tile.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .locate import source_line


class Region(NamedTuple):
    """Bytes of one tile: partitions [p0, p1), and on each of them `width` bytes from `lo`, repeated along `steps`.

    steps  ((stride_bytes, count), ...), outermost first; empty for one interval. HBM tensors have one partition.
    """

    tile: int
    p0: int
    p1: int
    lo: int
    width: int
    steps: tuple[tuple[int, int], ...] = ()

    @property
    def hi(self) -> int:
        """One past the last byte."""
        if not self.steps:
            return self.lo + self.width
        return self.lo + self.width + sum(stride * (count - 1) for stride, count in self.steps)

    @property
    def partition_bytes(self) -> int:
        """Bytes covered on each partition."""
        size = self.width
        for _, count in self.steps:
            size *= count
        return size

    def in_pieces(self, size: int) -> "Region":
        """The same counted in pieces of `size` bytes, see grain."""
        tile, p0, p1, low, width, steps = self
        return Region(tile, p0, p1, low // size, width // size, tuple((step // size, n) for step, n in steps))

    def starts(self) -> np.ndarray:
        """First byte of every interval, ascending for the usual row-major views."""
        starts = np.array([self.lo], dtype=np.int64)
        for stride, count in self.steps:
            starts = (starts[:, None] + stride * np.arange(count, dtype=np.int64)).reshape(-1)
        return starts

    def overlaps(self, other: "Region", shift: int = 0) -> bool:
        """Whether both cover a common byte; `shift` moves `other` along the free axis (a tile at another address)."""
        if self.p1 <= other.p0 or other.p1 <= self.p0 or self.hi <= other.lo + shift or other.hi + shift <= self.lo:
            return False
        if not self.steps and not other.steps:
            return True
        mine, theirs = np.sort(self.starts()), np.sort(other.starts() + shift)
        # the last of my intervals that starts at or before theirs ends, per interval of theirs
        last = np.searchsorted(mine, theirs + other.width, side="left") - 1
        return bool(np.any((last >= 0) & (mine[last] + self.width > theirs)))

    def covers(self, other: "Region") -> bool:
        """Whether every byte of `other` lies in this one; may answer False for exotic strides."""
        if self.tile != other.tile or self.p0 > other.p0 or self.p1 < other.p1:
            return False
        return self == other or (not self.steps and self.lo <= other.lo and self.hi >= other.hi)


def grain(nbytes: int, regions: Iterable[Region]) -> int:
    """The largest number of bytes that divides `nbytes` and all edges of `regions`: masks of such pieces are exact."""
    edges = {edge for _, _, _, low, width, steps in regions for edge in (low, width, *[step for step, _ in steps])}
    return math.gcd(nbytes, *edges)


@dataclass(frozen=True, slots=True)
class Transfer:
    """The data part of a DMA instruction, as the descriptors that the 16 engines will see.

    direction         "load" (HBM to SBUF), "store" (SBUF to HBM) or "copy" (HBM to HBM, SBUF to SBUF)
    descriptors       contiguous pieces on both sides, before the 4 KiB split
    descriptor_bytes  size of one, on the larger side of a cast
    p0, partitions    SBUF partitions touched; partition p belongs to engine p / 8. 0, 128 when there is no SBUF side
    dge               "hw", "sw" or "none": who makes the descriptors
    rate              share of the plain copy rate this kind of transfer reaches (1.0, transposes less)
    """

    direction: str
    descriptors: int
    descriptor_bytes: int
    p0: int
    partitions: int
    dge: str
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Price:
    """What one step costs its engine, overlap and waiting excluded.

    issue_ns    start to start of two such steps back to back (initiation interval)
    latency_ns  start to last write
    pe_cycles   TensorE streaming cycles inside both, which the activity throttle may stretch; 0 on other engines
    weights     True for a weight load, which hides under the matmul before it
    table       function that needs an activation table, or "" (a function which the loaded one lacks costs a load)
    transfer    the DMA transfer it triggers, or None
    front       True for a wait that the queue's front end does by itself, ahead of what is still executing
    fast        True for a step in a performance mode of VectorE, which takes the port that GpSimdE shares
    """

    issue_ns: float
    latency_ns: float
    pe_cycles: int = 0
    weights: bool = False
    table: str = ""
    transfer: Transfer | None = None
    front: bool = False
    fast: bool = False


class Record(NamedTuple):
    """One engine step: the instruction's name, its queue, its price, the bytes it reads and writes, its source line.

    instruction  index of the API call that issued it; several records may share one
    where        index into Trace.lines
    macs         multiply-accumulates of a matmul step, else 0
    """

    name: str
    engine: str
    price: Price
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    instruction: int
    where: int
    macs: int = 0


class Tile(NamedTuple):
    """One allocation. `nbytes`: per partition on chip, in all for HBM. `address`: (partition, byte) when pinned."""

    id: int
    name: str
    buffer: str
    dtype: str
    shape: tuple[int, ...]
    partitions: int
    nbytes: int
    where: int
    address: tuple[int, int] | None = None

    @property
    def on_chip(self) -> bool:
        return self.buffer in ("sbuf", "psum")

    def __str__(self) -> str:
        return f"{self.name or 'tile'} ({self.buffer} {self.dtype}{list(self.shape)})"


class Place(NamedTuple):
    """Address of an on-chip tile: memory, first partition, first byte inside each partition."""

    memory: str
    partition: int
    byte: int


@dataclass
class Trace:
    """Everything one program of one rank did, in program order.

    hbm_digests  record index -> checksum of the HBM bytes it left, where programs run in parallel
    named        instruction indices by the `name` they were given
    edges        (producer, consumer) instruction indices that the kernel or its schedule orders, beyond its data
    in_order     [first, end) instruction indices that stay in program order
    barriers     record index -> the tile whose accesses a barrier orders, None where it orders none
    meetings     record index -> what a step meets other programs for, and who they are; the steps of one meeting that
                 write nothing bring data, the others wait for it. Equal labels meet in the order of each program
    spills       whether SBUF tiles have no place because they do not fit and the run lets them spill to HBM
    """

    arch: str
    program: int
    rank: int = 0
    records: list[Record] = field(default_factory=list)
    tiles: dict[int, Tile] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    lines: list[tuple[str, int]] = field(default_factory=list)
    instructions: int = 0
    hbm_digests: dict[int, int] = field(default_factory=dict)
    barriers: dict[int, int | None] = field(default_factory=dict)
    meetings: dict[int, tuple[object, ...]] = field(default_factory=dict)
    named: dict[str, list[int]] = field(default_factory=dict)
    edges: list[tuple[int, int]] = field(default_factory=list)
    in_order: list[tuple[int, int]] = field(default_factory=list)
    spills: bool = False
    _line_ids: dict[tuple[str, int], int] = field(default_factory=dict, repr=False)

    def line_id(self, file: str, line: int) -> int:
        """The index of (file, line) in `lines`."""
        key = (file, line)
        found = self._line_ids.get(key)
        if found is None:
            found = self._line_ids[key] = len(self.lines)
            self.lines.append(key)
        return found

    def where(self, line_id: int) -> str:
        """ "kernel.py:12" of a line index, the file's path shortened to its name."""
        file, line = self.lines[line_id]
        return f"{file.rsplit('/', 1)[-1]}:{line}"

    def located(self, line_id: int) -> dict[str, str | None]:
        """The `where` and `source` of an error about a line index."""
        return {"where": self.where(line_id), "source": source_line(*self.lines[line_id])}

    def uses(self) -> Iterator[tuple[int, Region, bool]]:
        """(record index, region, is a write) of every access, in program order."""
        for index, record in enumerate(self.records):
            for region in record.reads:
                yield index, region, False
            for region in record.writes:
                yield index, region, True
