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
    Descriptors: hardware (hwdge) keeps the dtype; `engine` sync or scalar chooses its queue. Default: arch.DEFAULT_ENGINE.
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
    """ "hw", "sw" or "none". Unknown: hardware where the chip has it and no cast is asked, else software for a cast, else none."""
    casts = dst.dtype != src.dtype
    if asked is DgeMode.hwdge:
        require_generation("dma_copy", core, 3, "dma_copy with hwdge")
        if casts:
            fail("hwdge-cast", f"dma_copy with hwdge moves raw bytes, dst is {dst.dtype} and src is {src.dtype}", "use .view() or dge_mode swdge")
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
