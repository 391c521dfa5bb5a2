"""What collectives share: groups of ranks, lists of tensors, and the exchange itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_neuron.sim import array
from kernels_neuron.sim.context import current_core
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import caller, fail
from kernels_neuron.sim.register import VirtualRegister
from kernels_neuron.sim.tensor import NkiTensor

from .ops import Op
from .prices import collective as price_of
from .rules import mark_taken, require_buffer, require_op, require_tensor

_REDUCTIONS = ("add", "minimum", "maximum")


@dataclass(frozen=True)
class ReplicaGroup:
    """Lists of ranks, none of them in two lists, that exchange data with each other."""

    replica_groups: Sequence[Sequence[int]]


Contributions = list[list[np.ndarray | None]]  # by position in the group, then by tensor


# ---- what all of them share


def group_of(name: str, core: NeuronCore, group: Any) -> tuple[int, ...]:
    """The list of ranks that this rank is in; all of them are simulated."""
    if not isinstance(group, ReplicaGroup):
        fail("replica-group", f"{name} takes a ReplicaGroup as replica_group, got {group!r}")
    lists = [tuple(int(rank) for rank in ranks) for ranks in group.replica_groups]
    everyone = [rank for ranks in lists for rank in ranks]
    if len(set(everyone)) != len(everyone):
        fail("replica-group", f"{name} takes lists of ranks that do not overlap, got {lists}")
    mine = next((ranks for ranks in lists if core.seat.rank in ranks), None)
    if mine is None:
        fail("replica-group", f"{name} is called by rank {core.seat.rank}, which is in none of {lists}")
    require_simulated(name, core, mine)
    return mine


def require_simulated(name: str, core: NeuronCore, ranks: Sequence[int]) -> None:
    """Every one of `ranks` takes part in this run."""
    missing = [rank for rank in ranks if not 0 <= rank < len(core.seat.ranks)]
    if missing:
        fail(
            "replica-group",
            f"{name} exchanges with rank {missing[0]}, this run simulates {len(core.seat.ranks)}",
            "run it with kernels_neuron.simulate_ranks or profile_ranks, the arguments of each rank apart; "
            "on the command line, kernels-neuron profile --ranks",
        )


def tensors_of(
    name: str, operand: str, tensors: Any, buffers: Sequence[Any], most: int | None = None
) -> list[NkiTensor]:
    """A list of tensors in one kind of memory; several at once only in HBM."""
    found = flat(tensors)
    if not found:
        fail("collective-tensors", f"{name} takes at least one tensor as {operand}")
    for tensor in found:
        require_tensor(name, operand, tensor)
        require_buffer(name, operand, tensor, buffers)
    if len({tensor.on_chip for tensor in found}) > 1 or (found[0].on_chip and len(found) > 1):
        fail("collective-tensors", f"{name} takes several tensors in HBM alone, got {found} as {operand}")
    if most is not None and len(found) > most:
        fail("collective-tensors", f"{name} takes {most} tensor as {operand}, got {len(found)}")
    return found


def flat(tensors: Any) -> list[Any]:
    """The tensors of nested lists, in order."""
    if isinstance(tensors, (list, tuple)):
        return [tensor for item in tensors for tensor in flat(item)]
    return [tensors]


def require_pairs(name: str, srcs: list[NkiTensor], dsts: list[NkiTensor], grow: int, shrink: int, dim: int) -> None:
    """Every dst has its src's dtype and shape, `grow` times as long or `shrink` times shorter along `dim`."""
    if len(srcs) != len(dsts) or srcs[0].on_chip != dsts[0].on_chip:
        fail("collective-tensors", f"{name} takes as many dsts as srcs in one memory, got {srcs} and {dsts}")
    for src, dst in zip(srcs, dsts, strict=True):
        want = list(src.shape)
        if want[dim] % shrink:
            fail("collective-extent", f"{name} splits dim {dim} of {src!r} among {shrink} ranks")
        want[dim] = want[dim] * grow // shrink
        if list(dst.shape) != want or dst.dtype != src.dtype:
            fail("collective-extent", f"{name} of {src!r} gives {src.dtype}{want}, dst is {dst!r}")


