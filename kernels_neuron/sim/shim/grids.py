"""nl.tiles and nl.blocks: a tensor navigated by the number of a tile, or of a block of tiles. NKI 0.7 on.

A grid is a view: making, indexing or regrouping one allocates nothing and issues nothing. Its last tiles and blocks end
where the tensor ends. Source: NKI language reference 0.7, NkiGrid.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels_neuron.errors import NotSimulated
from kernels_neuron.sim.context import current_core
from kernels_neuron.sim.core import NeuronCore
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.versions import SINCE, require_version


class _Packed:
    """On-chip tiles of more rows than partitions, in one tensor: band after band of tiles along its free axis.

    The reference has one dense allocation of rank 2 with the tiles in their order. A band, the tiles that share their
    rows, is one operand; how several of them are one is not documented.
    """

    on_chip, ndim = True, 2

    def __init__(
        self, tensor: NkiTensor, rows: int, shape: tuple[int, ...], band: int, width: int, column: int
    ) -> None:
        self.shape = shape
        self.dtype = tensor.dtype
        self.buffer = tensor.buffer
        self._tensor = tensor
        self.rows, self._band, self._width, self._column = rows, band, width, column

    @classmethod
    def new(cls, shape: tuple[int, ...], tile_shape: tuple[int, ...], allocate: Any) -> _Packed:
        """Unwritten storage for `shape` in tiles of tile_shape; `allocate` makes a tensor of a shape."""
        width = -(-shape[1] // tile_shape[1]) * tile_shape[1]
        bands = -(-shape[0] // tile_shape[0])
        return cls(allocate((tile_shape[0], bands * width)), tile_shape[0], shape, 0, width, 0)

    def __getitem__(self, key: Any) -> NkiTensor | _Packed:
        """What (slice of rows, slice of columns) cover, whole tiles: one tensor within a band, packed tiles beyond."""
        rows, columns = key
        band, column = self._band + rows.start // self.rows, self._column + columns.start
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        if shape[0] > self.rows:
            return _Packed(self._tensor, self.rows, shape, band, self._width, column)
        first = band * self._width + column
        return self._tensor[: shape[0], first : first + shape[1]]

    def __repr__(self) -> str:
        return f"{self.buffer.value} {self.dtype}{list(self.shape)} in bands of {self.rows}"


class NkiGrid(ABC):
    """A region of a tensor in cells of `cell` elements; leading dims of HBM tensors that are not tiled have cells of 1.

    source  the tensor, cut to the elements the grid covers
    ranges  per dim of source, the cells selected; an int where a coordinate was consumed
    """

    def __init__(self, source: NkiTensor | _Packed, cell: tuple[int, ...], ranges: tuple[range | int, ...]) -> None:
        self._source = source
        self._cell = cell
        self._ranges = ranges

    # ---- geometry

    @property
    def dtype(self) -> Any:
        """The dtype of the tensor."""
        return self._source.dtype

    @property
    def buffer(self) -> MemoryRegion:
        """The memory of the tensor."""
        return self._source.buffer

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along every coordinate that no integer has consumed."""
        return tuple(len(cells) for cells in self._ranges if isinstance(cells, range))

    @property
    def index_step_elements(self) -> tuple[int, ...]:
        """Elements from one coordinate to the next."""
        return tuple(
            cells.step * size for cells, size in zip(self._ranges, self._cell, strict=True) if isinstance(cells, range)
        )

    @property
    def element_shape(self) -> tuple[int, ...]:
        """Elements selected along every dim of the tensor; a slab of a dim that is not tiled has none."""
        return tuple(
            sum(end - start for start, end in spans)
            for dim, spans in enumerate(self._spans())
            if not self._is_slab(dim)
        )

    @property
    def is_remainder(self) -> bool:
        """Whether a selected cell is cut short by the end of the tensor."""
        return any(
            end - start < size for spans, size in zip(self._spans(), self._cell, strict=True) for start, end in spans
        )

    @property
    def is_data_representable(self) -> bool:
        """Whether `data` exists: the selected cells lie next to each other."""
        return self._is_dense and isinstance(self._region(), NkiTensor)

    @property
    def _is_dense(self) -> bool:
        return all(isinstance(cells, int) or cells.step == 1 or len(cells) == 1 for cells in self._ranges)

    @property
    def data(self) -> NkiTensor:
        """The selected elements as one operand."""
        region = self._region()
        if isinstance(region, _Packed):
            fail("grid-data", f"{self!r} spans tiles on several ranges of partitions", "take them one by one")
        return region

    def _region(self) -> NkiTensor | _Packed:
        """The selected elements."""
        if not self._is_dense:
            fail("grid-data", f"{self!r} selects cells with gaps between them", "take them one by one")
        key = [
            spans[0][0] if self._is_slab(dim) else slice(spans[0][0], spans[-1][1])
            for dim, spans in enumerate(self._spans())
        ]
        return self._source[tuple(key)]

    def _cells(self, dim: int) -> range:
        cells = self._ranges[dim]
        return range(cells, cells + 1) if isinstance(cells, int) else cells

    def _spans(self) -> list[list[tuple[int, int]]]:
        """(first element, end) of every selected cell, by dim."""
        return [
            [(cell * size, min((cell + 1) * size, extent)) for cell in self._cells(dim)]
            for dim, (size, extent) in enumerate(zip(self._cell, self._source.shape, strict=True))
        ]

    def _is_slab(self, dim: int) -> bool:
        return dim < self._source.ndim - len(self.tile_shape) and isinstance(self._ranges[dim], int)

    @property
    @abstractmethod
    def tile_shape(self) -> tuple[int, ...]:
        """Elements of a tile, but for those at the end."""

    # ---- navigation

    def __getitem__(self, key: Any) -> Any:
        """The grid of the cells that ints and slices select; an int consumes its coordinate."""
        keys = list(key) if isinstance(key, tuple) else [key]
        dims = [dim for dim, cells in enumerate(self._ranges) if isinstance(cells, range)]
        if len(keys) > len(dims):
            fail("index-rank", f"{len(keys)} indices for {self!r}")
        ranges = list(self._ranges)
        for dim, item in zip(dims, keys, strict=False):
            ranges[dim] = _selected(self._ranges[dim], item, self)
        return self._again(tuple(ranges))

    @abstractmethod
    def _again(self, ranges: tuple[range | int, ...]) -> NkiGrid:
        """A grid of other cells of the same tensor."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}{list(self.shape)} of {self._source!r}"


class NkiTileGrid(NkiGrid):
    """A tensor in tiles. Indexing gives a grid again; `data` is the operand."""

    def __init__(
        self, source: NkiTensor | _Packed, tile_shape: tuple[int, ...], ranges: tuple[range | int, ...] | None
    ) -> None:
        prefix = source.ndim - len(tile_shape)
        cell = (1,) * prefix + tile_shape
        super().__init__(source, cell, _all_cells(source, cell) if ranges is None else ranges)
        self._tile_shape = tile_shape

    @property
    def tile_shape(self) -> tuple[int, ...]:
        return self._tile_shape

    def _again(self, ranges: tuple[range | int, ...]) -> NkiTileGrid:
        return NkiTileGrid(self._source, self._tile_shape, ranges)

    def like(self, tensor: NkiTensor) -> NkiTileGrid:
        """`tensor` in tiles of the same shape."""
        return tiles(tensor, tile_shape=self._tile_shape)


class NkiBlockGrid(NkiGrid):
    """A tensor in blocks of block_shape tiles. nl.tiles of a block gives its tiles."""

    def __init__(
        self,
        source: NkiTensor | _Packed,
        tile_shape: tuple[int, ...],
        block_shape: tuple[int, ...],
        ranges: tuple[range | int, ...] | None,
    ) -> None:
        prefix = source.ndim - len(tile_shape)
        cell = (1,) * prefix + tuple(tile * block for tile, block in zip(tile_shape, block_shape, strict=True))
        super().__init__(source, cell, _all_cells(source, cell) if ranges is None else ranges)
        self._tile_shape = tile_shape
        self.block_shape = block_shape  # tiles of a block, along every tiled dim

    @property
    def tile_shape(self) -> tuple[int, ...]:
        return self._tile_shape

    def _again(self, ranges: tuple[range | int, ...]) -> NkiBlockGrid:
        return NkiBlockGrid(self._source, self._tile_shape, self.block_shape, ranges)

    def like(self, tensor: NkiTensor) -> NkiBlockGrid:
        """`tensor` in blocks and tiles of the same shapes."""
        return blocks(tensor, tile_shape=self._tile_shape, block_shape=self.block_shape)


def _all_cells(source: NkiTensor | _Packed, cell: tuple[int, ...]) -> tuple[range, ...]:
    return tuple(range(math.ceil(extent / size)) for extent, size in zip(source.shape, cell, strict=True))


def _selected(cells: Any, item: Any, grid: NkiGrid) -> range | int:
    if isinstance(item, slice):
        selected = cells[item]
        if not len(selected) or selected.step < 1:
            fail("out-of-bounds", f"slice {item.start}:{item.stop}:{item.step} selects no cell of {grid!r}")
        return selected
    if not isinstance(item, (int, np.integer)) or isinstance(item, bool):
        fail("index-type", f"{grid!r} takes ints and slices as indices, got {item!r}")
    if not -len(cells) <= item < len(cells):
        fail("out-of-bounds", f"index {item} is outside {grid!r}")
    return int(cells[int(item)])


# ---- making one


def _core(name: str) -> NeuronCore:
    core = current_core(name)
    require_version(core, name, SINCE[name])
    return core


def _shape(name: str, argument: str, shape: Any, source: Any = None, least: int = 2) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or len(shape) < least or not all(type(size) is int and size > 0 for size in shape):
        fail("grid-shape", f"{name} takes {argument} as a tuple of {least} or more positive integers, got {shape!r}")
    if source is not None and len(shape) > source.ndim:
        fail("grid-shape", f"{name} takes {argument} of at most {source.ndim} dims for {source!r}, got {shape}")
    if source is not None and source.on_chip and len(shape) < source.ndim:
        fail("grid-shape", f"{name} tiles every dim of an on-chip tensor, got {argument} {shape} for {source!r}")
    if isinstance(source, _Packed) and shape[0] != source.rows:
        fail("grid-shape", f"{name} takes {argument} of {source.rows} rows for {source!r}, got {shape}")
    return shape


def tiles(source: Any, *, tile_shape: tuple[int, ...] | None = None) -> NkiTileGrid:
    """`source` in tiles of tile_shape, which a grid brings along: over its trailing dims, cut short at their ends."""
    _core("nl.tiles")
    if isinstance(source, NkiGrid):
        tile_shape, source = tile_shape or source.tile_shape, source._region()
    return NkiTileGrid(source, _shape("nl.tiles", "tile_shape", tile_shape, source), None)


def blocks(source: Any, *, tile_shape: tuple[int, ...] | None = None, block_shape: tuple[int, ...]) -> NkiBlockGrid:
    """`source` in blocks of block_shape tiles of tile_shape, which a grid brings along."""
    _core("nl.blocks")
    if isinstance(source, NkiGrid):
        tile_shape, source = tile_shape or source.tile_shape, source._region()
    tile_shape = _shape("nl.blocks", "tile_shape", tile_shape, source)
    return NkiBlockGrid(source, tile_shape, _block("nl.blocks", block_shape, tile_shape), None)


def _block(name: str, block_shape: Any, tile_shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(_shape(name, "block_shape", block_shape)) != len(tile_shape):
        fail("grid-shape", f"{name} takes block_shape of {len(tile_shape)} dims as tile_shape has, got {block_shape}")
    return block_shape


def alloc_tiles(
    *,
    tile_shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    buffer: MemoryRegion,
    dtype: Any,
    address: tuple[int, int] | None = None,
    name: str = "",
) -> NkiTileGrid:
    """New unwritten storage of element_shape in tiles."""
    tensor = _new("nl.alloc_tiles", element_shape, tile_shape, (dtype, buffer, name, address))
    return tiles(tensor, tile_shape=tile_shape)


def alloc_blocks(
    *,
    tile_shape: tuple[int, ...],
    block_shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    buffer: MemoryRegion,
    dtype: Any,
    address: tuple[int, int] | None = None,
    name: str = "",
) -> NkiBlockGrid:
    """New unwritten storage of element_shape in blocks of tiles."""
    tensor = _new("nl.alloc_blocks", element_shape, tile_shape, (dtype, buffer, name, address))
    return blocks(tensor, tile_shape=tile_shape, block_shape=block_shape)


def _new(name: str, shape: Sequence[int], tile_shape: Any, given: tuple[Any, ...]) -> NkiTensor | _Packed:
    """Storage of `shape`, packed where it is on chip and has more rows than there are partitions."""
    core = _core(name)
    shape, buffer = _shape(name, "element_shape", shape), given[1]
    if not getattr(buffer, "on_chip", False) or (len(shape) == 2 and shape[0] <= core.arch.partitions):
        return core.allocate(shape, *given)
    if len(shape) != 2 or len(_shape(name, "tile_shape", tile_shape)) != 2:
        raise NotSimulated(
            f"{name} of {list(shape)} in {buffer.value} is not supported by this simulator: how tiles of more than a "
            "partition and a free axis lie on chip is not documented",
            hint="allocate one [partitions, free] tile for each with nl.ndarray",
        )
    return _Packed.new(shape, tile_shape, lambda packed: core.allocate(packed, *given))
