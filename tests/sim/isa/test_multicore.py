"""Two cores of one launch: what they exchange, how they wait, and what happens when one never comes."""

import numpy as np
import pytest

import kernels_neuron.sim.shim as shim
from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using
from kernels_neuron.sim.isa.enums import dma_engine
from kernels_neuron.sim.run import jit

shim.install()
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def swap_rows(x, engine=dma_engine.dma):
    """The two halves of x, exchanged between the cores."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    me = nl.program_id(0)
    mine, theirs = nl.ndarray((4, 8), nl.float32), nl.ndarray((4, 8), nl.float32)
    nisa.dma_copy(mine, x[4 * me : 4 * me + 4])
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0, dma_engine=engine)
    nisa.dma_copy(out[4 * me : 4 * me + 4], theirs)
    return out


def reads_the_other_half(x, barrier=True, on_scratch=False):
    """Each core writes half of a scratch tensor and stores what the other one wrote."""
    scratch = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    other = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    me = nl.program_id(0)
    tile, back = nl.ndarray((4, 8), nl.float32), nl.ndarray((4, 8), nl.float32)
    nisa.dma_copy(tile, x[4 * me : 4 * me + 4])
    nisa.dma_copy(scratch[4 * me : 4 * me + 4], tile)
    nisa.dma_copy(other[4 * me : 4 * me + 4], tile)
    if barrier:
        nisa.core_barrier(scratch if on_scratch else other, (0, 1))
    nisa.dma_copy(back, scratch[4 * (1 - me) : 4 * (1 - me) + 4])
    nisa.dma_copy(out[4 * me : 4 * me + 4], back)
    return out


@pytest.mark.parametrize("engine", dma_engine)
def test_sendrecv_matches_numpy(engine):
    np.testing.assert_array_equal(jit(swap_rows)[2](X, engine), np.concatenate([X[4:], X[:4]]))


def test_core_barrier_matches_numpy():
    out = jit(reads_the_other_half)[2](X, True, True)
    np.testing.assert_array_equal(out, np.concatenate([X[4:], X[:4]]))


def test_a_barrier_on_the_tensor_repairs_the_race_and_its_absence_is_one():
    with pytest.raises(KernelError, match="nothing orders the two") as caught:
        jit(reads_the_other_half)[2](X, False)
    assert caught.value.rule == "race"


def test_a_barrier_on_another_tensor_orders_nothing_unless_the_switch_says_so():
    with pytest.raises(KernelError, match="nothing orders the two") as caught:
        jit(reads_the_other_half)[2](X, True, False)
    assert caught.value.rule == "race"
    with using("trn2", Settings(switches={"barrier_orders": "everything"})):
        jit(reads_the_other_half)[2](X, True, False)


def clears_then_stores(x, exchanges=True):
    """Both cores clear all of the output, then each stores half of it: a public MoE kernel exchanges sums between."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    me = nl.program_id(0)
    zeros, mine, theirs = (nl.ndarray(shape, nl.float32) for shape in (x.shape, (4, 8), (4, 8)))
    nisa.memset(zeros, 0.0)
    nisa.dma_copy(out, zeros)
    nisa.dma_copy(mine, x[4 * me : 4 * me + 4])
    if exchanges:
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.dma_copy(out[4 * me : 4 * me + 4], mine)
    return out


def test_an_exchange_orders_what_came_before_it_unless_the_switch_says_otherwise():
    np.testing.assert_array_equal(jit(clears_then_stores)[2](X), X)
    with pytest.raises(KernelError, match="nothing orders the two"):
        jit(clears_then_stores)[2](X, False)
    with (
        using("trn2", Settings(switches={"sendrecv_orders": "nothing"})),
        pytest.raises(KernelError, match="nothing orders the two"),
    ):
        jit(clears_then_stores)[2](X)


def test_every_run_is_the_same_run():
    def lines():
        with using("trn2") as runs:
            jit(swap_rows)[2](X)
        return [[record[:3] for record in trace.records] for trace in runs[0].traces]

    assert lines() == lines()


def test_price_only_programs_meet_too():
    with using("trn2", Settings(execute=False)) as runs:
        jit(swap_rows)[2](X)
    assert [trace.instructions for trace in runs[0].traces] == [3, 3]


