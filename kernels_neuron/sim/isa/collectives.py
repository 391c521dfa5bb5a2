"""nki.collectives over whole groups. Every rank brings its tensors, and all go on when the last one has come."""

from collections.abc import Callable, Iterator
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
    group_of,
    reduced,
    require_dim,
    require_pairs,
    require_reduction,
    tensors_of,
    whole_values,
)
from .rules import HBM, SBUF, require_buffer, require_dtype, require_tensor
from .table import collective

_GATHER_V_RANKS = 4


# ---- reductions and gathers


@collective
def all_reduce(
    core: NeuronCore,
    srcs: Any,
    dsts: Any,
    replica_group: ReplicaGroup,
    op: Op,
    priority: int | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = op over the src of every rank of the group, in float32.

    Operands: lists of tensors in HBM, or one in SBUF; dst of src's shape and dtype; op add, minimum or maximum.
    Source: NKI collectives reference.
    """
    group = group_of("all_reduce", core, replica_group)
    sources, targets = (tensors_of("all_reduce", n, t, (*HBM, *SBUF)) for n, t in (("srcs", srcs), ("dsts", dsts)))
    require_pairs("all_reduce", sources, targets, 1, 1, 0)
    require_reduction("all_reduce", op)
    require_priority("all_reduce", core, priority)
    hops = 2 * (len(group) - 1)
    yield from exchange(
        core,
        "all_reduce",
        group,
        sources,
        targets,
        hops,
        lambda c: whole_values([reduced(op, each) for each in _by_tensor(c)]),
    )


def _by_tensor(contributions: Contributions) -> list[list[np.ndarray]]:
    return [list(each) for each in zip(*contributions, strict=True)]


@collective
def all_gather(
    core: NeuronCore,
    srcs: Any,
    dsts: Any,
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = the src of every rank of the group, one after another along collective_dim.

    Operands: lists of tensors in HBM along dim 0, or one 2-D tensor in SBUF along dim 0 or 1.
    Source: NKI collectives reference.
    """
    group = group_of("all_gather", core, replica_group)
    sources, targets = (tensors_of("all_gather", n, t, (*HBM, *SBUF)) for n, t in (("srcs", srcs), ("dsts", dsts)))
    require_dim("all_gather", collective_dim, sources, (0, 1) if sources[0].on_chip else (0,))
    require_pairs("all_gather", sources, targets, len(group), 1, collective_dim)
    require_priority("all_gather", core, priority)
    yield from exchange(
        core,
        "all_gather",
        group,
        sources,
        targets,
        len(group) - 1,
        lambda c: whole_values([np.concatenate(each, axis=collective_dim) for each in _by_tensor(c)]),
    )


@collective
def reduce_scatter(
    core: NeuronCore,
    srcs: Any,
    dsts: Any,
    replica_group: ReplicaGroup,
    collective_dim: int,
    op: Op,
    priority: int | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """dst = this rank's part, along dim 0, of op over the src of every rank of the group, in float32.

    Operands: lists of tensors in HBM, or one in SBUF; op add, minimum or maximum. Source: NKI collectives reference.
    """
    group = group_of("reduce_scatter", core, replica_group)
    sources, targets = (tensors_of("reduce_scatter", n, t, (*HBM, *SBUF)) for n, t in (("srcs", srcs), ("dsts", dsts)))
    require_dim("reduce_scatter", collective_dim, sources, (0,))
    require_pairs("reduce_scatter", sources, targets, 1, len(group), 0)
    require_reduction("reduce_scatter", op)
    require_priority("reduce_scatter", core, priority)
    me = group.index(core.seat.rank)
    yield from exchange(
        core,
        "reduce_scatter",
        group,
        sources,
        targets,
        len(group) - 1,
        lambda c: whole_values([np.split(reduced(op, each), len(group))[me] for each in _by_tensor(c)]),
    )


@collective
def all_to_all(
    core: NeuronCore,
    srcs: Any,
    dsts: Any,
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """Part i of dst, along dim 0, = this rank's part of the src of the group's rank i.

    Operands: lists of tensors in HBM, dst of src's shape and dtype. Source: NKI collectives reference.
    """
    group = group_of("all_to_all", core, replica_group)
    sources, targets = (tensors_of("all_to_all", n, t, HBM) for n, t in (("srcs", srcs), ("dsts", dsts)))
    require_dim("all_to_all", collective_dim, sources, (0,))
    require_pairs("all_to_all", sources, targets, 1, 1, 0)
    if any(source.shape[0] % len(group) for source in sources):
        fail("collective-extent", f"all_to_all splits dim 0 of {sources} among {len(group)} ranks")
    require_priority("all_to_all", core, priority)
    me = group.index(core.seat.rank)
    yield from exchange(
        core,
        "all_to_all",
        group,
        sources,
        targets,
        len(group) - 1,
        lambda c: whole_values([np.concatenate([np.split(v, len(group))[me] for v in each]) for each in _by_tensor(c)]),
    )


# ---- variable lengths


def _metadata(name: str, tensor: Any, ranks: int, has_rdispls: bool) -> NkiTensor:
    require_tensor(name, "metadata_tensor", tensor)
    require_buffer(name, "metadata_tensor", tensor, (*HBM, *SBUF))
    require_dtype(name, "metadata_tensor", tensor, ("uint32",))
    rows = 4 if has_rdispls else 3
    want = (1, rows, ranks) if tensor.on_chip else (rows, ranks)
    if tensor.shape != want:
        fail("collective-metadata", f"{name} takes metadata_tensor of shape {list(want)}, got {tensor!r}")
    return tensor


def _variable(
    core: NeuronCore,
    name: str,
    srcs: Any,
    dsts: Any,
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool,
    has_rdispls: bool,
    priority: int | None,
    columns_for: Callable[[int], int],
) -> Iterator[Step]:
    """Chunks of counts and displacements; `columns_for` says which column of a sender's metadata is for a receiver."""
    group = group_of(name, core, replica_group)
    sources, targets = (tensors_of(name, n, t, HBM, most=1) for n, t in (("srcs", srcs), ("dsts", dsts)))
    if sources[0].dtype != targets[0].dtype:
        fail("collective-extent", f"{name} keeps the dtype, src is {sources[0]!r} and dst is {targets[0]!r}")
    metadata = _metadata(name, metadata_tensor, len(group), has_rdispls)
    require_priority(name, core, priority)
    me, slot = group.index(core.seat.rank), targets[0].size // len(group)

    def compute(contributions: Contributions) -> list[tuple[np.ndarray, np.ndarray | None]]:
        out, mask = np.zeros(targets[0].size, targets[0].dtype.numpy), np.zeros(targets[0].size, bool)
        mine = contributions[me][1]
        assert mine is not None
        counts = mine.reshape(-1, len(group)).copy()
        for sender, (values, table) in enumerate(contributions):
            assert values is not None and table is not None
            count, start = (int(row[columns_for(me)]) for row in table.reshape(-1, len(group))[:2])
            at = int(counts[3, sender]) if has_rdispls else sender * slot
            if start + count > values.size or at + count > out.size or (not has_rdispls and count > slot):
                fail("out-of-bounds", f"{name} moves {count} elements from {start} of rank {group[sender]} to {at}")
            out[at : at + count] = values.reshape(-1)[start : start + count]
            mask[at : at + count] = True
            counts[2, sender] = count
        return [(out, mask)] if recv_counts_known else [(out, mask), (counts[2], None)]

    rows = (0, 1, *((2,) if recv_counts_known else ()), *((3,) if has_rdispls else ()))
    reads = [metadata[:, row] if metadata.on_chip else metadata[row] for row in rows]
    written = metadata[:, 2] if metadata.on_chip else metadata[2]
    outputs = [*targets] if recv_counts_known else [*targets, written]
    yield from exchange(
        core, name, group, [*sources, metadata], outputs, len(group) - 1, compute, reads=[*sources, *reads]
    )


@collective
def all_gather_v(
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
    """Slot s of dst starts with src[displacement : displacement + count] of the group's rank s, flat.

    Operands: one tensor each in HBM; metadata_tensor uint32 [3, ranks]: count and displacement in column 0 of rows 0
    and 1, received counts written into row 2 unless they are known. Two cores and lists of 4 ranks. No has_rdispls.
    Source: NKI collectives reference.
    """
    if has_rdispls:
        fail("collective-metadata", "all_gather_v does not take has_rdispls=True")
    if core.programs != 2 or len(group_of("all_gather_v", core, replica_group)) != _GATHER_V_RANKS:
        fail("replica-group", f"all_gather_v runs on two cores and lists of {_GATHER_V_RANKS} ranks")
    yield from _variable(
        core,
        "all_gather_v",
        srcs,
        dsts,
        replica_group,
        metadata_tensor,
        recv_counts_known,
        False,
        priority,
        lambda _: 0,
    )


@collective
def all_to_all_v(
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
    """From every rank r of the group, the chunk that it has for this one, at slot r of dst or where row 3 says, flat.

    Operands: one tensor each in HBM; metadata_tensor uint32 [3 or 4, ranks]: send counts, send displacements, received
    counts (written unless known), and with has_rdispls receive displacements, which trn3 has.
    Source: NKI collectives reference.
    """
    if has_rdispls and core.arch.generation < 4:
        fail("chip-generation", f"all_to_all_v with has_rdispls exists from trn3 on, this is {core.arch.name}")
    yield from _variable(
        core,
        "all_to_all_v",
        srcs,
        dsts,
        replica_group,
        metadata_tensor,
        recv_counts_known,
        has_rdispls,
        priority,
        lambda receiver: receiver,
    )
