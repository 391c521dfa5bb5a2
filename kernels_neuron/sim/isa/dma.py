"""DMA instructions: movement between HBM and SBUF with casts, gathers, scatters and sums."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels_neuron.arch import DEFAULT_DGE
from kernels_neuron.dtypes import ROWS, DType
from kernels_neuron.sim import array
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.dynamic import DynamicTensor, access
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import Bytes
from kernels_neuron.sim.races import warn_of_repeats
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.trace import Price, Transfer

from . import prices
from .enums import dge_mode as DgeMode
from .enums import engine as Engine
from .enums import oob_mode as OobMode
from .ops import Op
from .rules import (
    HBM,
    SBUF,
    mark_taken,
    once_per_layout,
    require_buffer,
    require_enum,
    require_generation,
    require_op,
    require_tensor,
)
from .table import dynamic_instruction


@dynamic_instruction
def dma_copy(
    core: NeuronCore,
    dst: NkiTensor,
    src: NkiTensor,
    priority: int | None = None,
    oob_mode: OobMode = OobMode.error,
    dge_mode: DgeMode = DgeMode.unknown,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = src, HBM or SBUF on either side, element by element in row-major order of both views.

    Operands: dst, src in HBM or SBUF, equal element counts; PSUM is refused. Differing dtypes are cast through float32.
    A view with a dynamic offset, or with an index per row ([n, 1], HBM side), gathers from src or scatters to dst. Rows
    out of bounds are an error, or with oob_mode skip left out, which leaves dst as it was.
    Descriptors: hardware (hwdge) keeps the dtype and takes no index per row; none takes no dynamic address; `engine`
    sync or scalar chooses the queue of hardware ones, else arch.DEFAULT_ENGINE.
    Source: NKI ISA reference, dma_copy; DMA overview; descriptor generation engine deep dive.
    """
    trigger, price, pitch, in_runs = _copy_plan(core, dst, src, priority, oob_mode, dge_mode, engine)
    if not isinstance(dst, DynamicTensor) and not isinstance(src, DynamicTensor):
        runs = ((src,), (dst,)) if in_runs else (partition_runs(src), partition_runs(dst))
        yield Step(trigger, price, *runs, functools.partial(_move, core, dst, src, pitch))
        return
    skip = oob_mode is OobMode.skip
    reads, values, kept = read_access(core, "dma_copy", src, skip)
    writes, more, marks, put = write_access(core, "dma_copy", dst, skip, kept)

    def effect() -> None:
        put(values(), src.dtype)

    yield Step(trigger, price, reads=(*reads, *more), writes=writes, effect=effect, marks=marks)


class _CopyPlan(NamedTuple):
    """The engine whose queue starts a copy, its price, where it can be left out, and whether partitions follow on.

    pitch  bytes between partitions if `dst`, all of a tile, can lie on the bytes of `src` in HBM, else 0
    """

    trigger: str
    price: Price
    pitch: int
    in_runs: bool


@once_per_layout
def _copy_plan(
    core: NeuronCore,
    dst: NkiTensor,
    src: NkiTensor,
    priority: int | None,
    oob_mode: OobMode,
    dge_mode: DgeMode,
    engine: Engine,
) -> _CopyPlan:
    require_movable("dma_copy", dst=dst, src=src)
    require_enum("dma_copy", "oob_mode", oob_mode, OobMode)
    dge_mode = as_dge_mode("dma_copy", core, dge_mode)
    require_enum("dma_copy", "engine", engine, Engine)
    if dst.size != src.size:
        fail("dma-size", f"dma_copy takes equal element counts, dst is {dst!r} and src is {src!r}")
    if "packed" in (dst.dtype.row.kind, src.dtype.row.kind) and dst.dtype != src.dtype:
        fail("dma-cast", f"dma_copy does not cast packed dtypes, dst is {dst.dtype} and src is {src.dtype}")
    mode = _dge(core, dst, src, dge_mode)
    trigger = trigger_of("dma_copy", core, dst, mode, engine)
    require_priority("dma_copy", core, priority)
    price = prices.dma(core.arch, transfer_of(settled_shape(dst), settled_shape(src), mode))
    in_runs = all(len(partition_runs(tensor)) == 1 for tensor in (dst, src))
    return _CopyPlan(trigger, price, _shared_pitch(dst, src), in_runs)


def partition_runs(tensor: NkiTensor) -> tuple[NkiTensor, ...]:
    """`tensor` as views of adjacent partitions: what a DMA touches of a tile when it steps over partitions."""
    step = tensor.strides[0]
    if not tensor.on_chip or step in (0, tensor.partition_stride) or tensor.shape[0] == 1:
        return (tensor,)
    return tuple([tensor[row : row + 1] for row in range(tensor.shape[0])])


