"""TABLE: every instruction by name, filled by the `instruction` decorator, read by shim, linter, coverage and docs."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernels_neuron.sim.context import current_core
from kernels_neuron.sim.core import Step
from kernels_neuron.sim.locate import fail

Body = Callable[..., Iterator[Step]]


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name, its body (first parameter `core`), and the signature kernels see (without `core`)."""

    name: str
    body: Body
    signature: inspect.Signature

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Issue the instruction on the core being run."""
        core = current_core(f"nki.isa.{self.name}")
        try:
            steps = self.body(core, *args, **kwargs)
        except TypeError:
            _explain_call(self, args, kwargs)
            raise
        core.issue(self.name, steps)


TABLE: dict[str, Instruction] = {}


def instruction(body: Body) -> Body:
    """Enter `body`, a generator of Steps, in TABLE under its own name."""
    parameters = list(inspect.signature(body).parameters.values())[1:]
    TABLE[body.__name__] = Instruction(body.__name__, body, inspect.Signature(parameters))
    return body


def public(entry: Instruction) -> Callable[..., None]:
    """The function that kernels call: the instruction's docstring and signature, acting on the core being run."""

    @functools.wraps(entry.body)
    def call(*args: Any, **kwargs: Any) -> None:
        entry(*args, **kwargs)

    call.__signature__ = entry.signature  # type: ignore[attr-defined]
    return call


def _explain_call(entry: Instruction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        entry.signature.bind(*args, **kwargs)
    except TypeError as error:
        fail("call-signature", f"{entry.name}: {error}", f"the signature is {entry.name}{entry.signature}")
