"""NkiTensor: a strided view of one allocation. Views share storage and cost nothing."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernels_neuron.dtypes import ROWS, DType
from kernels_neuron.dtypes import dtype as as_dtype

from . import array, layout
from .arithmetic import Arithmetic
from .context import current_scope
from .index import ap_counts, bounds, indexed, whole_numbers
from .locate import fail
from .memory import Bytes, MemoryRegion, Storage
from .switches import resolve
from .trace import Region
from .versions import refusing_newer_methods

# without the call of Python code that a named tuple's own constructor makes
_new_region = functools.partial(tuple.__new__, Region)

MAX_VIEW_DIMS = 5  # partition and four free ones; NKI reference, NkiTensor


@refusing_newer_methods
class NkiTensor(Arithmetic):
    """A view: shape, strides and offset in elements of `dtype` over the bytes of one allocation.

    On chip, dim 0 is the partition axis and is kept by every view. All attributes are known while the kernel is traced.
    """

    __slots__ = (
        "_array",
        "_bytes",
        "_layout",
        "_regions",
        "buffer",
        "dtype",
        "itemsize",
        "offset",
        "on_chip",
        "partition_stride",
        "shape",
        "storage",
        "strides",
    )

    def __init__(
        self,
        storage: Storage,
        shape: Sequence[int],
        strides: Sequence[int],
        offset: int,
        dtype: DType,
        layout: layout.Layout | None = None,
    ) -> None:
        self.storage = storage
        self.buffer: MemoryRegion = storage.buffer
        self.on_chip: bool = storage.on_chip
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.offset = offset
        self.dtype = dtype
        self.itemsize: int = ROWS[dtype].itemsize
        # elements from one partition to the next
        self.partition_stride: int = storage.tile.nbytes // self.itemsize
        self._array: np.ndarray | None = None
        self._bytes: Bytes | None = None
        self._regions: tuple[Region] | None = None
        self._layout = layout

    # ---- attributes

    @property
    def name(self) -> str:
        return self.storage.tile.name

    @property
    def data(self) -> NkiTensor:
        """Itself, as nl.NkiGrid.data is the operand behind a grid."""
        return self

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def partitions(self) -> int:
        """Size of the partition axis; HBM tensors have none and answer their first dim."""
        return self.shape[0]

    @property
    def free_size(self) -> int:
        """Elements per partition."""
        shape = self.shape
        return shape[1] if len(shape) == 2 else math.prod(shape[1:])

    @property
    def start_partition(self) -> int:
        return self.offset // self.partition_stride

    def __repr__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        return f"{name}{self.buffer.value} {self.dtype}{list(self.shape)}"

    def __str__(self) -> str:
        from .show import shown

        return shown(self)

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        # `if bias:` asks whether there is a tensor, as the vendor's front end reads it; no value is looked at
        return True

    @property
    def layout(self) -> layout.Layout:
        """All that rules and prices look at: one object for views of one shape, strides, dtype, memory and start."""
        if self._layout is None:
            start = self.offset if self.on_chip else None  # where a view of HBM starts changes nothing
            key = (self.shape, self.strides, start, self.dtype, self.partition_stride, self.storage.tile.buffer)
            self._layout = layout.layout(key)
        return self._layout

    # ---- what instructions use

    def array(self) -> np.ndarray:
        """The view as a numpy array over the storage's bytes, to be read."""
        there = self.storage.bytes
        if there is None:
            there = self.storage.look()
        return self._array if self._bytes is there else self.array_at(there)  # type: ignore[return-value]

    def array_at(self, there: Bytes) -> np.ndarray:
        """The same, over bytes where the storage lies or once lay."""
        if self._bytes is not there:
            start, strides = self.within(there)
            self._array = np.ndarray(self.shape, ROWS[self.dtype].numpy, there.buffer, start, strides)
            self._bytes = there
        return self._array  # type: ignore[return-value]

    def forget_array(self) -> None:
        """Let go of the bytes that it was last an array over."""
        self._array = self._bytes = None

    def within(self, there: Bytes) -> tuple[int, list[int]]:
        """(first byte, strides in bytes) of the view in the buffer of `there`, where its storage lies or once lay."""
        item, start = self.itemsize, self.offset * self.itemsize
        strides = [stride * item for stride in self.strides]
        nbytes = self.storage.tile.nbytes
        if there.pitch != nbytes:
            partition, start = divmod(start, nbytes)
            start += partition * there.pitch
            strides[0] = strides[0] // nbytes * there.pitch
        return there.start + start, strides

    def target(self) -> np.ndarray:
        """The same, to be written to."""
        self.storage.make_writable()
        return self.array()

    def f32(self) -> np.ndarray:
        """The values as float32, [partitions, elements per partition]; may share memory, so it is not written to."""
        values = array.f32(self.array())
        return values if values.ndim == 2 else values.reshape(self.shape[0], -1)

    def region(self) -> Region:
        """The bytes this view covers."""
        return self.regions()[0]

    def regions(self) -> tuple[Region]:
        """The same as the one operand of a step: a tuple that all records of this view share."""
        if self._regions is None:
            tile = self.storage.tile.id
            if self.on_chip:
                known = self._layout or self.layout
                if known.extent is None:
                    known.extent = self._extent()
                self._regions = (_new_region((tile, *known.extent)),)
            else:
                width, steps = layout.runs(self.shape, self.strides, self.itemsize)
                self._regions = (_new_region((tile, 0, 1, self.offset * self.itemsize, width, steps)),)
        return self._regions

    def _extent(self) -> tuple[int, int, int, int, tuple[tuple[int, int], ...]]:
        """First partition, one past the last, first byte, width and steps of an on-chip view."""
        item = self.itemsize
        first, free_offset = divmod(self.offset, self.partition_stride)
        count = 1 if self.strides[0] == 0 else (self.shape[0] - 1) * (self.strides[0] // self.partition_stride) + 1
        if len(self.shape) == 2 and self.strides[1] == 1:
            return first, first + count, free_offset * item, self.shape[1] * item, ()
        width, steps = layout.runs(self.shape[1:], self.strides[1:], item)
        return first, first + count, free_offset * item, width, steps

    # ---- views

    def _view(self, shape: Sequence[int], strides: Sequence[int], offset: int | None = None) -> NkiTensor:
        if not 1 <= len(shape) <= MAX_VIEW_DIMS:
            fail("view-rank", f"a view has 1 to {MAX_VIEW_DIMS} dims, got {list(shape)}")
        return self._like(shape, strides, self.offset if offset is None else offset, self.dtype)

    def _like(self, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: DType) -> NkiTensor:
        return NkiTensor(self.storage, shape, strides, offset, dtype)

    def _dim(self, dim: int) -> int:
        (dim,) = whole_numbers("a dim", (dim,))
        if not -self.ndim <= dim < self.ndim:
            fail("view-dim", f"dim {dim} is outside a tensor of {self.ndim} dims: {self!r}")
        return dim % self.ndim

    def _free_dim(self, dim: int, what: str) -> int:
        dim = self._dim(dim)
        if dim == 0 and self.on_chip:
            fail(
                "partition-view",
                f"{what} cannot change the partition axis of {self!r}",
                "move data across partitions with nc_transpose or DMA",
            )
        return dim

    def __getitem__(self, key: Any) -> NkiTensor:
        shape, strides, offset = indexed(self, key)
        return self._like(shape, strides, offset, self.dtype)

    def __setitem__(self, key: Any, value: NkiTensor) -> None:
        """Copy a tile into the view `self[key]`: by tensor_copy on chip, by DMA from or to HBM."""
        from .isa import TABLE

        target = self[key]
        if not isinstance(value, NkiTensor):
            fail("operand-type", f"{target!r} takes a tensor, got {value!r}", "fill a tile with nisa.memset")
        TABLE["tensor_copy" if self.on_chip and value.on_chip else "dma_copy"](target, value)

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """t[..., start:end:step, ...] on `dim`."""
        dim = self._dim(dim)
        return self[(slice(None),) * dim + (slice(start, end, step),)]

    def select(self, dim: int, index: Any) -> NkiTensor:
        """Element `index` of `dim`, which is removed; an index in a register or a [1, 1] tile makes a dynamic view."""
        dim = self._free_dim(dim, "select")
        if not isinstance(index, (int, np.integer)):
            from .dynamic import dynamic_select

            return dynamic_select(self, dim, index)
        start, _, _, _ = bounds(index, self.shape[dim], dim, self)
        shape, strides = list(self.shape), list(self.strides)
        del shape[dim], strides[dim]
        return self._view(shape, strides, self.offset + start * self.strides[dim])

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Rows `vector_offset` ([n, 1] in SBUF) of dim 0 of an HBM tensor: n rows, one for every index."""
        from .dynamic import vector_select

        return vector_select(self, dim, vector_offset)

    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """The dims in another order; on chip the partition axis stays first."""
        dims = whole_numbers("permute", dims)
        if sorted(dims) != list(range(self.ndim)) or (self.on_chip and dims[0] != 0):
            fail(
                "view-permute",
                f"permute takes a permutation of {self.ndim} dims{' that keeps dim 0 first' if self.on_chip else ''}, "
                f"got {list(dims)}",
            )
        return self._view([self.shape[d] for d in dims], [self.strides[d] for d in dims])

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """A dim of size 1 repeated `size` times with stride 0."""
        dim = self._free_dim(dim, "broadcast")
        if self.shape[dim] != 1:
            fail("view-broadcast", f"broadcast needs a dim of size 1, dim {dim} of {self!r} has {self.shape[dim]}")
        shape, strides = list(self.shape), list(self.strides)
        (shape[dim],), strides[dim] = whole_numbers("broadcast", (size,)), 0
        if shape[dim] < 1:
            fail("view-broadcast", f"broadcast repeats a dim at least once, got {size}")
        return self._view(shape, strides)

    def expand_dim(self, dim: int) -> NkiTensor:
        """A new dim of size 1, which is dim `dim` of the result."""
        (dim,) = whole_numbers("a dim", (dim,))
        if not -self.ndim - 1 <= dim <= self.ndim:
            fail("view-dim", f"dim {dim} is outside a tensor of {self.ndim + 1} dims, made of {self!r}")
        dim %= self.ndim + 1
        if dim == 0 and self.on_chip:
            fail("partition-view", f"expand_dim cannot change the partition axis of {self!r}")
        shape, strides = list(self.shape), list(self.strides)
        inner = shape[dim] * strides[dim] if dim < len(shape) else 1
        shape.insert(dim, 1)
        strides.insert(dim, inner)
        return self._view(shape, strides)

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Without `dim`, whose size is 1."""
        dim = self._free_dim(dim, "squeeze_dim")
        if self.shape[dim] != 1:
            fail("view-squeeze", f"squeeze_dim needs a dim of size 1, dim {dim} of {self!r} has {self.shape[dim]}")
        return self._view(self.shape[:dim] + self.shape[dim + 1 :], self.strides[:dim] + self.strides[dim + 1 :])

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """One dim split into several; one of them may be -1."""
        dim = self._free_dim(dim, "reshape_dim")
        sizes = _fill_minus_one(shape, self.shape[dim], self)
        strides = layout.row_major(sizes, self.strides[dim])
        return self._view(
            self.shape[:dim] + sizes + self.shape[dim + 1 :], self.strides[:dim] + strides + self.strides[dim + 1 :]
        )

    def flatten_dims(self, first: int, last: int) -> NkiTensor:
        """Dims first..last merged into one; they must be contiguous in memory."""
        first, last = self._free_dim(first, "flatten_dims"), self._dim(last)
        if first > last:
            fail("view-flatten", f"flatten_dims takes the outer dim first, got {first} and {last}")
        merged = slice(first, last + 1)
        # the stride of a dim of size 1 is never taken and may be anything
        dims = [pair for pair in zip(self.shape[merged], self.strides[merged], strict=True) if pair[0] != 1]
        for (_, outer), (count, inner) in itertools.pairwise(dims):
            if outer != inner * count:
                fail("view-flatten", f"dims {first} to {last} of {self!r} are not contiguous in memory")
        stride = dims[-1][1] if dims else 1
        return self._view(
            (*self.shape[:first], math.prod(self.shape[merged]), *self.shape[last + 1 :]),
            (*self.strides[:first], stride, *self.strides[last + 1 :]),
        )

    def reshape(self, shape: Sequence[int]) -> NkiTensor:
        """The same elements in row-major order under another shape; on chip the partition axis keeps its size."""
        sizes = _fill_minus_one(shape, self.size, self)
        if self.on_chip:
            if sizes[0] != self.shape[0]:
                fail(
                    "partition-view",
                    f"reshape of {self!r} to {list(sizes)} moves elements across partitions",
                    "move them with DMA or nc_transpose",
                )
            return self._view(sizes, (self.strides[0], *self._free_strides(sizes[1:])))
        return self._view(sizes, self._strides_for(self.shape, self.strides, sizes))

    def _free_strides(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        return self._strides_for(self.shape[1:], self.strides[1:], sizes)

    def _strides_for(self, shape: tuple[int, ...], strides: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Strides that read `shape`/`strides` in row-major order under `sizes`; refused where it takes a copy."""
        probe = np.lib.stride_tricks.as_strided(np.empty(0, np.int8), shape, strides)
        try:
            with np.errstate(all="ignore"):
                return tuple(probe.reshape(sizes, copy=False).strides) if self.size else layout.row_major(sizes)
        except ValueError:
            fail(
                "view-reshape",
                f"{self!r} with strides {list(self.strides)} cannot be read as {list(sizes)} without a copy",
            )

    def rearrange(
        self,
        src_pattern: Sequence[str | Sequence[str]],
        dst_pattern: Sequence[str | Sequence[str]],
        fixed_sizes: Mapping[str, int] | None = None,
    ) -> NkiTensor:
        """Dims split, reordered and merged by name: ("b", ("h", "w")) to ("b", "w", "h") with {"h": 4}."""
        from .rearrange import rearrange

        return rearrange(self, src_pattern, dst_pattern, fixed_sizes or {})

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """The columns that an index tile [P, K] names, picked while an instruction streams them; trn3."""
        from .isa.indirect import indirect

        return indirect(self, index, num_elem)

    def view(self, dtype: Any) -> NkiTensor:
        """The same bytes read as `dtype`; the last dim scales by the ratio of sizes and must be contiguous."""
        new = as_dtype(dtype)
        old_size, new_size = self.itemsize, ROWS[new].itemsize
        if old_size == new_size:
            return NkiTensor(self.storage, self.shape, self.strides, self.offset, new)
        last_bytes = self.shape[-1] * old_size
        outer = [stride * old_size for stride in self.strides[:-1]]
        if (
            self.strides[-1] != 1
            or last_bytes % new_size
            or self.offset * old_size % new_size
            or any(stride % new_size for stride in outer)
        ):
            fail(
                "view-dtype",
                f"{self!r} cannot be read as {new}: the last dim must be contiguous and a multiple of {new_size} bytes",
            )
        shape = (*self.shape[:-1], last_bytes // new_size)
        strides = (*(stride // new_size for stride in outer), 1)
        return NkiTensor(self.storage, shape, strides, self.offset * old_size // new_size, new)

    reinterpret_cast = view

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> NkiTensor:
        """Raw access pattern [[step, count], ...] in elements over the allocation, outermost first.

        offset         added to where this view starts (switch ap_view_offset)
        scalar_offset  a register or [1, 1] tile: adds index * stride of `indirect_dim` of this view's shape
        vector_offset  an [n, 1] tile: row w starts at index[w] * stride of dim 0, the first step is not looked at
        """
        new = as_dtype(dtype) if dtype is not None else self.dtype
        start = self._ap_start(offset, new)
        if scalar_offset is not None or vector_offset is not None:
            from .dynamic import dynamic_ap

            return dynamic_ap(self, pattern, start, scalar_offset, vector_offset, indirect_dim, new)
        view = NkiTensor(self.storage, ap_counts(pattern), ap_steps(self, pattern, new), start, new)
        region, where = view.region(), f"ap {list(map(list, pattern))} with offset {start}"
        if min(view.strides) < 0:
            fail("out-of-bounds", f"{where} steps backwards in {self!r}")
        if region.hi > self.storage.tile.nbytes or region.p1 > self.storage.tile.partitions:
            from .outside import OutsideTensor

            return OutsideTensor(self.storage, view.shape, view.strides, start, new, f"{where} leaves {self!r}")
        return view

    def _ap_start(self, offset: int | None, new: DType) -> int:
        """First element of a pattern, in elements of `new` from the start of the allocation."""
        start = self.offset * self.itemsize // new.itemsize
        if offset is None:
            return start
        (offset,) = whole_numbers("offset", (offset,))
        if not start:
            return offset
        meaning = resolve(current_scope().settings.switches)["ap_view_offset"]
        if meaning == "refuse":
            fail(
                "ap-view-offset",
                "ap with an offset on a view that has one is read differently by two NKI documents",
                "call ap on the whole tensor",
            )
        return offset if meaning == "storage" else start + offset

    def get_pattern(self) -> list[list[int]]:
        """[[step, count], ...] of this view."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape, strict=True)]

    def is_contiguous(self) -> bool:
        """Row-major dense; on chip the partition axis is not looked at."""
        shape, strides = (self.shape[1:], self.strides[1:]) if self.on_chip else (self.shape, self.strides)
        return all(
            have == want for have, want, count in zip(strides, layout.row_major(shape), shape, strict=True) if count > 1
        )

    def covers_partitions(self) -> bool:
        """On chip: whether the view is all bytes of adjacent partitions from 0 on, in their order."""
        adjacent = self.shape[0] == 1 or self.strides[0] == self.partition_stride
        return self.offset == 0 and adjacent and self.free_size == self.partition_stride and self.is_contiguous()

    def is_indirect(self) -> bool:
        """Whether an address is known only when an instruction runs."""
        return False


def ap_steps(tensor: NkiTensor, pattern: Sequence[Sequence[int]], new: DType) -> list[int]:
    """Steps of a pattern over `tensor`, in elements of `new`.

    On chip the first goes from partition to partition: the elements of one in the allocation or, as public kernels
    write it, in this view.
    """
    steps = list(whole_numbers("a pattern", [step for step, _ in pattern]))
    if tensor.on_chip and pattern[0][1] > 1:
        stride = tensor.storage.tile.nbytes // new.itemsize
        if steps[0] not in (stride, math.prod(tensor.shape[1:]) * tensor.itemsize // new.itemsize):
            fail("ap-partition", f"ap on chip starts with the partition step {stride}, got {steps[0]}")
        steps[0] = stride
    return steps


def _fill_minus_one(shape: Sequence[int], total: int, tensor: NkiTensor) -> tuple[int, ...]:
    sizes = list(whole_numbers("shape", shape))
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known and total % known == 0:
        sizes[sizes.index(-1)] = total // known
    if min(sizes, default=0) < 1 or math.prod(sizes) != total:
        fail("view-reshape", f"{tensor!r} has {total} elements there, {list(shape)} has {math.prod(sizes)}")
    return tuple(sizes)