def require_movable(name: str, **operands: NkiTensor) -> None:
    """Operands that a DMA reaches: HBM or SBUF, and an index per row only for [n, 1] indices."""
    for operand, tensor in operands.items():
        require_tensor(name, operand, tensor)
        require_buffer(name, operand, tensor, (*HBM, *SBUF), "copy a PSUM tile to SBUF with tensor_copy first")
        if isinstance(tensor, DynamicTensor) and tensor.rows:
            assert isinstance(tensor.source, NkiTensor)
            if tensor.source.shape[0] != tensor.shape[0] or tensor.source.free_size != 1:
                fail(
                    "dynamic-offset",
                    f"{name} takes one index per row, [{tensor.shape[0]}, 1], for {operand}, got {tensor.source!r}",
                )


def as_dge_mode(name: str, core: NeuronCore, asked: Any) -> DgeMode:
    """The member asked for; the number behind one is taken where switch raw_dge_mode says so."""
    numbers = {mode.value: mode for mode in DgeMode}
    if type(asked) is int and asked in numbers and core.switches["raw_dge_mode"] == "accept":
        return numbers[asked]
    require_enum(name, "dge_mode", asked, DgeMode)
    return asked


def require_priority(name: str, core: NeuronCore, priority: int | None) -> None:
    """`priority` is None, or 0 to 3 on trn3."""
    if priority is None:
        return
    require_generation(name, core, 4, f"{name} with priority")
    if not isinstance(priority, int) or not 0 <= priority <= 3:
        fail("dma-priority", f"{name} takes priority 0 to 3, 0 the highest, got {priority!r}")


def settled_shape(tensor: NkiTensor) -> NkiTensor:
    """A static stand-in of one extent for the price: rows with an index of their own are pieces of their own."""
    if not isinstance(tensor, DynamicTensor):
        return tensor
    strides = (0, *tensor.strides[1:]) if tensor.rows else tensor.strides
    return NkiTensor(tensor.storage, tensor.shape, strides, tensor.offset, tensor.dtype)


# ---- dynamic operands


def read_access(
    core: NeuronCore, name: str, src: NkiTensor, skip: bool
) -> tuple[Sequence[NkiTensor], Callable[[], np.ndarray], np.ndarray | None]:
    """(tensors read, the values when they run, elements in bounds or None for all) of a source."""
    if not isinstance(src, DynamicTensor):
        return partition_runs(src), src.array, None
    found = access(core, name, src, skip)
    if found.kept.all():
        kept = None
    else:
        kept = np.broadcast_to(found.kept.reshape(-1, *[1] * (src.ndim - 1)), src.shape)
    return (*found.views, *found.sources), found.values, kept


def write_access(
    core: NeuronCore, name: str, dst: NkiTensor, skip: bool, kept: np.ndarray | None
) -> tuple[Sequence[NkiTensor], Sequence[NkiTensor], bool, Callable[[np.ndarray, DType], None]]:
    """(tensors written, tensors read for it, whether all of that is written, what puts values there)."""
    writes: Sequence[NkiTensor]
    if isinstance(dst, DynamicTensor):
        found = access(core, name, dst, skip)
        writes = views = found.views
        sources = found.sources
        slots = [slice(piece.first, piece.first + piece.view.shape[0]) for piece in found.pieces]
    else:
        writes, views, sources, slots = partition_runs(dst), [dst], (), [slice(None)]
    mask = None if kept is None else kept.reshape(dst.shape)
    repeated = _repeated(core, dst, mask)
    where = core.trace.where(core.line()) if repeated is not None else ""

    def put(values: np.ndarray, dtype: DType) -> None:
        values = values.reshape(dst.shape)
        if repeated is not None:
            warn_of_repeats(name, dst, repeated, values, where)
        for view, slot in zip(views, slots, strict=True):
            _put(core, view, values[slot], dtype, None if mask is None else mask[slot])

    return writes, sources, mask is None or not core.settings.execute, put


def _repeated(core: NeuronCore, dst: NkiTensor, mask: np.ndarray | None) -> np.ndarray | None:
    """The row each row of a scatter goes to, where two go to one; None where none do."""
    if not (isinstance(dst, DynamicTensor) and dst.rows and core.settings.execute):
        return None
    assert isinstance(dst.source, NkiTensor)
    rows = dst.source.array().reshape(-1)[: dst.shape[0]].astype(np.int64)
    if mask is not None:  # rows that are left out go nowhere, each in its own way
        rows = np.where(mask.reshape(len(rows), -1).any(axis=1), rows, -1 - np.arange(len(rows)))
    return rows if len(np.unique(rows)) < len(rows) else None


