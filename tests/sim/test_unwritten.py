"""Reads of memory nothing has written: harmless while no result depends on them, an error once one does."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.run import simulate

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def ragged(x, use):
    """Copies a tile of which only 6 columns are written, and stores `use` columns of the copy."""
    out = nl.ndarray((4, use), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, copy = nl.ndarray((4, 8), dtype=x.dtype), nl.ndarray((4, 8), dtype=x.dtype)
    nisa.dma_copy(dst=tile[:, :6], src=x[:, :6])
    nisa.tensor_scalar(dst=copy, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=copy[:, :use])
    return out


def refused(kernel, *args, **kwargs):
    with pytest.raises(KernelError) as caught:
        simulate(nki.jit(kernel), *args, **kwargs)
    assert caught.value.rule == "unwritten-read"
    return str(caught.value)


def test_lanes_that_are_copied_and_never_used_are_no_error():
    np.testing.assert_array_equal(simulate(nki.jit(ragged), X, 6), 2 * X[:, :6])


def test_a_result_that_depends_on_them_is_refused_and_the_first_read_is_named():
    message = refused(ragged, X, 7)
    assert "16 of 112 bytes" in message and "tensor_scalar reads bytes of sbuf float32[4, 8]" in message


def test_the_switch_refuses_at_the_first_read():
    assert "tensor_scalar reads" in refused(ragged, X, 6, settings=Settings(switches={"unwritten_read": "refuse"}))


def test_a_reduction_over_one_unwritten_element_is_unwritten():
    def kernel(x, columns):
        out = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        tile, total = nl.ndarray((4, 8), dtype=x.dtype), nl.ndarray((4, 1), dtype=x.dtype)
        nisa.dma_copy(dst=tile[:, :6], src=x[:, :6])
        nisa.tensor_reduce(dst=total, op=nl.add, data=tile[:, :columns], axis=1)
        nisa.dma_copy(dst=out, src=total)
        return out

    np.testing.assert_array_equal(simulate(nki.jit(kernel), X, 6), X[:, :6].sum(1, keepdims=True))
    refused(kernel, X, 7)


def test_a_write_after_the_read_makes_the_bytes_known_again():
    def kernel(x):
        out = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        tile, copy = nl.ndarray((4, 8), dtype=x.dtype), nl.ndarray((4, 8), dtype=x.dtype)
        nisa.dma_copy(dst=tile[:, :6], src=x[:, :6])
        nisa.tensor_copy(dst=copy, src=tile)
        nisa.memset(dst=copy[:, 6:], value=0.0)
        nisa.dma_copy(dst=out, src=copy)
        return out

    np.testing.assert_array_equal(simulate(nki.jit(kernel), X)[:, 6:], 0)


def test_writing_over_known_bytes_with_unknown_ones_makes_them_unknown():
    def kernel(x):
        out = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        tile, copy = nl.ndarray((4, 8), dtype=x.dtype), nl.ndarray((4, 8), dtype=x.dtype)
        nisa.memset(dst=copy, value=0.0)
        nisa.dma_copy(dst=tile[:, :6], src=x[:, :6])
        nisa.tensor_copy(dst=copy, src=tile)
        nisa.dma_copy(dst=out, src=copy)
        return out

    refused(kernel, X)


def test_an_instruction_in_place_on_a_ragged_tile_runs_once_over_the_known_bytes():
    def kernel(x):
        out = nl.ndarray((4, 6), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((4, 8), dtype=x.dtype)
        nisa.dma_copy(dst=tile[:, :6], src=x[:, :6])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out, src=tile[:, :6])
        return out

    np.testing.assert_array_equal(simulate(nki.jit(kernel), X), X[:, :6] + 1)


def test_a_sum_over_unwritten_elements_leaves_an_undefined_accumulator():
    def kernel(x, columns):
        out = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        tile, copy, total = (nl.ndarray((4, n), dtype=x.dtype) for n in (8, 8, 1))
        nisa.dma_copy(dst=tile[:, :6], src=x[:, :6])
        nisa.activation_reduce(
            dst=copy[:, :columns], op=nl.copy, data=tile[:, :columns], reduce_op=nl.add, reduce_res=total
        )
        nisa.dma_copy(dst=out, src=total)
        return out

    np.testing.assert_array_equal(simulate(nki.jit(kernel), X, 6), X[:, :6].sum(1, keepdims=True))
    refused(kernel, X, 7)


def test_a_selection_that_drops_the_unwritten_elements_is_known():
    def kernel(x):
        out = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        tile, picked = nl.ndarray((4, 8), dtype=x.dtype), nl.ndarray((4, 8), dtype=x.dtype)
        nisa.dma_copy(dst=tile[:, :6], src=x[:, :6])
        nisa.affine_select(
            dst=picked,
            pattern=[[-1, 8]],
            channel_multiplier=0,
            on_true_tile=tile,
            on_false_value=-1.0,
            cmp_op=nl.greater_equal,
            offset=5,
        )
        nisa.dma_copy(dst=out, src=picked)
        return out

    np.testing.assert_array_equal(simulate(nki.jit(kernel), X)[:, 6:], -1)


@pytest.mark.parametrize("known", [6, 8])
def test_what_the_other_core_sends_stays_unwritten_here(known):
    def kernel(x, known):
        out = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        mine, theirs = nl.ndarray((4, 8), dtype=x.dtype), nl.ndarray((4, 8), dtype=x.dtype)
        me = nl.program_id(0)
        nisa.dma_copy(dst=mine[:, :known], src=x[:, :known])
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
        nisa.dma_copy(dst=out[4 * me : 4 * me + 4], src=theirs)
        return out

    if known == 8:
        np.testing.assert_array_equal(simulate(nki.jit(kernel)[2], X, known), np.concatenate([X, X]))
    else:
        with pytest.raises(KernelError, match="depend on unwritten memory"):
            simulate(nki.jit(kernel)[2], X, known)
