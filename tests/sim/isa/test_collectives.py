"""Collectives over simulated ranks against numpy over all of them."""

import numpy as np
import pytest

import kernels_neuron.sim.shim as shim
from kernels_neuron.errors import KernelError, UsageError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using
from kernels_neuron.sim.isa import COLLECTIVES
from kernels_neuron.sim.isa.ranks import ReplicaGroup
from kernels_neuron.sim.run import jit, simulate_ranks

shim.install()
import nki.collectives as ncc  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

RNG = np.random.default_rng(11)
FOUR = ReplicaGroup([[0, 1, 2, 3]])
PAIRS = ReplicaGroup([[0, 2], [3, 1]])


def data(ranks=4, shape=(8, 3)):
    return [RNG.standard_normal(shape).astype(np.float32) for _ in range(ranks)]


def hbm(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def over(call, shape, inputs, group=FOUR, **kwargs):
    """Run `call(srcs, dsts, group, ..)` on every rank with HBM tensors; the outputs by rank."""

    def kernel(x):
        out = hbm(shape)
        call([x], [out], group, **kwargs)
        return out

    return simulate_ranks(kernel, [(x,) for x in inputs])


@pytest.mark.parametrize(("op", "numpy"), [("add", np.sum), ("maximum", np.max), ("minimum", np.min)])
def test_all_reduce_matches_numpy(op, numpy):
    inputs = data()
    for out in over(ncc.all_reduce, (8, 3), inputs, op=getattr(nl, op)):
        np.testing.assert_allclose(out, numpy(inputs, axis=0), rtol=1e-5, atol=1e-6)


def test_all_gather_matches_numpy():
    inputs = data()
    for out in over(ncc.all_gather, (32, 3), inputs, collective_dim=0):
        np.testing.assert_array_equal(out, np.concatenate(inputs))


def test_groups_exchange_among_themselves_in_their_order():
    inputs = data()
    outs = over(ncc.all_gather, (16, 3), inputs, group=PAIRS, collective_dim=0)
    for rank, others in enumerate([(0, 2), (3, 1), (0, 2), (3, 1)]):
        np.testing.assert_array_equal(outs[rank], np.concatenate([inputs[i] for i in others]))


def test_all_gather_works_in_sbuf_along_both_dims():
    def kernel(x, dim):
        mine, everyone = nl.ndarray(x.shape, x.dtype), nl.ndarray((8, 12) if dim else (32, 3), x.dtype)
        nisa.dma_copy(mine, x)
        ncc.all_gather([mine], [everyone], FOUR, dim)
        out = hbm(everyone.shape)
        nisa.dma_copy(out, everyone)
        return out

    inputs = data()
    for dim in (0, 1):
        for out in simulate_ranks(kernel, [(x, dim) for x in inputs]):
            np.testing.assert_array_equal(out, np.concatenate(inputs, axis=dim))


def test_reduce_scatter_matches_numpy():
    inputs = data()
    outs = over(ncc.reduce_scatter, (2, 3), inputs, collective_dim=0, op=nl.add)
    for out, part in zip(outs, np.split(np.sum(inputs, axis=0), 4), strict=True):
        np.testing.assert_allclose(out, part, rtol=1e-5, atol=1e-6)


def test_all_to_all_matches_numpy():
    inputs = data()
    for rank, out in enumerate(over(ncc.all_to_all, (8, 3), inputs, collective_dim=0)):
        np.testing.assert_array_equal(out, np.concatenate([np.split(x, 4)[rank] for x in inputs]))


def test_several_tensors_travel_together():
    def kernel(x, y):
        a, b = hbm((16, 3)), hbm((4, 2))
        ncc.all_gather([x, y], [a, b], ReplicaGroup([[0, 1]]), 0)
        return a, b

    first, second = data(2), data(2, (2, 2))
    for a, b in simulate_ranks(kernel, list(zip(first, second, strict=True))):
        np.testing.assert_array_equal(a, np.concatenate(first))
        np.testing.assert_array_equal(b, np.concatenate(second))


def test_collective_permute_matches_numpy():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype)
        nisa.memset(out, -1.0)
        there = hbm(x.shape)
        nisa.dma_copy(there, out)
        ncc.collective_permute([x], [there], [(0, 2), (2, 1)])
        return there

    inputs = data()
    outs = simulate_ranks(kernel, [(x,) for x in inputs])
    np.testing.assert_array_equal(outs[2], inputs[0])
    np.testing.assert_array_equal(outs[1], inputs[2])
    assert (outs[0] == -1).all() and (outs[3] == -1).all()


