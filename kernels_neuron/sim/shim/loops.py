"""Loops that run on the device, which the simulator runs as Python loops over a register."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernels_neuron.sim.context import core_or_none, current_core
from kernels_neuron.sim.core import NeuronCore
from kernels_neuron.sim.isa.scalars import NkiScalar
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.register import VirtualRegister, known
from kernels_neuron.sim.versions import SINCE, api_version, require_version

Bound = int | VirtualRegister


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """`range`; the three range forms of older NKI versions behave alike."""
    for bound in (start, stop, step):
        if isinstance(bound, VirtualRegister):
            fail("loop-bound", "a static range takes bounds known while tracing, got a register", "use nl.fori_loop")
    return range(start) if stop is None else range(start, stop, step)


affine_range = sequential_range = static_range


@contextmanager
def no_reorder() -> Iterator[None]:
    """Keep the instructions inside in program order; dynamic loops cannot sit inside."""
    core = core_or_none()
    if core is None:
        yield
        return
    first = core.trace.instructions
    core.pinned += 1
    try:
        yield
    finally:
        core.pinned -= 1
        core.trace.in_order.append((first, core.trace.instructions))


@contextmanager
def _body(core: NeuronCore) -> Iterator[None]:
    """One iteration of a dynamic loop: what it issues belongs to the loop."""
    before = core.loops
    core.loops = (*before, core.trace.instructions)
    try:
        yield
    finally:
        core.loops = before


def _enter(name: str) -> NeuronCore:
    core = current_core(name)
    core.dynamic = True
    if core.pinned:
        fail("no-reorder-loop", f"{name} cannot sit inside nl.no_reorder", "put no_reorder inside the loop's body")
    return core


def _bounds(name: str, start: Any, stop: Any, step: Any) -> range:
    if not isinstance(step, (int, np.integer)) or step < 1:
        fail("loop-bound", f"{name} counts up by a positive step known while tracing, got {step!r}")
    for bound in (start, stop):
        if not isinstance(bound, (int, np.integer, VirtualRegister)):
            fail("loop-bound", f"{name} takes integers or registers as bounds, got {bound!r}")
    return range(known(start, f"a bound of {name}"), known(stop, f"a bound of {name}"), int(step))


def fori_loop(lower: Bound, upper: Bound, body_fun: Callable[[VirtualRegister], Any], step: int = 1) -> None:
    """body_fun(i) for i from lower to upper by step; state goes through SBUF and HBM.

    i is an NkiScalar, or a register where a bound is one, and always before NKI 0.7.
    """
    core = _enter("nl.fori_loop")
    require_version(core, "nl.fori_loop", SINCE["nl.fori_loop"])
    registers = any(type(bound) is VirtualRegister for bound in (lower, upper))
    scalars = not registers and api_version(core.settings.nki) >= (0, 7)
    for i in _bounds("nl.fori_loop", lower, upper, step):
        with _body(core):
            result = body_fun(NkiScalar(i) if scalars else VirtualRegister(i, frozen=True))
        if result is not None:
            fail("loop-body", f"the body of nl.fori_loop returns nothing, got {result!r}", "keep state in a tile")


def while_loop(init: VirtualRegister, body_fun: Callable[[VirtualRegister], VirtualRegister]) -> None:
    """register = body_fun(register) while the register is not 0, tested before each turn."""
    core = _enter("nl.while_loop")
    require_version(core, "nl.while_loop", SINCE["nl.while_loop"])
    register = init
    while True:
        if not isinstance(register, VirtualRegister):
            fail("loop-body", f"nl.while_loop takes and its body returns a register, got {register!r}")
        if known(register, "the condition of nl.while_loop") == 0:
            return
        with _body(core):
            register = body_fun(register)


def dynamic_range(start: Bound, stop: Bound | None = None, step: int = 1) -> Iterator[VirtualRegister]:
    """The dynamic loop of NKI before 0.7: a register that counts from start to stop."""
    core = _enter("nl.dynamic_range")
    if api_version(core.settings.nki) >= (0, 7):
        fail("retired", "nl.dynamic_range is gone since NKI 0.7", "use nl.fori_loop(lower, upper, body)")
    return _dynamic(
        core, _bounds("nl.dynamic_range", 0 if stop is None else start, start if stop is None else stop, step)
    )


def _dynamic(core: NeuronCore, numbers: range) -> Iterator[VirtualRegister]:
    for i in numbers:
        with _body(core):
            yield VirtualRegister(i, frozen=True)
