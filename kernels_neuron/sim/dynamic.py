"""Views whose address is known only when an instruction runs: one dynamic offset, or one row index per partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels_neuron.dtypes import ROWS, DType
from kernels_neuron.dtypes import dtype as as_dtype

from .context import current_core
from .index import ap_counts
from .layout import row_major
from .locate import fail
from .memory import MemoryRegion, Storage
from .register import VirtualRegister, known
from .tensor import NkiTensor, ap_steps
from .unwritten import require_written

if TYPE_CHECKING:
    from .core import NeuronCore

Source = VirtualRegister | NkiTensor


class DynamicTensor(NkiTensor):
    """A view at `offset` plus index * stride_bytes.

    source        a register or a [1, 1] tile for one index; an index tile with one entry per row of dim 0 for `rows`
    stride_bytes  bytes from one index to the next
    rows          every row of dim 0 has an index of its own, so its stride is never used
    """

    __slots__ = ("rows", "source", "stride_bytes")

    def __init__(
        self,
        storage: Storage,
        shape: Sequence[int],
        strides: Sequence[int],
        offset: int,
        dtype: DType,
        source: Source,
        stride_bytes: int,
        rows: bool = False,
    ) -> None:
        super().__init__(storage, shape, strides, offset, dtype)
        self.source = source
        self.stride_bytes = stride_bytes
        self.rows = rows
        current_core("a dynamic view").dynamic = True

    def _like(self, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: DType) -> NkiTensor:
        if self.rows and (not shape or shape[0] != self.shape[0]):
            fail("dynamic-dim", f"dim 0 of {self!r} has an index for every row and cannot be cut or moved")
        return DynamicTensor(self.storage, shape, strides, offset, dtype, self.source, self.stride_bytes, self.rows)

    def array(self) -> np.ndarray:
        fail("dynamic-operand", f"{self!r} has an address that is known only when an instruction runs")

    def view(self, dtype: Any) -> NkiTensor:
        if as_dtype(dtype) != self.dtype:
            fail("dynamic-view", f"{self!r} is dynamic and cannot be read as another dtype", "call view first")
        return self

    reinterpret_cast = view

    def is_indirect(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"{'indexed' if self.rows else 'dynamic'} {super().__repr__()}"


# ---- making one


def dynamic_ap(
    tensor: NkiTensor,
    pattern: Sequence[Sequence[int]],
    offset: int,
    scalar_offset: Any,
    vector_offset: Any,
    indirect_dim: int,
    new: DType,
) -> DynamicTensor:
    """`tensor.ap` with a dynamic offset; the stride of the index is that of `indirect_dim` in `tensor`'s shape."""
    if scalar_offset is not None and vector_offset is not None:
        fail("dynamic-offset", "ap takes scalar_offset or vector_offset, got both")
    rows = vector_offset is not None
    source = require_source("ap", vector_offset if rows else scalar_offset, rows)
    if rows and (indirect_dim != 0 or tensor.on_chip):
        fail(
            "dynamic-dim",
            f"ap with vector_offset takes indirect_dim 0 of an HBM tensor, got {indirect_dim} of {tensor!r}",
        )
    if not 0 <= indirect_dim < tensor.ndim:
        fail("view-dim", f"indirect_dim {indirect_dim} is outside a tensor of {tensor.ndim} dims: {tensor!r}")
    stride = row_major(tensor.shape)[indirect_dim] * tensor.itemsize
    counts = ap_counts(pattern)
    if rows:
        _require_indices(source, counts[0])
    return DynamicTensor(tensor.storage, counts, ap_steps(tensor, pattern, new), offset, new, source, stride, rows)


def dynamic_select(tensor: NkiTensor, dim: int, index: Any) -> DynamicTensor:
    """`tensor.select(dim, index)` with an index in a register or a [1, 1] tile."""
    _require_static(tensor)
    source = require_source("select", index, rows=False)
    shape, strides = list(tensor.shape), list(tensor.strides)
    stride = strides[dim] * tensor.itemsize
    del shape[dim], strides[dim]
    return DynamicTensor(tensor.storage, shape, strides, tensor.offset, tensor.dtype, source, stride)


def vector_select(tensor: NkiTensor, dim: int, vector_offset: Any) -> DynamicTensor:
    """Rows `vector_offset` of dim 0 of an HBM tensor."""
    _require_static(tensor)
    if dim != 0 or tensor.on_chip:
        fail("dynamic-dim", f"vector_select takes dim 0 of an HBM tensor, got dim {dim} of {tensor!r}")
    source = require_source("vector_select", vector_offset, rows=True)
    assert isinstance(source, NkiTensor)
    _require_indices(source, source.shape[0])
    shape = (source.shape[0], *tensor.shape[1:])
    stride = tensor.strides[0] * tensor.itemsize
    return DynamicTensor(tensor.storage, shape, tensor.strides, tensor.offset, tensor.dtype, source, stride, rows=True)


def _require_static(tensor: NkiTensor) -> None:
    if isinstance(tensor, DynamicTensor):
        fail("dynamic-view", f"{tensor!r} has a dynamic offset already", "a view has one dynamic offset")


def require_source(what: str, source: Any, rows: bool) -> Source:
    """`source` holds indices: an integer tile in SBUF, of one element unless `rows`, or a register."""
    if isinstance(source, VirtualRegister) and not rows:
        return source
    if not isinstance(source, NkiTensor):
        fail("dynamic-offset", f"{what} takes a register or an SBUF tile as dynamic offset, got {source!r}")
    if source.buffer is not MemoryRegion.sbuf or not ROWS[source.dtype].is_integer:
        fail("dynamic-offset", f"{what} takes integers in SBUF as dynamic offset, got {source!r}")
    if not rows and source.size != 1:
        fail("dynamic-offset", f"{what} takes a [1, 1] tile as scalar offset, got {source!r}")
    return source


