"""Runs that are kept as programs: what a launch did to its bytes, to be done again to other arguments of the same kind.

TorchNeuron compiles the kernel behind an operator once for arguments of one kind (shapes, dtypes, and the values of all
that is no tensor) and then runs what it has compiled; its Python runs no more. So does the simulator where a kernel is
launched that way, and saves all checks and prices, which would say the same again. A run whose course depends on values
is not kept: one with registers, dynamic addresses or loops, printed tiles, or reads of unwritten bytes.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from .memory import FRESH, Bytes, Storage
from .products import Products

if TYPE_CHECKING:
    from .core import NeuronCore, Step
    from .tensor import NkiTensor

# of all programs of one kernel: effects with a step, and kinds of arguments, those that are no program too
MAX_STEPS, MAX_KINDS = 30_000, 256


class Program:
    """The effects of a run in order, and when the bytes of each tile were used for the last time.

    core    whose accumulators, random numbers and waiting products the effects use
    inputs  the allocations of arguments, by name
    """

    def __init__(self, core: NeuronCore, steps: Sequence[Step], inputs: Mapping[str, Storage]) -> None:
        self.core = core
        self.inputs = inputs
        self._effects: list[Callable[[], None]] = []
        self._busy = threading.Lock()
        views: dict[int, NkiTensor] = {}
        last: dict[Storage, int] = {}
        for step in steps:
            for tensor in (*step.reads, *step.writes):
                views[id(tensor)] = tensor
                # what a step without effect fetches is used by the next one
                last[tensor.storage] = len(self._effects)
            if step.effect is not None:
                self._effects.append(step.effect)
        self._views = list(views.values())  # they keep an array over the bytes they saw last
        self._fresh = [storage for storage in last if not storage.is_input]
        self._used_up: dict[int, list[Storage]] = {}
        for storage in self._fresh:
            if storage.on_chip:  # what is in HBM may be an output
                self._used_up.setdefault(last[storage], []).append(storage)

    def __len__(self) -> int:
        return len(self._effects)

    @contextmanager
    def played(self, arguments: Mapping[str, np.ndarray]) -> Iterator[None]:
        """Do it all to `arguments`, contiguous arrays by name; inside, the allocations hold what came out.

        Raises BusyError where another thread has got so far.
        """
        if not self._busy.acquire(blocking=False):
            raise BusyError
        try:
            self._begin(arguments)
            products = self.core.products
            with np.errstate(all="ignore"):  # overflow and NaN are results
                for index, effect in enumerate(self._effects):
                    effect()
                    for storage in self._used_up.get(index, ()):
                        products.forget(storage)
                        storage.forget_bytes()
            yield
        finally:
            self.clear()
            self._busy.release()

    def _begin(self, arguments: Mapping[str, np.ndarray]) -> None:
        for sums in self.core.accumulators.values():
            sums[...] = 0
        for storage in self._fresh:
            storage.due = FRESH
        for name, storage in self.inputs.items():
            storage.lie_on(Bytes.of(arguments[name]))

    def clear(self) -> None:
        """Let go of all bytes, the caller's too."""
        self.core.products, self.core.generators = Products(), {}
        for storage in (*self._fresh, *self.inputs.values()):
            storage.forget_bytes()
        for view in self._views:
            view.forget_array()


class BusyError(Exception):
    """Another thread is playing the program."""


class NeedsValuesError(Exception):
    """A kernel looks at values while it is made a program, when there are none."""


def _no_breakpoint(*_: Any, **__: Any) -> None:
    raise NeedsValuesError


@contextmanager
def recording(core: NeuronCore) -> Iterator[None]:
    """While open, steps of `core` are kept; a breakpoint is one more look at values."""
    core.steps = []
    before, sys.breakpointhook = sys.breakpointhook, _no_breakpoint
    try:
        yield
    finally:
        sys.breakpointhook = before


class Programs:
    """The programs of one kernel by the kind of their arguments, the latest used last; None for a run not kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """What is kept under `key`, else what `make` gives: an object with a length, or None."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > MAX_KINDS or self._steps() > MAX_STEPS:
                self._kept.popitem(last=False)
        return made

    def _steps(self) -> int:
        return sum(len(each) for each in self._kept.values() if each is not None)

    def give_up(self, key: Any) -> None:
        """Keep no program of this kind from now on."""
        with self._lock:
            self._kept[key] = None
