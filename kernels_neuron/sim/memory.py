"""Allocations: the bytes behind tiles, and which of them were ever written."""

from __future__ import annotations

import enum
from typing import Protocol

import numpy as np

from kernels_neuron.dtypes import DType

from .trace import Region, Tile, grain


class MemoryRegion(enum.Enum):
    """Where a tensor lives; the values are NKI's."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    def __init__(self, value: str) -> None:
        self.on_chip = value in ("sbuf", "psum")

    __hash__ = object.__hash__  # each member is one object: quicker to look up by

    def __repr__(self) -> str:
        return f"nl.{self.value}"


class Bytes:
    """Where an allocation lies in the host's memory: a run of bytes a partition, `pitch` bytes from one to the next.

    shared  they do not change, as those of the caller's arrays during a run: any number of allocations may lie on them,
            and one that is written to moves to bytes of its own first
    """

    __slots__ = ("buffer", "pitch", "shared", "start")

    def __init__(self, buffer: memoryview, start: int, pitch: int, *, shared: bool = False) -> None:
        self.buffer = buffer
        self.start = start
        self.pitch = pitch
        self.shared = shared

    @classmethod
    def of(cls, array: np.ndarray) -> Bytes:
        """Those of a contiguous array of the caller's, which is not written to."""
        flat = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
        return cls(flat.data.toreadonly(), 0, flat.size, shared=True)


class Due(Protocol):
    """Who makes bytes that nobody has looked at yet."""

    def make(self, storage: Storage) -> None:
        """Give `storage` its bytes; they are due no more."""


class Reader(Protocol):
    """Who may still read bytes that it has not copied."""

    def make_all(self) -> None:
        """Read them all now."""


class _Fresh:
    """Makes bytes that hold anything: memory is taken when it is first used, and never where a load shares its own."""

    def make(self, storage: Storage) -> None:
        tile = storage.tile
        storage.bytes = Bytes(np.empty(tile.partitions * tile.nbytes, np.uint8).data, 0, tile.nbytes)
        storage.due = None


FRESH = _Fresh()


class Storage:
    """One allocation. Its bytes are None while they are `due`, and in a price-only run.

    due     who makes the bytes as soon as somebody looks: FRESH, or products.Products whose sums go here
    reader  whose products may still read these bytes
    stored  whether any step wrote here

    written, mm_written  bytes ever written, and bytes ever written by a matmul: exact, but kept as "everything" or as a
                         short list of regions while that is enough, so that the usual whole-tile access costs nothing
    unwritten_read       the first read of unwritten bytes that left some here, as a sentence with its line
    """

    __slots__ = (
        "buffer",
        "bytes",
        "dtype",
        "due",
        "is_input",
        "mm_written",
        "on_chip",
        "reader",
        "stored",
        "tile",
        "unwritten_read",
        "written",
    )

    def __init__(
        self, tile: Tile, buffer: MemoryRegion, dtype: DType, bytes: Bytes | None, *, is_input: bool = False
    ) -> None:
        self.tile = tile
        self.buffer = buffer
        self.on_chip = buffer.on_chip
        self.dtype = dtype
        self.bytes = bytes
        self.due: Due | None = None
        self.reader: Reader | None = None
        self.stored = False
        self.is_input = is_input
        self.written = Coverage(tile, whole=is_input)
        self.mm_written = Coverage(tile) if buffer is MemoryRegion.psum else _NEVER
        self.unwritten_read: str | None = None

    def table(self) -> np.ndarray:
        """The bytes, [partitions, bytes]; not to be written to where they are shared."""
        tile, there = self.tile, self.look()
        return np.ndarray((tile.partitions, tile.nbytes), np.uint8, there.buffer, there.start, (there.pitch, 1))

    @property
    def has_values(self) -> bool:
        """Whether there are bytes to look at, as there are but in a price-only run."""
        return self.bytes is not None or self.due is not None

    def look(self) -> Bytes:
        """The bytes, with everything in them that is due."""
        if self.due is not None:
            self.due.make(self)
        assert self.bytes is not None, "a price-only run has no bytes"
        return self.bytes

    def make_writable(self) -> None:
        """Let nothing else depend on the bytes: products that read them are made, shared ones are left for a copy."""
        if self.reader is not None:
            self.reader.make_all()
            self.reader = None
        if self.look().shared:
            self.bytes = Bytes(self.table().copy().data, 0, self.tile.nbytes)

    def forget_bytes(self) -> None:
        """Hold nothing, and let go of the memory."""
        self.bytes = self.due = self.reader = None

    def lie_on(self, there: Bytes) -> None:
        """Hold the values that lie `there`, whatever was here before."""
        self.bytes, self.due = there, None