def require_dim(name: str, dim: Any, tensors: list[NkiTensor], allowed: Sequence[int]) -> None:
    """`dim` is one that the collective works along."""
    if dim not in allowed:
        fail("collective-dim", f"{name} takes collective_dim {' or '.join(map(str, allowed))}, got {dim!r}")
    if tensors[0].on_chip and tensors[0].ndim != 2:
        fail("collective-dim", f"{name} takes 2-D tensors in SBUF, got {tensors[0]!r}")


def require_reduction(name: str, op: Any) -> Op:
    """`op` is one that ranks can reduce with."""
    if require_op(name, "op", op).name not in _REDUCTIONS:
        fail("op-kind", f"{name} takes {', '.join(_REDUCTIONS)}, got {op!r}")
    return op


def reduced(op: Op, terms: Sequence[np.ndarray]) -> np.ndarray:
    """Terms folded in the order of the group, in float32."""
    assert op.alu is not None
    total = array.f32(terms[0])
    for term in terms[1:]:
        total = op.alu(total, array.f32(term))
    return total


def exchange(
    core: NeuronCore,
    name: str,
    group: Sequence[int],
    sources: list[NkiTensor],
    targets: list[NkiTensor],
    hops: int,
    compute: Callable[[Contributions], list[tuple[np.ndarray, np.ndarray | None]]],
    key: Any = None,
    reads: list[NkiTensor] | None = None,
) -> Iterator[Step]:
    """Bring `sources` to the group; when everybody has, write what `compute` makes of all of them into `targets`.

    compute  one (values, mask of the elements to write or None for all) per target
    reads    what is read of the sources, where that is not all of them
    """
    brought: list[np.ndarray | None] = [None] * len(sources)

    def bring() -> None:
        brought[:] = [source.array().copy() for source in sources]

    price = price_of(core.arch, hops, sum(source.size * source.itemsize for source in sources))
    members = frozenset(index for rank in group for index in core.seat.ranks[rank])
    meeting = (name, tuple(group), key)
    yield Step("sync", price, reads=sources if reads is None else reads, effect=bring, meeting=(*meeting, members))
    file, line = caller()
    came = core.seat.meet(meeting, members, brought, name, f"{file.rsplit('/', 1)[-1]}:{line}")
    # a tensor in SBUF belongs to one core, so each program exchanges with its counterparts
    contributions = [came[core.seat.ranks[rank][core.program]] for rank in group]

    results: list[tuple[np.ndarray, np.ndarray | None]] = []

    def receiving(position: int) -> Callable[[], None]:
        def receive() -> None:
            if not results:
                results.extend(compute(contributions))
            _write(core, targets[position], *results[position])

        return receive

    # every program of the rank waits here, so the step orders what they do to the target like a barrier
    marks = not (name.endswith("_v") and core.settings.execute)
    for position, target in enumerate(targets):
        price = price_of(core.arch, 0, 0)
        effect = receiving(position)
        yield Step("sync", price, writes=(target,), effect=effect, marks=marks, meets=True, meeting=(*meeting, members))


def _write(core: NeuronCore, target: NkiTensor, values: np.ndarray, mask: np.ndarray | None) -> None:
    cast = np.empty(target.shape, target.dtype.numpy)
    if values.dtype == cast.dtype:
        cast[...] = values.reshape(target.shape)
    else:
        array.store(cast, values.astype(np.float32), target.dtype, core.switches["fp8_overflow"])
    if mask is None:
        target.target()[...] = cast
        return
    np.copyto(target.target(), cast, where=mask.reshape(target.shape))
    mark_taken(target, mask.reshape(target.shape))


def whole_values(values: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Values that fill their targets."""
    return [(value, None) for value in values]


# ---- who is who


def rank_id(name: str | None = None) -> VirtualRegister:
    """A register with the number of this rank."""
    core = current_core("nki.collectives.rank_id")
    core.dynamic = True
    return VirtualRegister(core.seat.rank, frozen=True)


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int, replica_group: ReplicaGroup, channel_id: int = 0, name: str | None = None
) -> VirtualRegister:
    """A register with the rank whose data is here after `iteration_id` steps of the ring, its own after none."""
    label = "collective_permute_implicit_current_processing_rank_id"
    core = current_core(f"nki.collectives.{label}")
    core.dynamic = True
    group = group_of(label, core, replica_group)
    return VirtualRegister(group[(group.index(core.seat.rank) - int(iteration_id)) % len(group)], frozen=True)
