"""DMA instructions: movement between HBM and SBUF, with the cast and transpose forms."""

from collections.abc import Iterator

from kernels_neuron.arch import DEFAULT_ENGINE
from kernels_neuron.dtypes import ROWS
from kernels_neuron.sim import array
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.trace import Transfer

from . import prices
from .enums import dge_mode as DgeMode
from .enums import engine as Engine
from .enums import oob_mode as OobMode
from .rules import HBM, SBUF, require_buffer, require_generation, require_tensor
from .table import instruction


@instruction
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
    Descriptors: hardware (hwdge) keeps the dtype; `engine` sync or scalar chooses its queue, else arch.DEFAULT_ENGINE.
    Source: NKI ISA reference, dma_copy; DMA overview.
    """
    for operand, tensor in (("dst", dst), ("src", src)):
        require_tensor("dma_copy", operand, tensor)
        require_buffer("dma_copy", operand, tensor, (*HBM, *SBUF), "copy a PSUM tile to SBUF with tensor_copy first")
    if dst.size != src.size:
        fail("dma-size", f"dma_copy takes equal element counts, dst is {dst!r} and src is {src!r}")
    mode = _dge(core, dst, src, dge_mode)
    trigger = _trigger("dma_copy", core, dst, mode, engine)
    if priority is not None:
        require_generation("dma_copy", core, 4, "dma_copy with priority")
    price = prices.dma(core.arch, transfer_of(dst, src, mode))
    yield Step(trigger, price, reads=(src,), writes=(dst,), effect=lambda: _move(core, dst, src))


def _move(core: NeuronCore, dst: NkiTensor, src: NkiTensor) -> None:
    target, values = dst.array(), src.array()
    if dst.dtype == src.dtype:
        target[...] = values.reshape(target.shape)
    else:
        array.store(target, array.f32(values), dst.dtype, core.switches["fp8_overflow"])


def _dge(core: NeuronCore, dst: NkiTensor, src: NkiTensor, asked: DgeMode) -> str:
    """ "hw", "sw" or "none". Unknown: hardware where the chip has it, software for a cast, none on older chips."""
    casts = dst.dtype != src.dtype
    if asked is DgeMode.hwdge:
        require_generation("dma_copy", core, 3, "dma_copy with hwdge")
        if casts:
            fail(
                "hwdge-cast",
                f"dma_copy with hwdge moves raw bytes, dst is {dst.dtype} and src is {src.dtype}",
                "use .view() or dge_mode swdge",
            )
        return "hw"
    if asked is DgeMode.swdge:
        return "sw"
    if asked is DgeMode.none:
        return "none"
    if not core.arch.hardware_dge:
        return "none"
    return "sw" if casts else "hw"


def _trigger(name: str, core: NeuronCore, dst: NkiTensor, mode: str, asked: Engine) -> str:
    if asked not in (Engine.unknown, Engine.sync, Engine.scalar):
        fail("dma-engine", f"{name} takes engine sync or scalar, got {asked.name}")
    if asked is not Engine.unknown:
        if mode != "hw":
            fail("dma-engine", f"{name} takes an engine only with hwdge")
        return asked.name
    if mode == "sw":
        return "gpsimd"
    return DEFAULT_ENGINE["dma_store" if dst.buffer in HBM else "dma_load"]


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


_TRANSPOSE_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
_TRANSPOSE_FIRST = (1, 2, 4, 8, 16)


@instruction
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

    Operands: dst in SBUF with exactly the permuted shape, src in HBM or SBUF, one 2-byte dtype; src.shape[-1] <= 128.
    2-D: src.shape[0] is 16. 3-D and 4-D: src.shape[0] is 1, 2, 4, 8 or 16, and times shape[-2] a multiple of 16.
    Rate: 90 % of a copy from HBM, 50 % from SBUF. Source: NKI ISA reference, dma_transpose; architecture guide 3.
    """
    require_tensor("dma_transpose", "dst", dst)
    require_tensor("dma_transpose", "src", src)
    require_generation("dma_transpose", core, 3)
    require_buffer("dma_transpose", "dst", dst, SBUF)
    require_buffer("dma_transpose", "src", src, (*HBM, *SBUF), "copy a PSUM tile to SBUF with tensor_copy first")
    if dge_mode not in (DgeMode.unknown, DgeMode.hwdge):
        fail("dma-transpose", f"dma_transpose of a direct source takes dge_mode unknown or hwdge, got {dge_mode.name}")
    order = _transpose_order(dst, src, axes)
    on_chip_rate = 0.5 if src.on_chip else 0.9  # [arch3]
    transfer = transfer_of(dst, src, "hw", on_chip_rate)
    row = Transfer(
        transfer.direction,
        src.size // src.shape[-1],
        src.shape[-1] * src.itemsize,
        transfer.p0,
        transfer.partitions,
        "hw",
        on_chip_rate,
    )

    def effect() -> None:
        dst.array()[...] = src.array().transpose(order)

    yield Step(
        _trigger("dma_transpose", core, dst, "hw", Engine.unknown),
        prices.dma(core.arch, row),
        reads=(src,),
        writes=(dst,),
        effect=effect,
    )


def _transpose_order(dst: NkiTensor, src: NkiTensor, axes: tuple[int, ...] | None) -> tuple[int, ...]:
    order = _TRANSPOSE_AXES.get(src.ndim)
    if order is None or (axes is not None and tuple(axes) != order):
        fail(
            "dma-transpose",
            f"dma_transpose permutes 2-D by (1, 0), 3-D by (2, 1, 0), 4-D by (3, 1, 2, 0), got {src!r} and axes {axes}",
        )
    if src.dtype != dst.dtype or src.itemsize != 2:
        fail("dma-transpose", f"dma_transpose takes one 2-byte dtype, src is {src.dtype} and dst is {dst.dtype}")
    first_ok = (
        src.shape[0] == 16
        if src.ndim == 2
        else src.shape[0] in _TRANSPOSE_FIRST and src.shape[0] * src.shape[-2] % 16 == 0
    )
    if not first_ok or src.shape[-1] > 128:
        fail(
            "dma-transpose",
            "dma_transpose takes [16, n], or [a, ..., b, n] with a in 1, 2, 4, 8, 16 and a*b a multiple of 16, "
            "n at most 128; "
            f"got {src!r}",
            "split the source, or transpose on TensorE",
        )
    want = tuple(src.shape[axis] for axis in order)
    if dst.shape != want:
        fail("dma-transpose", f"dma_transpose of {src!r} gives {list(want)}, dst is {dst!r}")
    return order
