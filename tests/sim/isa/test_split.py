"""Collectives in two halves: the same exchange, a slot of one, metadata read early."""

import numpy as np
import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings
from kernels_neuron.sim import shim
from kernels_neuron.sim.run import jit, simulate_ranks

shim.install()
import nki.collectives as ncc  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

TWO, FOUR = ncc.ReplicaGroup([[0, 1]]), ncc.ReplicaGroup([[0, 1, 2, 3]])


def hbm(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def zeroed(shape):
    """A tensor of zeros in HBM, so that what nobody sends is written too."""
    out = hbm(shape)
    nisa.dma_copy(dst=out, src=nl.zeros(shape, nl.float32))
    return out


def table(counts, places):
    return np.array([counts, places, [0] * len(counts)], np.uint32)


def whole(x, metadata):
    out = zeroed(x.shape)
    ncc.all_to_all_v([x], [out], TWO, metadata)
    return out


def halves(x, metadata):
    out, filled = zeroed(x.shape), hbm(x.shape)
    prepared = ncc.all_to_all_v_prepare([filled], [out], TWO, metadata)
    nisa.dma_copy(dst=filled, src=x)
    ncc.all_to_all_v_trigger(prepared)
    return out


def test_all_to_all_v_in_halves_matches_numpy():
    inputs = [np.arange(8, dtype=np.float32).reshape(2, 4) + 10 * rank for rank in range(2)]
    tables = [table([2, 1], [0, 4]), table([1, 3], [2, 5])]
    for kernel in (whole, halves):
        first, second = simulate_ranks(kernel, list(zip(inputs, tables, strict=True)))
        np.testing.assert_array_equal(first.reshape(-1), [0, 1, 0, 0, 12, 0, 0, 0])
        np.testing.assert_array_equal(second.reshape(-1), [4, 0, 0, 0, 15, 16, 17, 0])


def test_all_gather_v_in_halves_matches_numpy():
    def kernel(x, metadata):
        out = zeroed((4, 8))
        prepared = ncc.all_gather_v_prepare([x], [out], FOUR, metadata)
        ncc.all_gather_v_trigger(prepared)
        return out

    inputs = [np.arange(8, dtype=np.float32).reshape(1, 8) + 10 * rank for rank in range(4)]
    tables = [table([rank + 1] * 4, [1] * 4) for rank in range(4)]
    expected = np.zeros((4, 8), np.float32)
    for rank in range(4):
        expected[rank, : rank + 1] = inputs[rank][0, 1 : 2 + rank]
    for out in simulate_ranks(jit(kernel)[2], list(zip(inputs, tables, strict=True))):
        np.testing.assert_array_equal(out, expected)


def twice(x, metadata):
    for _ in range(2):
        ncc.all_to_all_v_prepare([x], [zeroed(x.shape)], TWO, metadata)


def without_prepare(x, metadata):
    ncc.all_to_all_v_trigger(nisa.dma_copy(dst=hbm(x.shape), src=x))


def other_collective(x, metadata):
    ncc.all_gather_v_trigger(ncc.all_to_all_v_prepare([x], [zeroed(x.shape)], TWO, metadata))


def triggered_twice(x, metadata):
    prepared = ncc.all_to_all_v_prepare([x], [zeroed(x.shape)], TWO, metadata)
    ncc.all_to_all_v_trigger(prepared)
    ncc.all_to_all_v_trigger(prepared)


def never_triggered(x, metadata):
    ncc.all_to_all_v_prepare([x], [zeroed(x.shape)], TWO, metadata)
    return x


def changed(x, metadata):
    prepared = ncc.all_to_all_v_prepare([x], [zeroed(x.shape)], TWO, metadata)
    nisa.dma_copy(dst=metadata[0:1], src=metadata[1:2])
    ncc.all_to_all_v_trigger(prepared)


@pytest.mark.parametrize(
    ("rule", "kernel"),
    [
        ("collective-prepare", twice),
        ("collective-prepare", without_prepare),
        ("collective-prepare", other_collective),
        ("collective-prepare", triggered_twice),
        ("collective-prepare", never_triggered),
        ("collective-metadata", changed),
    ],
)
def test_a_prepare_is_followed_by_its_own_trigger_once(rule, kernel):
    x = np.zeros((2, 4), np.float32)
    with pytest.raises(KernelError) as caught:
        simulate_ranks(kernel, [(x, table([1, 1], [0, 2]))] * 2)
    assert caught.value.rule == rule


def test_the_halves_come_with_nki_0_7():
    x = np.zeros((2, 4), np.float32)
    with pytest.raises(KernelError, match=r"ncc\.all_to_all_v_prepare exists from NKI 0\.7 on"):
        simulate_ranks(halves, [(x, table([1, 1], [0, 2]))] * 2, settings=Settings(nki="0.6"))
