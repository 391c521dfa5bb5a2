"""Registers of the sequencers: constants, single elements of memory, and what loops and addresses read."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels_neuron.sim import array
from kernels_neuron.sim.context import current_core
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.register import REGISTER_DTYPES, VirtualRegister
from kernels_neuron.sim.tensor import NkiTensor

from .prices import NO_FACTS, PRICES, facts
from .rules import HBM, SBUF, require_buffer, require_dtype, require_tensor
from .table import TABLE, dynamic_instruction


def register_alloc(x: Any = None) -> VirtualRegister:
    """A new register, unset, or with the integer `x`, or loaded from the one-element tensor `x`.

    Source: NKI ISA reference, register_alloc; the tensor form as public kernels use it.
    """
    current_core("nki.isa.register_alloc").dynamic = True
    register = VirtualRegister()
    if isinstance(x, NkiTensor):
        TABLE["register_load"](register, x)
    elif x is not None:
        TABLE["register_move"](register, x)
    return register


def _require_register(name: str, operand: str, value: Any) -> VirtualRegister:
    if not isinstance(value, VirtualRegister):
        fail("register-operand", f"{name} takes a register as {operand}, got {value!r}", "make one by register_alloc")
    return value


def _require_element(name: str, operand: str, tensor: Any) -> NkiTensor:
    require_tensor(name, operand, tensor)
    require_buffer(name, operand, tensor, (*SBUF, *HBM))
    require_dtype(name, operand, tensor, REGISTER_DTYPES)
    if tensor.size != 1:
        fail("register-operand", f"{name} takes one element as {operand}, got {tensor!r}")
    return tensor


@dynamic_instruction
def register_move(core: NeuronCore, dst: VirtualRegister, src: int | VirtualRegister) -> Iterator[Step]:
    """dst = src, a constant or another register.

    Engines: the sequencers. Source: NKI ISA reference, register_move; NKI 0.3 migration guide (`imm` became `src`).
    """
    target = _require_register("register_move", "dst", dst)
    if not isinstance(src, (int, np.integer, VirtualRegister)):
        fail("register-operand", f"register_move takes an integer or a register as src, got {src!r}")
    target.write(src.value if isinstance(src, VirtualRegister) else int(src))
    yield Step("sync", PRICES["register_move"](core.arch, NO_FACTS))


@dynamic_instruction
def register_load(core: NeuronCore, dst: VirtualRegister, src: NkiTensor) -> Iterator[Step]:
    """dst = the one element of src.

    Operands: src of one element of at most 32 bits, in HBM or SBUF. Engines: the sequencers.
    Source: NKI ISA reference, register_load.
    """
    target = _require_register("register_load", "dst", dst)
    _require_element("register_load", "src", src)
    if target.frozen:
        target.write(None)
    price = PRICES["register_load"](core.arch, facts("sync", src))
    yield Step("sync", price, reads=(src,))
    target.write(src.array().reshape(-1)[0].item() if core.settings.execute else None)


@dynamic_instruction
def register_store(core: NeuronCore, dst: NkiTensor, src: VirtualRegister) -> Iterator[Step]:
    """dst = src, into one element of memory.

    Operands: dst of one element of at most 32 bits, in HBM or SBUF. Engines: the sequencers.
    Source: NKI ISA reference, register_store.
    """
    _require_element("register_store", "dst", dst)
    value = _require_register("register_store", "src", src).value
    if value is None and core.settings.execute:
        fail("register-unset", "register_store reads a register that nothing has written", "load it first")
    price = PRICES["register_store"](core.arch, facts("sync", dst))

    def effect() -> None:
        if dst.dtype == "float32":
            array.store(dst.target(), np.full(dst.shape, value, np.float32), dst.dtype)
        else:
            # a register holds bits: an unsigned reader of a negative number sees its two's complement
            dst.target()[...] = np.array(int(value or 0) & 0xFFFFFFFF, np.uint32).astype(dst.dtype.numpy)

    yield Step("sync", price, writes=(dst,), effect=effect)