def _require_indices(source: Source, rows: int) -> None:
    assert isinstance(source, NkiTensor)
    if source.size < rows:
        fail("dynamic-offset", f"{rows} rows need as many indices, the index tile is {source!r}")


# ---- reading one


def index_of(core: NeuronCore, source: Source) -> int | None:
    """The index in a register or tile; None where a price-only run does not know it."""
    if isinstance(source, VirtualRegister):
        return None if source.value is None and not core.settings.execute else known(source, "an address")
    return int(source.array().reshape(-1)[0]) if core.settings.execute else None


@dataclass(frozen=True)
class Piece:
    """Rows [first, first + len) of dim 0 of a dynamic view, found at one static place."""

    first: int
    view: NkiTensor


@dataclass(frozen=True)
class Access:
    """A dynamic operand of a DMA at the moment it runs.

    pieces   the static views that hold its rows; rows out of bounds are in none
    shape    of the whole operand
    kept     per row of dim 0, whether it is in bounds
    sources  the index tile, which the DMA reads too
    """

    pieces: list[Piece]
    shape: tuple[int, ...]
    kept: np.ndarray
    sources: tuple[NkiTensor, ...]
    dtype: DType

    def values(self) -> np.ndarray:
        """The elements, in the operand's shape; rows out of bounds hold anything."""
        out = np.empty(self.shape, self.dtype.numpy)
        for piece in self.pieces:
            out[piece.first : piece.first + piece.view.shape[0]] = piece.view.array()
        return out

    @property
    def views(self) -> list[NkiTensor]:
        return [piece.view for piece in self.pieces]


def access(core: NeuronCore, name: str, tensor: DynamicTensor, skip: bool) -> Access:
    """Where the rows of `tensor` lie now; a row out of bounds is an error unless `skip`."""
    starts = _starts(core, tensor)
    sources = (tensor.source,) if isinstance(tensor.source, NkiTensor) else ()
    for source in sources:
        require_written(core, name, source)
    kept = np.ones(tensor.shape[0], bool)
    if starts is None:
        whole = NkiTensor(
            tensor.storage, tensor.storage.tile.shape, row_major(tensor.storage.tile.shape), 0, tensor.storage.dtype
        )
        return Access([Piece(0, whole)], tensor.shape, kept, sources, tensor.dtype)
    inner = sum(stride * (count - 1) for stride, count in zip(tensor.strides[1:], tensor.shape[1:], strict=True))
    limit = tensor.storage.tile.nbytes // tensor.itemsize
    if tensor.on_chip:
        limit *= tensor.storage.tile.partitions
    kept = (starts >= 0) & (starts + inner < limit)
    if not kept.all() and not skip:
        bad = int(np.flatnonzero(~kept)[0])
        fail(
            "out-of-bounds",
            f"{name} reaches row {bad} of {tensor!r} at element {int(starts[bad])}, the tensor has {limit}",
            "use oob_mode.skip where an index means that there is nothing to move",
        )
    return Access(_pieces(tensor, starts, kept), tensor.shape, kept, sources, tensor.dtype)


def _starts(core: NeuronCore, tensor: DynamicTensor) -> np.ndarray | None:
    """First element of every row of dim 0, in elements of the view's dtype."""
    rows = np.arange(tensor.shape[0], dtype=np.int64)
    if not tensor.rows:
        index = index_of(core, tensor.source)
        if index is None:
            return None
        return tensor.offset + index * tensor.stride_bytes // tensor.itemsize + rows * tensor.strides[0]
    if not core.settings.execute:
        return None
    assert isinstance(tensor.source, NkiTensor)
    # an index tile of several columns is read column by column, as indirect dma_transpose documents
    indices = tensor.source.array().reshape(tensor.source.shape[0], -1).T.reshape(-1)[: len(rows)].astype(np.int64)
    return tensor.offset + indices * (tensor.stride_bytes // tensor.itemsize)


def _pieces(tensor: DynamicTensor, starts: np.ndarray, kept: np.ndarray) -> list[Piece]:
    """Rows in bounds, those that follow each other at one ascending distance put together."""
    pieces: list[Piece] = []
    row, count = 0, len(starts)
    while row < count:
        if not kept[row]:
            row += 1
            continue
        end, step = row + 1, 0
        while end < count and kept[end]:
            distance = int(starts[end] - starts[end - 1])
            if distance <= 0 or (step and distance != step):
                break
            step, end = distance, end + 1
        shape, strides = (end - row, *tensor.shape[1:]), (step or tensor.strides[0], *tensor.strides[1:])
        pieces.append(Piece(row, NkiTensor(tensor.storage, shape, strides, int(starts[row]), tensor.dtype)))
        row = end
    return pieces


def settled(core: NeuronCore, name: str, tensor: DynamicTensor) -> NkiTensor:
    """The static view that a compute instruction reads or writes: one dynamic offset, in bounds."""
    if tensor.rows:
        fail(
            "dynamic-operand", f"{name} takes no operand with an index per row, got {tensor!r}", "gather with dma_copy"
        )
    index = index_of(core, tensor.source) or 0
    start = tensor.offset + index * tensor.stride_bytes // tensor.itemsize
    view = NkiTensor(tensor.storage, tensor.shape, tensor.strides, start, tensor.dtype)
    region = view.region()
    if start < 0 or region.hi > tensor.storage.tile.nbytes or region.p1 > tensor.storage.tile.partitions:
        fail("out-of-bounds", f"{name} reaches element {start} of {tensor!r}, whose tile ends before that")
    return view