def _put(core: NeuronCore, dst: NkiTensor, values: np.ndarray, dtype: DType, mask: np.ndarray | None) -> None:
    """Write `values` of `dtype` into `dst`, where `mask` allows; the bytes of a masked write are marked here."""
    target = dst.target()
    if dst.dtype != dtype:
        cast = np.empty(dst.shape, target.dtype)
        array.store(cast, array.f32(values), dst.dtype, core.switches["fp8_overflow"])
        values = cast
    if mask is None:
        target[...] = values
        return
    np.copyto(target, values, where=mask)
    mark_taken(dst, mask)


def _move(core: NeuronCore, dst: NkiTensor, src: NkiTensor, pitch: int) -> None:
    there = src.storage.look()
    if pitch and there.shared and dst.shape[0] == dst.storage.tile.partitions:
        start = there.start + src.offset * src.itemsize
        dst.storage.lie_on(Bytes(there.buffer, start, pitch, shared=True))
        return
    target, values = dst.target(), src.array()
    if dst.dtype == src.dtype:
        target[...] = values.reshape(target.shape)
    else:
        array.store(target, array.f32(values), dst.dtype, core.switches["fp8_overflow"])


def _shared_pitch(dst: NkiTensor, src: NkiTensor) -> int:
    rows, size = dst.shape[0], dst.free_size
    run = contiguous_run(src)
    if not dst.on_chip or not dst.covers_partitions() or src.on_chip or dst.dtype != src.dtype or run % size:
        return 0
    if run == src.size:
        return size * src.itemsize
    outer = [
        (count, stride) for count, stride in zip(src.shape, src.strides, strict=True) if count > 1 and stride >= size
    ]
    return outer[0][1] * src.itemsize if run == size and len(outer) == 1 and outer[0][0] == rows else 0


def _dge(core: NeuronCore, dst: NkiTensor, src: NkiTensor, asked: DgeMode) -> str:
    """ "hw", "sw" or "none": what was asked for, else arch.DEFAULT_DGE."""
    casts = dst.dtype != src.dtype
    dynamic = [tensor for tensor in (dst, src) if isinstance(tensor, DynamicTensor)]
    indexed = any(tensor.rows for tensor in dynamic)
    if asked is DgeMode.hwdge:
        require_generation("dma_copy", core, 3, "dma_copy with hwdge")
        if casts:
            fail(
                "hwdge-cast",
                f"dma_copy with hwdge moves raw bytes, dst is {dst.dtype} and src is {src.dtype}",
                "use .view() or dge_mode swdge",
            )
        if indexed:
            fail("dge-dynamic", "dma_copy with hwdge takes no index per row", "use dge_mode swdge or unknown")
        return "hw"
    if asked is DgeMode.none and dynamic:
        fail("dge-dynamic", "dma_copy with dge_mode none takes no dynamic address, its descriptors are made beforehand")
    if asked is DgeMode.swdge:
        return "sw"
    if indexed:
        return DEFAULT_DGE["row index"]
    if asked is DgeMode.none:
        return "none"
    if not core.arch.hardware_dge:
        return DEFAULT_DGE[f"{'dynamic' if dynamic else 'static'}, without hardware DGE"]
    return DEFAULT_DGE["cast" if casts else "plain"]


def trigger_of(name: str, core: NeuronCore, dst: NkiTensor, mode: str, asked: Engine) -> str:
    """The engine whose queue starts the DMA: the one asked for, GpSimdE for software descriptors, else the default."""
    if asked not in (Engine.unknown, Engine.sync, Engine.scalar):
        fail("dma-engine", f"{name} takes engine sync or scalar, got {asked.name}")
    if asked is not Engine.unknown:
        if mode != "hw":
            fail("dma-engine", f"{name} takes an engine only with hwdge")
        return asked.name
    if mode == "sw":
        return "gpsimd"
    return core.arch.default_engine["dma_store" if dst.buffer in HBM else "dma_load"]


