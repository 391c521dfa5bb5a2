"""NkiScalar: an integer computed on the device, which kernels from NKI 0.7 on do arithmetic with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels_neuron.sim.context import current_core
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.register import VirtualRegister
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.versions import SINCE, require_version

from .prices import NO_FACTS, PRICES
from .rules import require_tensor
from .table import TABLE


class NkiScalar(VirtualRegister):
    """A 32-bit signed integer whose value the kernel's Python never sees.

    +, - and * with integers and other scalars give new scalars and wrap at 32 bits. It is a scalar_offset of a view
    and a bound of nl.fori_loop, wherever a register is. Each operation is one sequencer instruction.
    Source: NKI ISA reference 0.7, NkiScalar.
    """

    __slots__ = ()

    def __init__(self, state: Any = None, dtype: Any = None, is_comparison: bool = False) -> None:
        if dtype not in (None, "int32"):
            fail("scalar-dtype", f"a scalar is an int32, got {dtype}")
        super().__init__(None if state is None else _signed(int(state)), frozen=True)

    @property
    def dtype(self) -> str:
        """The width, which every value derived from this one has too."""
        return "int32"

    def __repr__(self) -> str:
        return "a scalar"

    def _with(self, other: Any, compute: Callable[[int, int], int]) -> NkiScalar:
        if not isinstance(other, (int, np.integer, NkiScalar)) or isinstance(other, bool):
            fail("register-operand", f"a scalar computes with integers and scalars, got {other!r}")
        operands = [operand.value if isinstance(operand, NkiScalar) else int(operand) for operand in (self, other)]
        core = current_core("a scalar")
        core.issue("scalar_arithmetic", [Step("sync", PRICES["register_move"](core.arch, NO_FACTS))])
        return NkiScalar(None if None in operands else compute(*operands))  # type: ignore[arg-type]

    def __add__(self, other: Any) -> NkiScalar:  # type: ignore[override]
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> NkiScalar:  # type: ignore[override]
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> NkiScalar:  # type: ignore[override]
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> NkiScalar:  # type: ignore[override]
        return self._with(other, lambda a, b: a * b)

    def __neg__(self) -> NkiScalar:  # type: ignore[override]
        return self._with(0, lambda a, b: b - a)

    __radd__, __rmul__ = __add__, __mul__  # type: ignore[assignment]


def _signed(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def scalar_load(src: NkiTensor) -> NkiScalar:
    """A scalar with the one element of src, an int32 in SBUF or HBM.

    Priced as register_load. Source: NKI ISA reference 0.7, scalar_load.
    """
    core = _core("scalar_load")
    _require_word("scalar_load", "src", src)
    register = VirtualRegister()
    TABLE["register_load"](register, src)
    core.dynamic = True
    return NkiScalar(register.value)


def scalar_store(dst: NkiTensor, value: NkiScalar) -> None:
    """dst = value, into one int32 element of SBUF or HBM.

    Priced as register_store. Source: NKI ISA reference 0.7, scalar_store.
    """
    _core("scalar_store")
    if not isinstance(value, NkiScalar):
        fail("register-operand", f"scalar_store takes a scalar as value, got {value!r}", "fill a tile with nisa.memset")
    _require_word("scalar_store", "dst", dst)
    TABLE["register_store"](dst, value)


def _core(name: str) -> NeuronCore:
    core = current_core(f"nki.isa.{name}")
    require_version(core, f"nisa.{name}", SINCE[f"nisa.{name}"])
    return core


def _require_word(name: str, operand: str, tensor: Any) -> None:
    if require_tensor(name, operand, tensor).dtype != "int32":
        fail("operand-dtype", f"{name} takes {operand} of int32, got {tensor.dtype}", "cast it with tensor_copy first")
