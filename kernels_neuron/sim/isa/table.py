"""TABLE: every instruction by name, filled by the `instruction` decorator, read by shim, linter, coverage and docs."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_neuron.sim.context import core_or_none, current_core
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.dynamic import DynamicTensor, settled
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.order import NkiInstruction
from kernels_neuron.sim.register import VirtualRegister, known
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.versions import ARGUMENTS, api_version, newest, require_version, signature_in, since, spell

from .indirect import Stream, streamed
from .indirect import settled as stand_ins

Body = Callable[..., Iterator[Step]]


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name, its body (first parameter `core`), and the signature kernels see (without `core`).

    dynamic  whether the body itself finds out where dynamic operands lie; others get static views
    since    the first NKI version that has it, None where every version from 0.3 on does
    module   "isa" or "collectives", where kernels find it
    changed  the version from which on the signature is this one, None where it always was
    flags    its arguments that are True or False
    """

    name: str
    body: Body
    signature: inspect.Signature
    dynamic: bool = False
    since: tuple[int, ...] | None = None
    module: str = "isa"
    changed: tuple[int, ...] | None = None
    flags: frozenset[str] = frozenset()

    @property
    def short(self) -> str:
        """Its name as kernels write it: "nisa.dma_copy", "ncc.all_gather"."""
        return f"{'nisa' if self.module == 'isa' else 'ncc'}.{self.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> NkiInstruction:
        """Issue the instruction on the core being run."""
        return self.issue(args, kwargs)

    def issue(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NkiInstruction:
        """The same with the arguments as they are: kernels come here, and unpacking them once more takes time."""
        core = core_or_none() or current_core(f"nki.{self.module}.{self.name}")
        if self.since is not None:
            require_version(core, f"nki.{self.module}.{self.name}", self.since)
        if not self.flags.isdisjoint(kwargs):
            _require_flags(self.name, self.flags, kwargs)
        if self.changed is not None and (version := api_version(core.settings.nki)) < self.changed:
            args, kwargs = (), self._as_called_in(version, args, kwargs)
        sources: tuple[NkiTensor, ...] = ()
        streams: list[Stream] = []
        if core.indirect:
            args, kwargs, streams = stand_ins(core, self.name, self.signature, args, kwargs)
        if core.dynamic and not self.dynamic:
            args, kwargs, sources = _settle(core, self.name, args, kwargs)
        try:
            steps = self.body(core, *args, **kwargs)
        except TypeError:
            _explain_call(self, args, kwargs)
            raise
        steps = streamed(steps, streams) if streams else steps
        index = core.issue(self.name, _reading_too(steps, sources) if sources else steps)
        given = kwargs.get("name")
        if given:
            core.trace.named.setdefault(given, []).append(index)
        return NkiInstruction(core.trace, index, self.name, core.loops)

    def _as_called_in(self, version: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by the signature that it had in an older version."""
        older = signature_in(self.short, version, self.signature)
        try:
            return older.bind(*args, **kwargs).arguments
        except TypeError as error:
            later = [
                f"{argument} came with NKI {spell(first)}"
                for argument, first in ARGUMENTS.get(self.short, {}).items()
                if argument in kwargs and version < first
            ]
            hint = [*later, *_retired_arguments(self.name, kwargs), f"it was {self.name}{older}"][0]
            fail("call-signature", f"{self.name}: {error}", hint)


TABLE: dict[str, Instruction] = {}
COLLECTIVES: dict[str, Instruction] = {}


def instruction(body: Body) -> Body:
    """Enter `body`, a generator of Steps, in TABLE under its own name."""
    return _enter(body, dynamic=False)


def collective(body: Body) -> Body:
    """Enter `body` in COLLECTIVES, the functions of nki.collectives that move data."""
    parameters = list(inspect.signature(body).parameters.values())[1:]
    name, signature = body.__name__, inspect.Signature(parameters)
    COLLECTIVES[name] = Instruction(
        name,
        body,
        signature,
        since=since(f"ncc.{name}"),
        module="collectives",
        changed=newest(f"ncc.{name}"),
        flags=_flags(signature),
    )
    return body


def dynamic_instruction(body: Body) -> Body:
    """As `instruction`, for one that takes dynamic views and registers as they are."""
    return _enter(body, dynamic=True)


def _enter(body: Body, dynamic: bool) -> Body:
    parameters = list(inspect.signature(body).parameters.values())[1:]
    name = body.__name__
    signature = inspect.Signature(parameters)
    first, changed = since(f"nisa.{name}"), newest(f"nisa.{name}")
    TABLE[name] = Instruction(name, body, signature, dynamic, first, changed=changed, flags=_flags(signature))
    return body


def _flags(signature: inspect.Signature) -> frozenset[str]:
    return frozenset(name for name, parameter in signature.parameters.items() if isinstance(parameter.default, bool))


def _require_flags(name: str, flags: frozenset[str], kwargs: dict[str, Any]) -> None:
    for flag, value in kwargs.items():
        if flag not in flags or isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
            continue
        fail("flag", f"{name} takes True or False as {flag}, got {value!r}")


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

    issue = entry.issue

    @functools.wraps(entry.body)
    def call(*args: Any, **kwargs: Any) -> NkiInstruction:
        return issue(args, kwargs)

    call.__signature__ = entry.signature  # type: ignore[attr-defined]
    return call


def _explain_call(entry: Instruction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        entry.signature.bind(*args, **kwargs)
    except TypeError as error:
        signature = f"the signature is {entry.name}{entry.signature}"
        fail("call-signature", f"{entry.name}: {error}", [*_retired_arguments(entry.name, kwargs), signature][0])


def _retired_arguments(name: str, given: Iterable[str]) -> list[str]:
    """What replaced those of the arguments given that the call once had."""
    from kernels_neuron.sim.shim.gone import ARGUMENTS as GONE

    return [GONE[name, argument] for argument in given if (name, argument) in GONE]