def test_collective_permute_implicit_matches_numpy():
    inputs = data()

    def kernel(x):
        out = hbm((8, 3))
        ncc.collective_permute_implicit([[x[:4]], [x[4:]]], [[out[:4]], [out[4:]]], FOUR, channel_ids=[0, 1])
        return out

    for rank, out in enumerate(simulate_ranks(kernel, [(x,) for x in inputs])):
        np.testing.assert_array_equal(out, inputs[(rank - 1) % 4])


def test_collective_permute_implicit_reduce_matches_numpy():
    inputs = data()

    def kernel(x):
        out = hbm((4, 3))
        ncc.collective_permute_implicit_reduce([x[:4]], [x[4:]], [out], FOUR, nl.add)
        return out

    for rank, out in enumerate(simulate_ranks(kernel, [(x,) for x in inputs])):
        before = inputs[(rank - 1) % 4]
        np.testing.assert_allclose(out, before[:4] + before[4:], rtol=1e-6)


def who(x, group):
    out = hbm((1, 4), nl.int32)
    nisa.register_store(out[0:1, 0:1], ncc.rank_id())
    for turn in range(3):
        register = ncc.collective_permute_implicit_current_processing_rank_id(turn, group)
        nisa.register_store(out[0:1, turn + 1 : turn + 2], register)
    return out


def test_ranks_know_themselves_and_whose_data_the_ring_has_brought():
    outs = simulate_ranks(who, [(x, FOUR) for x in data()])
    assert [out[0].tolist() for out in outs] == [[0, 0, 3, 2], [1, 1, 0, 3], [2, 2, 1, 0], [3, 3, 2, 1]]


def variable(rows, displs=None):
    table = np.zeros((3 if displs is None else 4, 2), np.uint32)
    table[0], table[1] = rows
    if displs is not None:
        table[3] = displs
    return table


def moves(x, table, has_rdispls=False, known=False):
    out, zeros = hbm((12,)), nl.zeros((1, 12), nl.float32)
    nisa.dma_copy(out, zeros)
    ncc.all_to_all_v([x], [out], ReplicaGroup([[0, 1]]), table, known, has_rdispls)
    return out, table


@pytest.mark.parametrize("arch", ["trn2", "trn3"])
def test_all_to_all_v_matches_numpy(arch):
    placed = arch == "trn3"
    inputs = data(2, (10,))
    tables = [
        variable(((2, 3), (1, 4)), (0, 7) if placed else None),
        variable(((1, 5), (0, 2)), (3, 7) if placed else None),
    ]
    with using(arch):
        outs = simulate_ranks(moves, [(x, table, placed) for x, table in zip(inputs, tables, strict=True)])
    first, second = np.zeros(12, np.float32), np.zeros(12, np.float32)
    a, b = ((0, 7), (3, 7)) if placed else ((0, 6), (0, 6))
    first[a[0] : a[0] + 2], first[a[1] : a[1] + 1] = inputs[0][1:3], inputs[1][0:1]
    second[b[0] : b[0] + 3], second[b[1] : b[1] + 5] = inputs[0][4:7], inputs[1][2:7]
    for (out, table), expected, counts in zip(outs, (first, second), ((2, 1), (3, 5)), strict=True):
        np.testing.assert_array_equal(out, expected)
        assert tuple(table[2]) == counts


def test_known_counts_are_left_alone():
    tables = [variable(((1, 1), (0, 0))), variable(((1, 1), (0, 0)))]
    for table in tables:
        table[2] = 9
    outs = simulate_ranks(moves, [(x, t, False, True) for x, t in zip(data(2, (10,)), tables, strict=True)])
    assert all((table[2] == 9).all() for _, table in outs)


