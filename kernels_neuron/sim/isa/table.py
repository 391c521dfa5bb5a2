"""TABLE: every instruction by name, filled by the `instruction` decorator, read by shim, linter, coverage and docs."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernels_neuron.sim.context import core_or_none, current_core
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.dynamic import DynamicTensor, settled
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.order import NkiInstruction
from kernels_neuron.sim.register import VirtualRegister, known, require_version
from kernels_neuron.sim.tensor import NkiTensor

Body = Callable[..., Iterator[Step]]


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name, its body (first parameter `core`), and the signature kernels see (without `core`).

    dynamic  whether the body itself finds out where dynamic operands lie; others get static views
    since    the first NKI version that has it, None where every version from 0.3 on does
    module   "isa" or "collectives", where kernels find it
    """

    name: str
    body: Body
    signature: inspect.Signature
    dynamic: bool = False
    since: tuple[int, ...] | None = None
    module: str = "isa"

    def __call__(self, *args: Any, **kwargs: Any) -> NkiInstruction:
        """Issue the instruction on the core being run."""
        core = core_or_none() or current_core(f"nki.{self.module}.{self.name}")
        if self.since is not None:
            require_version(core, f"nki.{self.module}.{self.name}", self.since)
        sources: tuple[NkiTensor, ...] = ()
        if core.dynamic and not self.dynamic:
            args, kwargs, sources = _settle(core, self.name, args, kwargs)
        try:
            steps = self.body(core, *args, **kwargs)
        except TypeError:
            _explain_call(self, args, kwargs)
            raise
        index = core.issue(self.name, _reading_too(steps, sources) if sources else steps)
        given = kwargs.get("name")
        if given:
            core.trace.named.setdefault(given, []).append(index)
        return NkiInstruction(core.trace, index, self.name, core.loops)


TABLE: dict[str, Instruction] = {}
COLLECTIVES: dict[str, Instruction] = {}


# NKI release notes, what each version added
_SINCE = {
    "activate2": (0, 4),
    "all_gather_v": (0, 6),
    "all_gather_v_prepare": (0, 7),
    "all_gather_v_trigger": (0, 7),
    "all_to_all_v_prepare": (0, 7),
    "all_to_all_v_trigger": (0, 7),
    "topk": (0, 6),
}


def instruction(body: Body) -> Body:
    """Enter `body`, a generator of Steps, in TABLE under its own name."""
    return _enter(body, dynamic=False)


def collective(body: Body) -> Body:
    """Enter `body` in COLLECTIVES, the functions of nki.collectives that move data."""
    parameters = list(inspect.signature(body).parameters.values())[1:]
    name, signature = body.__name__, inspect.Signature(parameters)
    COLLECTIVES[name] = Instruction(name, body, signature, since=_SINCE.get(name), module="collectives")
    return body


def dynamic_instruction(body: Body) -> Body:
    """As `instruction`, for one that takes dynamic views and registers as they are."""
    return _enter(body, dynamic=True)


def _enter(body: Body, dynamic: bool) -> Body:
    parameters = list(inspect.signature(body).parameters.values())[1:]
    name = body.__name__
    TABLE[name] = Instruction(name, body, inspect.Signature(parameters), dynamic, _SINCE.get(name))
    return body


# a register may stand for `offset` there; NKI release notes 0.4.0
_TAKE_REGISTERS = ("iota", "affine_select")


def _settle(
    core: NeuronCore, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[NkiTensor, ...]]:
    """The arguments with dynamic views put where their index says, and the tiles that held the indices."""
    sources: list[NkiTensor] = []

    def settle(value: Any) -> Any:
        if isinstance(value, DynamicTensor):
            if isinstance(value.source, NkiTensor):
                sources.append(value.source)
            return settled(core, name, value)
        if isinstance(value, VirtualRegister) and name in _TAKE_REGISTERS:
            return 0 if value.value is None and not core.settings.execute else known(value, name)
        return value

    args = tuple([settle(value) for value in args])
    kwargs = {key: settle(value) for key, value in kwargs.items()}
    return args, kwargs, tuple(sources)


def _reading_too(steps: Iterator[Step], sources: tuple[NkiTensor, ...]) -> Iterator[Step]:
    """`steps`, the first of which reads `sources` as well."""
    for step in steps:
        step.reads = (*step.reads, *sources)
        sources = ()
        yield step


def public(entry: Instruction) -> Callable[..., NkiInstruction]:
    """The function that kernels call: the instruction's docstring and signature, acting on the core being run."""

    @functools.wraps(entry.body)
    def call(*args: Any, **kwargs: Any) -> NkiInstruction:
        return entry(*args, **kwargs)

    call.__signature__ = entry.signature  # type: ignore[attr-defined]
    return call


def _explain_call(entry: Instruction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        entry.signature.bind(*args, **kwargs)
    except TypeError as error:
        from kernels_neuron.sim.shim.gone import ARGUMENTS

        gone = [hint for argument in kwargs if (hint := ARGUMENTS.get((entry.name, argument)))]
        signature = f"the signature is {entry.name}{entry.signature}"
        fail("call-signature", f"{entry.name}: {error}", gone[0] if gone else signature)
