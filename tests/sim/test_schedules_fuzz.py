"""Programs and ranks that meet in any order: all of them come, and numbers agree, or the run ends in an error."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_neuron.errors import KernelError
from kernels_neuron.sim import shim
from kernels_neuron.sim.rulebook import RULES
from kernels_neuron.sim.run import jit, simulate, simulate_ranks

shim.install()
import nki.collectives as ncc  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

PROFILE = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
SHAPE = (4, 6)


def exchange(state, how, group):
    """One collective of `state` [4, 6] in HBM."""
    ranks = len(group.replica_groups[0])
    out = nl.ndarray(SHAPE, nl.float32, buffer=nl.shared_hbm)
    if how == "gather":
        wide = nl.ndarray((4 * ranks, 6), nl.float32, buffer=nl.shared_hbm)
        ncc.all_gather([state], [wide], group, 0)
        nisa.dma_copy(out, wide[:4])
    elif how == "permute":
        ncc.collective_permute([state], [out], [(rank, (rank + 1) % ranks) for rank in range(ranks)])
    else:
        ncc.all_reduce([state], [out], group, getattr(nl, how))
    return out


def expected(states, how):
    if how == "gather":
        return [states[0]] * len(states)
    if how == "permute":
        return [states[rank - 1] for rank in range(len(states))]
    reduced = {"add": np.sum, "maximum": np.max, "minimum": np.min}[how](states, axis=0)
    return [reduced.astype(np.float32)] * len(states)


HOWS = st.lists(st.sampled_from(["gather", "permute", "add", "maximum", "minimum"]), max_size=5)


def test_ranks_that_make_the_same_exchanges_agree_with_numpy():
    @PROFILE
    @given(st.integers(1, 5), HOWS, st.integers(0, 99))
    def check(ranks, hows, seed):
        group = ncc.ReplicaGroup([list(range(ranks))])

        def kernel(x):
            state = nl.ndarray(SHAPE, nl.float32, buffer=nl.shared_hbm)
            nisa.dma_copy(state, x)
            for how in hows:
                state = exchange(state, how, group)
            return state

        states = list(np.random.default_rng(seed).integers(-9, 9, (ranks, *SHAPE)).astype(np.float32))
        found = simulate_ranks(kernel, [(state,) for state in states])
        for how in hows:
            states = expected(np.stack(states), how)
        for mine, theirs in zip(found, states, strict=True):
            np.testing.assert_array_equal(mine, theirs)

    check()


def test_a_rank_that_leaves_an_exchange_out_or_makes_another_one_ends_in_an_error():
    @PROFILE
    @given(st.integers(2, 5), HOWS.filter(len), st.data())
    def check(ranks, hows, data):
        odd, at = data.draw(st.integers(0, ranks - 1)), data.draw(st.integers(0, len(hows) - 1))
        group = ncc.ReplicaGroup([list(range(ranks))])

        def kernel(x, rank):
            state = nl.ndarray(SHAPE, nl.float32, buffer=nl.shared_hbm)
            nisa.dma_copy(state, x)
            for position, how in enumerate(hows):
                if rank != odd or position != at:
                    state = exchange(state, how, group)
            return state

        x = np.ones(SHAPE, np.float32)
        with pytest.raises(KernelError) as caught:
            simulate_ranks(kernel, [(x, rank) for rank in range(ranks)])
        assert caught.value.rule in RULES and caught.value.rule == "deadlock"

    check()


STEPS = st.lists(st.sampled_from(["barrier", "swap", "work"]), max_size=7)


def on_two_cores(x, steps, of_program):
    """Each core keeps a tile; `swap` exchanges them, `work` doubles the tile, `barrier` waits."""
    me, out = nl.program_id(0), nl.ndarray((2, 6), nl.float32, buffer=nl.shared_hbm)
    mine = nl.ndarray((1, 6), nl.float32)
    nisa.dma_copy(mine, x[me : me + 1])
    for step in of_program(me, steps):
        if step == "swap":
            other = nl.ndarray((1, 6), nl.float32)
            nisa.sendrecv(mine, other, 1 - me, 1 - me, 0)
            mine = other
        elif step == "work":
            doubled = nl.ndarray((1, 6), nl.float32)
            nisa.tensor_scalar(doubled, mine, nl.multiply, 2.0 + me)
            mine = doubled
        else:
            nisa.core_barrier(out, (0, 1))
    nisa.dma_copy(out[me : me + 1], mine)
    return out


def test_two_cores_that_meet_in_one_order_agree_with_numpy():
    @PROFILE
    @given(STEPS)
    def check(steps):
        x = np.arange(12, dtype=np.float32).reshape(2, 6)
        held = x.copy()
        for step in steps:
            held = held[::-1] if step == "swap" else held * [[2], [3]] if step == "work" else held
        np.testing.assert_array_equal(simulate(jit(on_two_cores)[2], x, steps, lambda me, steps: steps), held)

    check()


def test_two_cores_that_meet_in_different_orders_end_in_an_error():
    @PROFILE
    @given(STEPS.filter(lambda steps: {"barrier", "swap"} & set(steps)), st.integers(0, 1), st.data())
    def check(steps, odd, data):
        meetings = [i for i, step in enumerate(steps) if step != "work"]
        left_out = data.draw(st.sampled_from(meetings))

        def of_program(me, steps):
            return [step for i, step in enumerate(steps) if me != odd or i != left_out]

        with pytest.raises(KernelError) as caught:
            simulate(jit(on_two_cores)[2], np.ones((2, 6), np.float32), steps, of_program)
        assert caught.value.rule == "deadlock"

    check()
