"""dma_transpose: transposes on the way."""

from collections.abc import Iterator

import numpy as np

from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.dynamic import DynamicTensor, access
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.trace import Price, Transfer

from . import prices
from .dma import as_dge_mode, partition_runs, require_priority, transfer_of, trigger_of
from .enums import dge_mode as DgeMode
from .enums import engine as Engine
from .enums import oob_mode as OobMode
from .rules import HBM, SBUF, mark_taken, require_buffer, require_enum, require_generation, require_tensor
from .table import dynamic_instruction

_TRANSPOSE_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
_TRANSPOSE_FIRST = (1, 2, 4, 8, 16)


@dynamic_instruction
def dma_transpose(
    core: NeuronCore,
    dst: NkiTensor,
    src: NkiTensor,
    axes: tuple[int, ...] | None = None,
    priority: int | None = None,
    dge_mode: DgeMode = DgeMode.unknown,
    oob_mode: OobMode = OobMode.error,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = src with its axes reversed as (1, 0), (2, 1, 0) or (3, 1, 2, 0), bit for bit.

    Operands: dst in SBUF with exactly the permuted shape, src in HBM or SBUF, one dtype of 2 or 4 bytes.
    With dge_mode hwdge: 2 bytes, src.shape[-1] <= 128; 2-D: src.shape[0] is 16; 3-D and 4-D: src.shape[0] is 1, 2, 4, 8
    or 16, and times shape[-2] a multiple of 16. unknown takes the hardware where it can, else prepared descriptors, for
    which no limit is documented and public kernels keep none.
    With an index per row: src in HBM, src.shape[0] a multiple of 16, of 4 dims one of the middle two is 1; indices
    uint32, [n, k] read column by column, n a multiple of 16 up to 128, and 128 where k > 1; oob_mode skip leaves out
    rows out of bounds.
    Rate: 90 % of a copy from HBM, 50 % from SBUF. Source: NKI ISA reference, dma_transpose; architecture guide 3.
    """
    require_tensor("dma_transpose", "dst", dst)
    require_tensor("dma_transpose", "src", src)
    require_generation("dma_transpose", core, 3)
    require_buffer("dma_transpose", "dst", dst, SBUF)
    require_buffer("dma_transpose", "src", src, (*HBM, *SBUF), "copy a PSUM tile to SBUF with tensor_copy first")
    dge_mode = as_dge_mode("dma_transpose", core, dge_mode)
    require_enum("dma_transpose", "oob_mode", oob_mode, OobMode)
    require_priority("dma_transpose", core, priority)
    indexed = isinstance(src, DynamicTensor) and src.rows
    asked = ("unknown", "swdge") if indexed else ("unknown", "hwdge", "none")
    if dge_mode.name not in asked:
        kind = "an indexed" if indexed else "a direct"
        fail(
            "dma-transpose",
            f"dma_transpose of {kind} source takes dge_mode {' or '.join(asked)}, got {dge_mode.name}",
        )
    if isinstance(dst, DynamicTensor):
        fail("dma-transpose", f"dma_transpose writes to a static view, got {dst!r}")
    order = _transpose_order(dst, src, axes)
    mode = _mode(src, dge_mode)
    if oob_mode is OobMode.skip and not isinstance(src, DynamicTensor):
        fail("oob-mode", "dma_transpose takes oob_mode skip with a dynamic source, and only then")
    price = _price(core, dst, src, mode)
    trigger = trigger_of("dma_transpose", core, dst, mode, Engine.unknown)
    if not isinstance(src, DynamicTensor):

        def effect() -> None:
            dst.target()[...] = src.array().transpose(order)

        yield Step(trigger, price, reads=partition_runs(src), writes=partition_runs(dst), effect=effect)
        return
    yield _dynamic_step(core, dst, src, order, oob_mode is OobMode.skip, trigger, price)


def _dynamic_step(
    core: NeuronCore,
    dst: NkiTensor,
    src: DynamicTensor,
    order: tuple[int, ...],
    skip: bool,
    trigger: str,
    price: Price,
) -> Step:
    found = access(core, "dma_transpose", src, skip)

    def effect() -> None:
        kept = np.broadcast_to(found.kept.reshape(-1, *[1] * (src.ndim - 1)), src.shape).transpose(order)
        np.copyto(dst.target(), found.values().transpose(order), where=kept)
        if not found.kept.all():
            mark_taken(dst, kept)

    marks = bool(found.kept.all())
    reads = (*found.views, *found.sources)
    return Step(trigger, price, reads=reads, writes=partition_runs(dst), effect=effect, marks=marks)


def _price(core: NeuronCore, dst: NkiTensor, src: NkiTensor, mode: str) -> Price:
    rate = 0.5 if src.on_chip else 0.9  # [arch3]
    stand_in = NkiTensor(src.storage, src.shape, src.strides, src.offset, src.dtype)
    transfer = transfer_of(dst, stand_in, mode, rate)
    rows, row_bytes = src.size // src.shape[-1], src.shape[-1] * src.itemsize
    row = Transfer(transfer.direction, rows, row_bytes, transfer.p0, transfer.partitions, mode, rate)
    return prices.dma(core.arch, row)


def _transpose_order(dst: NkiTensor, src: NkiTensor, axes: tuple[int, ...] | None) -> tuple[int, ...]:
    order = _TRANSPOSE_AXES.get(src.ndim)
    given = tuple(axes) if isinstance(axes, (tuple, list)) else axes
    if order is None or (axes is not None and given != order):
        fail(
            "dma-transpose",
            f"dma_transpose permutes 2-D by (1, 0), 3-D by (2, 1, 0), 4-D by (3, 1, 2, 0), got {src!r} and axes {axes}",
        )
    if src.dtype != dst.dtype or src.itemsize not in (2, 4):
        fail(
            "dma-transpose", f"dma_transpose takes one dtype of 2 or 4 bytes, src is {src.dtype} and dst is {dst.dtype}"
        )
    if isinstance(src, DynamicTensor) and src.rows:
        _require_indexed(src)
    want = tuple(src.shape[axis] for axis in order)
    if dst.shape != want:
        fail("dma-transpose", f"dma_transpose of {src!r} gives {list(want)}, dst is {dst!r}")
    return order


def _mode(src: NkiTensor, asked: DgeMode) -> str:
    """Who makes the descriptors: GpSimdE with an index, the hardware where it can, else the host before the run."""
    if isinstance(src, DynamicTensor) and src.rows:
        return "sw"
    first_ok = (
        src.shape[0] == 16
        if src.ndim == 2
        else src.shape[0] in _TRANSPOSE_FIRST and src.shape[0] * src.shape[-2] % 16 == 0
    )
    by_hardware = first_ok and src.shape[-1] <= 128 and src.itemsize == 2
    if asked is DgeMode.hwdge and not by_hardware:
        fail(
            "dma-transpose",
            "dma_transpose by hwdge takes 2-byte elements, [16, n], or [a, ..., b, n] with a in 1, 2, 4, 8, 16 and a*b "
            f"a multiple of 16, n at most 128; got {src!r}",
            "leave dge_mode out, split the source, or transpose on TensorE",
        )
    return "hw" if by_hardware and asked is not DgeMode.none else "none"


def _require_indexed(src: NkiTensor) -> None:
    assert isinstance(src, DynamicTensor) and isinstance(src.source, NkiTensor)
    rows, columns = src.source.shape[0], src.source.free_size
    if src.dtype.itemsize != 2 or src.shape[0] % 16 or src.shape[-1] > 128:
        fail("dma-transpose", f"dma_transpose takes [16 k, ..., n] of 2-byte elements, n at most 128, got {src!r}")
    if src.ndim == 4 and 1 not in src.shape[1:3]:
        fail("dma-transpose", f"dma_transpose of an indexed 4-D source takes one middle dim of 1, got {src!r}")
    if src.source.dtype != "uint32" or rows % 16 or not 16 <= rows <= 128 or (columns > 1 and rows != 128):
        fail(
            "dma-transpose",
            f"dma_transpose takes uint32 indices on 16 to 128 partitions, a multiple of 16, and on 128 for several "
            f"columns, got {src.source!r}",
        )
