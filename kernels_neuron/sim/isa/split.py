"""Collectives of NKI 0.7 in two halves: prepare reads the metadata early, trigger exchanges the data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernels_neuron.errors import KernelError
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.order import NkiInstruction
from kernels_neuron.sim.tensor import NkiTensor

from .collectives import all_gather_v, all_to_all_v
from .ranks import ReplicaGroup, price_of
from .rules import require_tensor
from .table import collective


@dataclass(frozen=True)
class Prepared:
    """A prepare that waits for its trigger: which collective, the prepare's instruction, and what it was given."""

    name: str
    instruction: int
    arguments: tuple[Any, ...]
    metadata: bytes


def _prepare(core: NeuronCore, name: str, metadata: NkiTensor, arguments: tuple[Any, ...]) -> Iterator[Step]:
    require_tensor(f"{name}_prepare", "metadata_tensor", metadata)
    if core.prepared is not None:
        fail(
            "collective-prepare",
            f"{name}_prepare comes before the {core.prepared.name}_prepare before it was triggered, there is one slot",
            "trigger a prepared collective before preparing the next",
        )
    yield Step("sync", price_of(core.arch, 0, 0), reads=(metadata,))
    known = metadata.array().tobytes() if core.settings.execute else b""
    core.prepared = Prepared(name, core.trace.instructions - 1, arguments, known)


def _trigger(
    core: NeuronCore, name: str, body: Callable[..., Iterator[Step]], prepare_instr: NkiInstruction
) -> Iterator[Step]:
    prepared = core.prepared
    given = isinstance(prepare_instr, NkiInstruction) and prepare_instr.index
    if prepared is None or prepared.name != name or given is False or given != prepared.instruction:
        waiting = f"{prepared.name}_prepare" if prepared else "nothing"
        fail(
            "collective-prepare",
            f"{name}_trigger takes the instruction of its {name}_prepare, got {prepare_instr!r} while {waiting} waits",
            "pass what the prepare returned, once",
        )
    core.prepared = None
    metadata = prepared.arguments[3]
    if core.settings.execute and metadata.array().tobytes() != prepared.metadata:
        fail("collective-metadata", f"{name}: the metadata changed after {name}_prepare had read it")
    yield from body(core, *prepared.arguments)


def require_triggered(core: NeuronCore) -> None:
    """No prepared collective is left when the kernel ends."""
    if core.prepared is not None:
        raise KernelError(
            f"the kernel ends with an {core.prepared.name}_prepare that nothing has triggered",
            rule="collective-prepare",
            hint=f"call {core.prepared.name}_trigger with what it returned",
            **core.trace.located(core.trace.records[-1].where),
        )


@collective
def all_to_all_v_prepare(
    core: NeuronCore,
    srcs: Any,
    dsts: Any,
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """Read the metadata of an all_to_all_v before its data is there; the result goes to all_to_all_v_trigger.

    Operands: as all_to_all_v; nothing of srcs and dsts is read. One prepared collective waits at a time.
    Source: NKI collectives reference 0.7, all_to_all_v_prepare.
    """
    arguments = (srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority)
    yield from _prepare(core, "all_to_all_v", metadata_tensor, arguments)


@collective
def all_to_all_v_trigger(core: NeuronCore, prepare_instr: NkiInstruction, name: str | None = None) -> Iterator[Step]:
    """The all_to_all_v that `prepare_instr` prepared.

    Source: NKI collectives reference 0.7, all_to_all_v_trigger.
    """
    yield from _trigger(core, "all_to_all_v", all_to_all_v, prepare_instr)


@collective
def all_gather_v_prepare(
    core: NeuronCore,
    srcs: Any,
    dsts: Any,
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """Read the metadata of an all_gather_v before its data is there; the result goes to all_gather_v_trigger.

    Operands: as all_gather_v; nothing of srcs and dsts is read. One prepared collective waits at a time.
    Source: NKI collectives reference 0.7, all_gather_v_prepare.
    """
    arguments = (srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority)
    yield from _prepare(core, "all_gather_v", metadata_tensor, arguments)


@collective
def all_gather_v_trigger(core: NeuronCore, prepare_instr: NkiInstruction, name: str | None = None) -> Iterator[Step]:
    """The all_gather_v that `prepare_instr` prepared.

    Source: NKI collectives reference 0.7, all_gather_v_trigger.
    """
    yield from _trigger(core, "all_gather_v", all_gather_v, prepare_instr)