class Coverage:
    """A set of bytes of one tile, grown region by region.

    It is the union of `regions`, of bytes [low, high) of every partition, and of `mask` where that was needed.
    """

    __slots__ = ("high", "low", "mask", "regions", "tile", "whole")

    # beyond this many distinct regions a byte mask is cheaper than the list
    MAX_REGIONS = 64

    def __init__(self, tile: Tile, *, whole: bool = False) -> None:
        self.tile = tile
        self.whole = whole
        self.low = self.high = 0
        self.regions: dict[Region, None] = {}
        self.mask: np.ndarray | None = None

    @property
    def empty(self) -> bool:
        """Whether no byte was ever taken in."""
        return self.low == self.high and not self.whole and not self.regions and self.mask is None

    def add(self, region: Region) -> None:
        """Take in `region`."""
        if self.whole or region in self.regions:
            return
        tile = self.tile
        if region.width == tile.nbytes and region.p1 - region.p0 == tile.partitions:
            self.whole, self.regions, self.mask = True, {}, None
            return
        if self.mask is not None:
            self._mark(region)
        # a region with steps may count bytes twice, so only one interval is taken at its word
        if region.p0 == 0 and region.p1 >= self.tile.partitions and not region.steps and self._grow(region):
            return
        if len(self.regions) < self.MAX_REGIONS:
            self.regions[region] = None
        elif self.mask is None:
            self._build_mask()
            self._mark(region)

    def _grow(self, region: Region) -> bool:
        """Take bytes of every partition into [low, high), where they are next to it."""
        end = region.lo + region.width
        if self.low == self.high:
            self.low, self.high = region.lo, end
        elif region.lo <= self.high and end >= self.low:
            self.low, self.high = min(self.low, region.lo), max(self.high, end)
        else:
            return False
        if self.high - self.low == self.tile.nbytes:
            self.whole = True
            self.regions, self.mask = {}, None
        return True

    def add_mask(self, mask: np.ndarray) -> None:
        """Take in the bytes of the tile that `mask` selects, [partitions, bytes]."""
        if not self.whole:
            known = self.mask if self.mask is not None else self._build_mask()
            known |= mask

    def table(self) -> np.ndarray:
        """The set as booleans, [partitions, bytes]; not to be written to."""
        if self.whole:
            return np.ones((self.tile.partitions, self.tile.nbytes), bool)
        return self.mask if self.mask is not None else self._build_mask()

    def remove(self, region: Region, mask: np.ndarray) -> None:
        """Take out the bytes of `region` that `mask`, laid out as `select` does, names."""
        known = self.mask
        if known is None:
            known = self._build_mask()
            known |= self.whole
        self.whole, self.regions, self.low, self.high = False, {}, 0, 0
        self.select(known, region)[mask] = False

    def contains(self, region: Region) -> bool:
        """Whether every byte of `region` is in the set."""
        if self.whole:
            return True
        if self.empty:
            return False
        if (self.low <= region.lo and region.hi <= self.high) or region in self.regions:
            return True
        if any(mine.covers(region) for mine in self.regions):
            return True
        mask = self.mask if self.mask is not None else self._build_mask()
        if bool(self._window(mask, region).all()):
            if len(self.regions) < self.MAX_REGIONS:
                self.regions[region] = None
            return True
        return False

    def touches(self, region: Region) -> bool:
        """Whether any byte of `region` is in the set."""
        if self.whole or self.empty:
            return self.whole
        if self.mask is not None:
            return bool(self._window(self.mask, region).any())
        return region.overlaps(self._interval()) or any(mine.overlaps(region) for mine in self.regions)

    def window(self, region: Region) -> np.ndarray:
        """The set as booleans over `region`, [partitions, bytes]: a copy, which later additions do not change."""
        partitions = region.p1 - region.p0
        if self.whole:
            return np.ones((partitions, region.partition_bytes), bool)
        known = self.mask if self.mask is not None else self._build_mask()
        return self._window(known, region).reshape(partitions, -1).copy()

    def missing_bytes(self) -> int:
        """How many bytes of the tile are not in the set."""
        if self.whole:
            return 0
        if self.mask is not None:
            return int(self.mask.size - np.count_nonzero(self.mask))
        tile, regions = self.tile, [self._interval(), *self.regions]
        piece = grain(tile.nbytes, regions)
        pieces = np.zeros((tile.partitions, tile.nbytes // piece), bool)
        for region in regions:
            self._window(pieces, region.in_pieces(piece))[...] = True
        return int(pieces.size - np.count_nonzero(pieces)) * piece

    def first_missing(self) -> tuple[int, int]:
        """(partition, byte) of the first byte not in the set."""
        mask = self.mask if self.mask is not None else self._build_mask()
        partition, byte = np.unravel_index(int(np.argmin(mask)), mask.shape)
        return int(partition), int(byte)

    def _build_mask(self) -> np.ndarray:
        self.mask = np.zeros((self.tile.partitions, self.tile.nbytes), bool)
        for region in (self._interval(), *self.regions):
            self._mark(region)
        return self.mask

    def _interval(self) -> Region:
        return Region(self.tile.id, 0, self.tile.partitions, self.low, self.high - self.low)

    def _mark(self, region: Region) -> None:
        assert self.mask is not None
        self._window(self.mask, region)[...] = True

    @staticmethod
    def select(table: np.ndarray, region: Region) -> np.ndarray:
        """The entries of `region` in a table [partitions, bytes] of one-byte entries, [partition, *steps, byte]."""
        shape = (region.p1 - region.p0, *(count for _, count in region.steps), region.width)
        strides = (table.shape[1], *(stride for stride, _ in region.steps), 1)
        return np.ndarray(shape, table.dtype, table.data, region.p0 * table.shape[1] + region.lo, strides)

    _window = select


# no matmul writes anywhere but to PSUM
_NEVER = Coverage(Tile(-1, "", "", "", (), 0, 0, 0))