@pytest.mark.parametrize(("name", "engine"), [("sendrecv", "sync"), ("core_barrier", "gpsimd")])
def test_waiting_is_priced_as_two_semaphores(name, engine):
    with using("trn2") as runs:
        jit(swap_rows if name == "sendrecv" else reads_the_other_half)[2](
            *((X,) if name == "sendrecv" else (X, True, True))
        )
    record = next(r for r in reversed(runs[0].traces[0].records) if r.name == name)
    assert record.engine == engine
    assert record.price.issue_ns == pytest.approx(12 + 23)


def test_sendrecv_price():
    with using("trn2") as runs:
        jit(swap_rows)[2](X)
    sent, received = [r for r in runs[0].traces[0].records if r.name == "sendrecv"]
    assert sent.price.transfer.direction == "copy"
    assert received.writes and not received.price.transfer


def test_core_barrier_price():
    with using("trn2") as runs:
        jit(reads_the_other_half)[2](X, True, True)
    (barrier,) = [r for r in runs[0].traces[0].records if r.name == "core_barrier"]
    assert barrier.price.latency_ns == pytest.approx(35)


def one_core_skips(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    if nl.program_id(0) == 0:
        nisa.core_barrier(out, (0, 1))
    return out


def different_places(x):
    tile = nl.ndarray((1, 8), nl.float32)
    nisa.memset(tile, 0.0)
    if nl.program_id(0) == 0:
        nisa.core_barrier(x, (0, 1))
    else:
        nisa.sendrecv(tile, tile, 0, 0, 7)
    return x


def test_a_deadlock_names_where_each_program_is():
    with pytest.raises(
        KernelError, match=r"program 0 waits in core_barrier at test_multicore.py:\d+, program 1 has ended"
    ):
        jit(one_core_skips)[2](X)
    with pytest.raises(
        KernelError, match=r"core_barrier at \S+:\d+, program 1 waits in sendrecv of pipe 7 at"
    ) as caught:
        jit(different_places)[2](X)
    assert caught.value.rule == "deadlock"


def test_a_failing_program_ends_the_other_one():
    def kernel(x):
        if nl.program_id(0) == 1:
            nisa.memset(x, 0.0)
        nisa.core_barrier(x, (0, 1))
        return x

    with pytest.raises(KernelError, match="memset takes dst in SBUF or PSUM"):
        jit(kernel)[2](X)


def mismatched(x):
    me = nl.program_id(0)
    tile = nl.ndarray((1, 8 - me), nl.float32)
    nisa.memset(tile, 0.0)
    nisa.sendrecv(tile, tile, 1 - me, 1 - me, 0)
    return x


def test_the_two_ends_of_a_transfer_agree():
    with pytest.raises(KernelError, match="expects") as caught:
        jit(mismatched)[2](X)
    assert caught.value.rule == "sendrecv-pair"


def test_barriers_and_transfers_need_two_cores(machine):
    bench = machine()
    tile, data = bench.tile(X), bench.tile(X, buffer="shared_hbm")
    assert "launch it as kernel[2]" not in bench.refuses("barrier-cores", "core_barrier", data, (0, 1))
    bench.refuses("barrier-cores", "core_barrier", data, (0, 2))
    bench.refuses("sendrecv-rank", "sendrecv", tile, tile, 0, 0, 0)
    bench.refuses("sendrecv-extent", "sendrecv", tile, tile[:4], 0, 0, 0)
    bench.refuses("operand-buffer", "sendrecv", data, tile, 0, 0, 0)
    (record,) = bench.issue("core_barrier", data, (0,))
    assert record.engine == "gpsimd"
    machine("trn1").refuses("chip-generation", "core_barrier", data, (0, 1))


def test_gpsimd_dma_moves_little():
    def kernel(x, width):
        me = nl.program_id(0)
        tile = nl.ndarray((1, width), nl.float32)
        nisa.memset(tile, 0.0)
        nisa.sendrecv(tile, tile, 1 - me, 1 - me, 0, dma_engine=dma_engine.gpsimd_dma)
        return x

    jit(kernel)[2](X, 256)
    with pytest.raises(KernelError, match="at most 1024 bytes per partition") as caught:
        jit(kernel)[2](X, 257)
    assert caught.value.rule == "gpsimd-dma-limit"