def transfer_of(dst: NkiTensor, src: NkiTensor, mode: str, rate: float = 1.0) -> Transfer:
    """The descriptors of a copy: pieces contiguous on both sides, counted on the larger side of a cast."""
    on_chip = dst if dst.on_chip else src if src.on_chip else None
    direction = "load" if dst.on_chip and not src.on_chip else "store" if src.on_chip and not dst.on_chip else "copy"
    run = min(contiguous_run(dst), contiguous_run(src))
    itemsize = max(ROWS[dst.dtype].itemsize, ROWS[src.dtype].itemsize)
    p0, partitions = (on_chip.start_partition, on_chip.shape[0]) if on_chip is not None else (0, 128)
    return Transfer(direction, max(1, dst.size // run), run * itemsize, p0, partitions, mode, rate)


def contiguous_run(tensor: NkiTensor) -> int:
    """Elements that lie next to each other in memory, at the end of the view; a partition ends one on chip."""
    run = 1
    dims = list(zip(tensor.shape, tensor.strides, strict=True))[1 if tensor.on_chip else 0 :]
    for count, stride in reversed(dims):
        if count == 1:
            continue
        if stride != run:
            break
        run *= count
    return run


_MAX_SOURCES = 16


@dynamic_instruction
def dma_compute(
    core: NeuronCore,
    dst: NkiTensor,
    srcs: Sequence[NkiTensor],
    reduce_op: Op,
    scales: Sequence[float] | None = None,
    unique_indices: bool = True,
    oob_mode: OobMode = OobMode.error,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = sum of srcs in float32, as the data passes through the DMA engines.

    Operands: dst and 1 to 16 srcs in HBM or SBUF, equal element counts; reduce_op nl.add; scales None or all 1.0.
    An index per row makes it read, modify and write, with two srcs and unique indices: dst[index] += src (one src is
    dst's own rows, the other in SBUF), or dst += src[index] (dst in SBUF is one of the srcs). oob_mode skip leaves
    out rows out of bounds.
    Rate: half of a copy's before trn3. Source: NKI ISA reference, dma_compute; architecture guide 4.
    """
    sources = tuple(srcs) if isinstance(srcs, Sequence) else (srcs,)
    if not 1 <= len(sources) <= _MAX_SOURCES:
        fail("dma-sources", f"dma_compute takes 1 to {_MAX_SOURCES} srcs, got {len(sources)}")
    require_movable("dma_compute", dst=dst, **{f"srcs[{i}]": source for i, source in enumerate(sources)})
    require_enum("dma_compute", "oob_mode", oob_mode, OobMode)
    for source in sources:
        if source.size != dst.size:
            fail("dma-size", f"dma_compute takes equal element counts, dst is {dst!r} and a src is {source!r}")
    if require_op("dma_compute", "reduce_op", reduce_op).name != "add":
        fail("op-kind", f"dma_compute adds, got reduce_op={reduce_op!r}")
    listed = isinstance(scales, (tuple, list)) and len(scales) == len(sources)
    if scales is not None and not (listed and all(scale == 1.0 for scale in scales)):
        fail("dma-scales", f"dma_compute takes scales None or 1.0 for each src, got {scales!r}")
    indexed = [tensor for tensor in (dst, *sources) if isinstance(tensor, DynamicTensor)]
    if indexed:
        _require_read_modify_write(dst, sources, unique_indices)
    elif oob_mode is OobMode.skip:
        fail("oob-mode", "dma_compute takes oob_mode skip with an index per row, and only then")
    mode = "sw" if indexed else "none"
    rate = 1.0 if core.arch.generation >= 4 else 0.5
    widest = max(sources, key=lambda source: source.itemsize)
    price = prices.dma(core.arch, transfer_of(settled_shape(dst), settled_shape(widest), mode, rate))
    yield _sum_step(core, dst, sources, oob_mode is OobMode.skip, mode, price)


def _sum_step(
    core: NeuronCore, dst: NkiTensor, sources: tuple[NkiTensor, ...], skip: bool, mode: str, price: Any
) -> Step:
    reads: list[NkiTensor] = []
    terms: list[Callable[[], np.ndarray]] = []
    kept: np.ndarray | None = None
    for source in sources:
        touched, values, inside = read_access(core, "dma_compute", source, skip)
        reads.extend(touched)
        terms.append(values)
        if inside is not None:
            mask = inside.reshape(dst.shape)
            kept = mask if kept is None else kept & mask
    writes, more, marks, put = write_access(core, "dma_compute", dst, skip, kept)

    def effect() -> None:
        total = array.f32(terms[0]()).reshape(dst.shape)
        for term in terms[1:]:
            total = total + array.f32(term()).reshape(dst.shape)
        put(total, ROWS["float32"].name)

    trigger = trigger_of("dma_compute", core, dst, mode, Engine.unknown)
    return Step(trigger, price, reads=(*reads, *more), writes=writes, effect=effect, marks=marks)


def _require_read_modify_write(dst: NkiTensor, sources: tuple[NkiTensor, ...], unique_indices: bool) -> None:
    if len(sources) != 2 or not unique_indices:
        fail("dma-modify", f"dma_compute with an index takes two srcs and unique_indices=True, got {len(sources)} srcs")
    if isinstance(dst, DynamicTensor):
        fits = any(isinstance(s, DynamicTensor) and s.storage is dst.storage for s in sources)
        other = [s for s in sources if not isinstance(s, DynamicTensor)]
        fits = fits and len(other) == 1 and other[0].on_chip
    else:
        fits = dst.on_chip and any(s.storage is dst.storage for s in sources)
    if not fits:
        fail(
            "dma-modify",
            f"dma_compute with an index has dst among its srcs and the other side in SBUF, dst is {dst!r} and srcs are "
            f"{', '.join(map(repr, sources))}",
            "list the same indexed view as dst and as a src to scatter, or an SBUF dst as a src to gather",
        )