def test_all_gather_v_matches_numpy():
    def kernel(x, table):
        out, zeros = hbm((16,)), nl.zeros((1, 16), nl.float32)
        if nl.program_id(0) == 0:
            nisa.dma_copy(out, zeros)
        nisa.core_barrier(out, (0, 1))
        ncc.all_gather_v([x], [out], FOUR, table, recv_counts_known=True)
        return out

    inputs, tables = data(4, (6,)), []
    for rank in range(4):
        table = np.zeros((3, 4), np.uint32)
        table[:2, 0] = rank + 1, 1
        tables.append(table)
    expected = np.zeros((4, 4), np.float32)
    for rank in range(4):
        expected[rank, : rank + 1] = inputs[rank][1 : 2 + rank]
    for out in simulate_ranks(jit(kernel)[2], list(zip(inputs, tables, strict=True))):
        np.testing.assert_array_equal(out, expected.reshape(-1))


# ---- prices


META = np.array([[1] * 4, [0] * 4, [0] * 4], np.uint32)
# collective: hops, bytes that a rank brings, the call
PRICED = {
    "all_reduce": (6, 96, lambda x, m: ncc.all_reduce([x], [hbm((8, 3))], FOUR, nl.add)),
    "all_gather": (3, 96, lambda x, m: ncc.all_gather([x], [hbm((32, 3))], FOUR, 0)),
    "reduce_scatter": (3, 96, lambda x, m: ncc.reduce_scatter([x], [hbm((2, 3))], FOUR, 0, nl.add)),
    "all_to_all": (3, 96, lambda x, m: ncc.all_to_all([x], [hbm((8, 3))], FOUR, 0)),
    "all_to_all_v": (3, 96 + 48, lambda x, m: ncc.all_to_all_v([x], [hbm((8, 3))], FOUR, m)),
    "all_gather_v": (3, 96 + 48, lambda x, m: ncc.all_gather_v([x], [hbm((8, 3))], FOUR, m)),
    "collective_permute": (
        1, 96, lambda x, m: ncc.collective_permute([x], [hbm((8, 3))], [(0, 1), (1, 2), (2, 3), (3, 0)])
    ),
    "collective_permute_implicit": (1, 96, lambda x, m: ncc.collective_permute_implicit([x], [hbm((8, 3))], FOUR)),
    "collective_permute_implicit_reduce": (
        1, 192, lambda x, m: ncc.collective_permute_implicit_reduce([x], [x], [hbm((8, 3))], FOUR, nl.add)
    ),
    "all_to_all_v_prepare": (0, 0, lambda x, m: prepared(ncc.all_to_all_v_prepare, ncc.all_to_all_v_trigger, x, m)),
    "all_gather_v_prepare": (0, 0, lambda x, m: prepared(ncc.all_gather_v_prepare, ncc.all_gather_v_trigger, x, m)),
    "all_to_all_v_trigger": (
        3, 96 + 48, lambda x, m: prepared(ncc.all_to_all_v_prepare, ncc.all_to_all_v_trigger, x, m)
    ),
    "all_gather_v_trigger": (
        3, 96 + 48, lambda x, m: prepared(ncc.all_gather_v_prepare, ncc.all_gather_v_trigger, x, m)
    ),
}  # fmt: skip


def prepared(prepare, trigger, x, metadata):
    trigger(prepare([x], [hbm((8, 3))], FOUR, metadata))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_collective_costs_its_hops_and_the_bytes_that_a_rank_brings(name):
    hops, nbytes, call = PRICED[name]

    def kernel(x, metadata):
        call(x, metadata)
        return x

    cores = 2 if "gather_v" in name else 1
    with using("trn2") as runs:
        simulate_ranks(jit(kernel)[cores], [(x, META) for x in data()])
    price = next(record.price for record in runs[0].traces[0].records if record.name == name)
    assert price.issue_ns == pytest.approx(64 / 1.2)
    assert price.latency_ns == pytest.approx(64 / 1.2 + hops * 1500 + nbytes / 368)


# ---- refusals


def refused(kernel, *inputs, ranks=2):
    with pytest.raises(KernelError) as caught:
        simulate_ranks(kernel, [tuple(inputs)] * ranks)
    return caught.value.rule


TWO = ReplicaGroup([[0, 1]])
X = np.zeros((8, 4), np.float32)


