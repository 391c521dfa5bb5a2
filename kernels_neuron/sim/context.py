"""The one ambient thing: which core is being run, and who collects the runs.

NKI functions are free functions, so a single ContextVar names the scope. It is set and reset with its token here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kernels_neuron.arch import Arch, chip, default_chip
from kernels_neuron.settings import Settings

from .locate import fail
from .trace import Trace

if TYPE_CHECKING:
    from .core import NeuronCore


@dataclass
class Run:
    """One launch of one kernel: a trace per program, and the chip and grid it ran with."""

    kernel: str
    arch: Arch
    lnc: int
    traces: list[Trace]

    @property
    def instructions(self) -> int:
        """NKI instructions executed by all programs."""
        return sum(trace.instructions for trace in self.traces)


@dataclass
class Scope:
    """Chip, settings and collected runs of a `using` block; `core` is set while a kernel body runs.

    launching  True from the start of a launch to its end, copies to and from the device included
    """

    arch: Arch
    settings: Settings
    runs: list[Run] = field(default_factory=list)
    core: "NeuronCore | None" = None
    launching: bool = False


_SCOPE: ContextVar[Scope | None] = ContextVar("kernels_neuron_scope", default=None)


@contextmanager
def using(arch: str | Arch = "trn2", settings: Settings | None = None) -> Iterator[list[Run]]:
    """Run every kernel launched inside, through torch operators too, on `arch` with `settings`; yields the runs."""
    scope = Scope(chip(arch), settings or Settings())
    token = _SCOPE.set(scope)
    try:
        yield scope.runs
    finally:
        _SCOPE.reset(token)


def current_scope() -> Scope:
    """The scope of the enclosing `using` block, else a fresh one with the default chip and settings."""
    return _SCOPE.get() or Scope(default_chip(), Settings())


@contextmanager
def launching(scope: Scope) -> Iterator[None]:
    """While open, is_launching() is True: what the host computes belongs to the simulator, not to the caller."""
    token = _SCOPE.set(Scope(scope.arch, scope.settings, scope.runs, launching=True))
    try:
        yield
    finally:
        _SCOPE.reset(token)


def is_launching() -> bool:
    """Whether a kernel is being launched, run or read back."""
    scope = _SCOPE.get()
    return scope is not None and (scope.launching or scope.core is not None)


@contextmanager
def running(core: "NeuronCore", scope: Scope) -> Iterator[None]:
    """Make `core` the one that NKI functions act on. Overflow and NaN are results there, not warnings."""
    token = _SCOPE.set(Scope(scope.arch, scope.settings, scope.runs, core))
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _SCOPE.reset(token)


def current_core(function: str) -> "NeuronCore":
    """The core being run; `function` is named in the error when there is none."""
    scope = _SCOPE.get()
    if scope is None or scope.core is None:
        fail(
            "outside-kernel",
            f"{function} was called outside a running kernel",
            "call it inside a function decorated with nki.jit",
        )
    return scope.core


def core_or_none() -> "NeuronCore | None":
    """The core being run, or None."""
    scope = _SCOPE.get()
    return scope.core if scope else None


def current_arch() -> Arch:
    """The chip of the scope, else the default chip."""
    scope = _SCOPE.get()
    return scope.arch if scope else default_chip()
