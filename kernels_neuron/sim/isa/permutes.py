"""nki.collectives from rank to rank: explicit pairs, and the ring of a group."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor

from .dma import require_priority
from .ops import Op
from .ranks import (
    Contributions,
    ReplicaGroup,
    exchange,
    flat,
    group_of,
    reduced,
    require_pairs,
    require_reduction,
    require_simulated,
    tensors_of,
    whole_values,
)
from .rules import HBM, SBUF, require_buffer, require_tensor
from .table import collective

# ---- permutes


@collective
def collective_permute(
    core: NeuronCore,
    srcs: Any,
    dsts: Any,
    source_target_pairs: Sequence[tuple[int, int]],
    priority: int | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = src of the rank that is this one's source in (source, target) pairs; others keep theirs.

    Operands: one tensor each in HBM, one shape and dtype; no rank twice as source or as target.
    Source: NKI collectives reference.
    """
    pairs = [(int(source), int(target)) for source, target in source_target_pairs]
    if any(len({pair[side] for pair in pairs}) != len(pairs) for side in (0, 1)):
        fail("replica-group", f"collective_permute takes every rank once as source and once as target, got {pairs}")
    sources, targets = (
        tensors_of("collective_permute", n, t, HBM, most=1) for n, t in (("srcs", srcs), ("dsts", dsts))
    )
    require_pairs("collective_permute", sources, targets, 1, 1, 0)
    require_priority("collective_permute", core, priority)
    group = sorted({rank for pair in pairs for rank in pair})
    require_simulated("collective_permute", core, group)
    if core.seat.rank not in group:
        return
    origin = next((source for source, target in pairs if target == core.seat.rank), None)
    if origin is None:
        yield from exchange(core, "collective_permute", group, sources, [], 1, lambda c: [])
        return
    yield from exchange(
        core,
        "collective_permute",
        group,
        sources,
        targets,
        1,
        lambda c: whole_values(c[group.index(origin)]),  # type: ignore[arg-type]
    )


def _ring(
    core: NeuronCore, name: str, sources: list[NkiTensor], targets: list[NkiTensor], replica_group: Any, channels: Any
) -> tuple[tuple[int, ...], int]:
    """(group, position of the predecessor), after checking the channels."""
    group = group_of(name, core, replica_group)
    everyone = len(group) == len(core.seat.ranks)
    most = 4 if everyone else 2
    if list(channels) != list(range(len(channels))) or not 1 <= len(channels) <= most:
        fail("collective-channels", f"{name} takes channel_ids 0, 1, .. up to {most} of them, got {list(channels)}")
    if len(sources) != len(channels):
        fail("collective-channels", f"{name} takes one tensor for each of {len(channels)} channels, got {len(sources)}")
    for source, target in zip(sources, targets, strict=True):
        if source.shape != target.shape or source.dtype != target.dtype:
            fail("collective-extent", f"{name} of {source!r} gives its shape and dtype, dst is {target!r}")
    return group, (group.index(core.seat.rank) - 1) % len(group)


def _each(name: str, **operands: Any) -> list[list[NkiTensor]]:
    found = []
    for operand, tensors in operands.items():
        listed = flat(tensors)
        for tensor in listed:
            require_tensor(name, operand, tensor)
            require_buffer(name, operand, tensor, (*HBM, *SBUF))
        found.append(listed)
    if len({len(listed) for listed in found}) > 1:
        fail(
            "collective-channels",
            f"{name} takes as many tensors on every side, got {[len(listed) for listed in found]}",
        )
    return found


@collective
def collective_permute_implicit(
    core: NeuronCore,
    srcs_by_channel: Any,
    dsts_by_channel: Any,
    replica_group: ReplicaGroup,
    channel_ids: Sequence[int] = (0,),
    priority: int | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = src of the predecessor in the group's ring, one tensor per channel.

    Operands: tensors in HBM or SBUF; channels 0, 1, .., at most 4 when all ranks are in one list, else 2.
    Source: NKI collectives reference.
    """
    label = "collective_permute_implicit"
    sources, targets = _each(label, srcs_by_channel=srcs_by_channel, dsts_by_channel=dsts_by_channel)
    group, before = _ring(core, label, sources, targets, replica_group, channel_ids)
    require_priority(label, core, priority)
    yield from exchange(core, label, group, sources, targets, 1, lambda c: whole_values(c[before]), tuple(channel_ids))  # type: ignore[arg-type]


@collective
def collective_permute_implicit_reduce(
    core: NeuronCore,
    srcs0_by_channel: Any,
    srcs1_by_channel: Any,
    dsts_by_channel: Any,
    replica_group: ReplicaGroup,
    op: Op,
    channel_ids: Sequence[int] = (0,),
    priority: int | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = op(src0, src1) of the predecessor in the group's ring, in float32, one pair per channel.

    Operands: as collective_permute_implicit; op add, minimum or maximum. Source: NKI collectives reference.
    """
    label = "collective_permute_implicit_reduce"
    first, second, targets = _each(
        label, srcs0_by_channel=srcs0_by_channel, srcs1_by_channel=srcs1_by_channel, dsts_by_channel=dsts_by_channel
    )
    group, before = _ring(core, label, first, targets, replica_group, channel_ids)
    require_reduction(label, op)
    require_priority(label, core, priority)
    count = len(first)

    def compute(contributions: Contributions) -> list[tuple[np.ndarray, np.ndarray | None]]:
        sent = contributions[before]
        return whole_values([reduced(op, [sent[i], sent[count + i]]) for i in range(count)])  # type: ignore[list-item]

    yield from exchange(core, label, group, [*first, *second], targets, 1, compute, tuple(channel_ids))