@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("replica-group", lambda x: ncc.all_reduce([x], [hbm((8, 4))], [[0, 1]], nl.add)),
        ("replica-group", lambda x: ncc.all_reduce([x], [hbm((8, 4))], ReplicaGroup([[0, 1], [1]]), nl.add)),
        ("replica-group", lambda x: ncc.all_reduce([x], [hbm((8, 4))], ReplicaGroup([[0, 1, 2]]), nl.add)),
        ("replica-group", lambda x: ncc.all_reduce([x], [hbm((8, 4))], ReplicaGroup([[1]]), nl.add)),
        ("replica-group", lambda x: ncc.collective_permute([x], [hbm((8, 4))], [(0, 1), (0, 1)])),
        ("replica-group", lambda x: ncc.all_gather_v([x], [x], TWO, x)),
        ("op-kind", lambda x: ncc.all_reduce([x], [hbm((8, 4))], TWO, nl.multiply)),
        ("collective-extent", lambda x: ncc.all_reduce([x], [hbm((8, 3))], TWO, nl.add)),
        ("collective-extent", lambda x: ncc.all_gather([x], [hbm((8, 4))], TWO, 0)),
        ("collective-extent", lambda x: ncc.reduce_scatter([x[:7]], [hbm((3, 4))], TWO, 0, nl.add)),
        ("collective-dim", lambda x: ncc.all_gather([x], [hbm((8, 8))], TWO, 1)),
        ("collective-tensors", lambda x: ncc.all_reduce([], [], TWO, nl.add)),
        ("collective-tensors", lambda x: ncc.all_reduce([x, x], [hbm((8, 4))], TWO, nl.add)),
        ("collective-channels", lambda x: ncc.collective_permute_implicit([x], [hbm((8, 4))], TWO, channel_ids=[1])),
        ("collective-channels", lambda x: ncc.collective_permute_implicit([x, x], [hbm((8, 4))], TWO)),
        ("collective-metadata", lambda x: ncc.all_gather_v([x], [x], TWO, x, has_rdispls=True)),
        ("collective-metadata", lambda x: ncc.all_to_all_v([x], [hbm((8, 4))], TWO, hbm((3, 3), nl.uint32))),
        ("operand-dtype", lambda x: ncc.all_to_all_v([x], [hbm((8, 4))], TWO, x)),
        ("operand-buffer", lambda x: ncc.all_to_all([nl.zeros((8, 4), nl.float32)], [hbm((8, 4))], TWO, 0)),
        ("chip-generation", lambda x: ncc.all_reduce([x], [hbm((8, 4))], TWO, nl.add, priority=1)),
        ("chip-generation", lambda x: ncc.all_to_all_v([x], [x], TWO, x, has_rdispls=True)),
    ],
)  # fmt: skip
def test_a_collective_refuses(rule, call):
    def kernel(x):
        call(x)
        return x

    assert refused(kernel, X) == rule


def test_a_rank_that_does_not_come_is_a_deadlock():
    def kernel(x, skip):
        if not skip:
            ncc.all_reduce([x], [hbm((8, 4))], TWO, nl.add)
        return x

    with pytest.raises(KernelError, match=r"rank 0 waits in all_reduce at \S+:\d+, rank 1 has ended"):
        simulate_ranks(kernel, [(X, False), (X, True)])


def test_one_to_64_ranks_are_simulated():
    assert len(simulate_ranks(lambda x: x, [(X,)] * 64)) == 64
    for count in (0, 65):
        with pytest.raises(UsageError, match=f"1 to 64 ranks, got {count}"):
            simulate_ranks(lambda x: x, [(X,)] * count)


def test_a_launch_without_ranks_is_rank_0_of_one():
    np.testing.assert_array_equal(jit(who)(X, ReplicaGroup([[0]])), [[0, 0, 0, 0]])


def test_price_only_ranks_exchange_nothing_and_meet():
    def kernel(x):
        out = hbm((16, 4))
        ncc.all_gather([x], [out], TWO, 0)
        return out

    with using("trn2", Settings(execute=False)) as runs:
        simulate_ranks(kernel, [(X,), (X,)])
    assert [run.instructions for run in runs] == [1, 1]
