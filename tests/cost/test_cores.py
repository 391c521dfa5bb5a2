"""Two cores, and ranks, in one timeline: meetings, order the kernel asks for, and HBM that they share."""

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from kernels_neuron.arch import chip
from kernels_neuron.cost.cores import join, ordered
from kernels_neuron.cost.deps import dependencies
from kernels_neuron.cost.plan import plan, plan_launch
from kernels_neuron.cost.timeline import replay, split
from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using
from kernels_neuron.sim.run import simulate_ranks
from kernels_neuron.sim.trace import Price, Record, Trace

TRN2 = chip("trn2")
WORK = Price(1000, 1100)


def traces_of(kernel, *args):
    with using("trn2", Settings(execute=False)) as runs:
        kernel(*args)
    return runs[0].traces


def timed(traces):
    joint = plan_launch(traces, TRN2)
    return split(joint, replay(joint))


def named(trace, name):
    return [index for index, record in enumerate(trace.records) if record.name == name]


def alone(*engines):
    trace = Trace("trn2", 0, lines=[("k.py", 1)])
    trace.records = [Record("step", engine, WORK, (), (), number, 0) for number, engine in enumerate(engines)]
    return trace


@nki.jit
def barrier(x):
    """Core 0 stores late, core 1 reads what it stored behind a barrier."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    shared = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=tile, src=x)
        for _ in range(8):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=shared, src=tile)
    nisa.core_barrier(data=shared, cores=(0, 1))
    if nl.program_id(0) == 1:
        nisa.dma_copy(dst=tile, src=shared)
        nisa.dma_copy(dst=y, src=tile)
    return y


def test_a_barrier_lets_nobody_go_before_the_last_has_come():
    """The store is visible 354 ns after its last packet; GpSimdE wakes 23 later, and the barrier takes 35."""
    first, second = traces_of(barrier[2], np.ones((128, 512), np.float32))
    late, early = timed([first, second])
    (mine,), (theirs,) = named(first, "core_barrier"), named(second, "core_barrier")
    stored = late.data[mine - 1][1] + TRN2.dma_completion_ns
    assert late.start[mine] == pytest.approx(stored + 23)
    assert early.start[theirs] == pytest.approx(stored + 23)
    assert early.start[theirs + 1] == pytest.approx(early.end[theirs] + 12 + 16)  # set, wake of SyncE
    assert early.end[theirs] - early.start[theirs] == pytest.approx(35)
    alone = replay(plan(second, TRN2))
    assert early.body_ns > alone.body_ns + 5000


@nki.jit
def swap(x):
    """Each core sends its tile to the other one; core 1 works on its own first."""
    y = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    me = nl.program_id(0)
    tile, came = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=tile, src=x)
    for _ in range(8 if me else 1):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.sendrecv(src=tile, dst=came, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.dma_copy(dst=y[me], src=came)
    return y


def test_what_is_received_was_sent_before():
    """Core 0 has nothing to store until core 1 has worked, sent, and 354 ns of completion are over."""
    traces = traces_of(swap[2], np.ones((128, 512), np.float32))
    lines = timed(traces)
    send, receive = zip(*(named(trace, "sendrecv") for trace in traces), strict=True)
    for core in range(2):
        other = lines[1 - core]
        arrived = other.data[send[1 - core]][1] + TRN2.dma_completion_ns
        assert lines[core].start[receive[core]] >= arrived + TRN2.sync.wake_ns - 1e-6
    assert lines[0].start[receive[0]] == pytest.approx(
        lines[1].data[send[1]][1] + TRN2.dma_completion_ns + TRN2.sync.wake_ns
    )
    store = len(traces[0].records) - 1
    assert lines[0].start[store] > lines[0].end[receive[0]]


@nki.jit
def halves(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // 2
    for start in range(nl.program_id(0) * rows, (nl.program_id(0) + 1) * rows, 128):
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start : start + 128])
        nisa.dma_copy(dst=y[start : start + 128], src=tile)
    return y


def test_two_cores_that_stream_are_bound_by_hbm_and_one_is_not():
    """64 MiB in and out: one core 368 bytes per ns [dma], two 716 together."""
    traces = traces_of(halves[2], np.zeros((4096, 8192), np.float32))
    together = max(line.body_ns for line in timed(traces))
    apart = max(replay(plan(trace, TRN2)).body_ns for trace in traces)
    moved = 2 * 4096 * 8192 * 4
    assert moved / together == pytest.approx(2 * TRN2.hbm_gbps, rel=0.03)
    assert moved / 2 / apart == pytest.approx(TRN2.dma_stream_gbps, rel=0.03)


def test_a_small_transfer_of_each_core_is_not_slowed():
    """32 KiB of each core need 46 ns of HBM and 97 of the engines."""
    traces = traces_of(halves[2], np.zeros((256, 64), np.float32))
    apart = [replay(plan(trace, TRN2)) for trace in traces]
    for line, by_itself in zip(timed(traces), apart, strict=True):
        assert line.body_ns == pytest.approx(by_itself.body_ns)
        assert line.busy["dma"] == pytest.approx(by_itself.busy["dma"])


@pytest.mark.parametrize("kernel", [barrier, swap, halves])
def test_joined_cores_are_never_faster_than_either_alone(kernel):
    traces = traces_of(kernel[2], np.ones((256, 512) if kernel is halves else (128, 512), np.float32))
    apart = [replay(plan(trace, TRN2)).body_ns for trace in traces]
    joint = plan_launch(traces, TRN2)
    line = replay(joint)
    assert line.body_ns >= max(apart) - 1e-6
    assert line.body_ns == max(each.body_ns for each in split(joint, line))


def test_edges_of_the_kernel_are_waits():
    """Two independent instructions on two engines; the edge costs latency, semaphore and wake: 1100 + 12 + 22."""
    trace = alone("vector", "scalar")
    assert replay(plan(trace, TRN2)).start[1] == TRN2.scalar_begins_ns
    trace.edges = [(0, 1)]
    assert ordered(trace) == [(0, 1)]
    assert replay(plan(trace, TRN2)).start[1] == 1100 + 12 + 22


@nki.jit
def two_copies(x, engine):
    """A copy, and one on `engine` that has nothing to do with it."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, one, other = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(3))
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_copy(dst=one, src=tile, engine=nisa.vector_engine, name="first")
    nisa.tensor_copy(dst=other, src=tile, engine=engine, name="second")
    nisa.dma_copy(dst=y, src=other)
    return y


def test_an_order_against_the_order_of_issue_is_kept_across_engines_and_refused_within_one():
    backwards, x = two_copies.with_schedule([("first", "second")]), np.zeros((128, 64), np.float32)
    (line,) = timed(traces_of(backwards, x, nisa.scalar_engine))
    assert line.start[1] > line.start[2]
    with pytest.raises(KernelError, match=r"tensor_copy at .* and tensor_copy at .* wait for each other") as caught:
        plan_launch(traces_of(backwards, x, nisa.vector_engine), TRN2)
    assert caught.value.rule == "deadlock"


def test_edges_wait_for_all_steps_of_an_instruction():
    trace = alone("vector", "scalar", "gpsimd")
    trace.records[1] = trace.records[1]._replace(instruction=0)
    trace.edges = [(0, 2)]
    assert ordered(trace) == [(0, 2), (1, 2)]


def test_no_reorder_costs_nothing():
    """It keeps the order of issue inside each queue, which the timeline keeps anyway."""
    trace = alone("vector", "vector", "scalar")
    before = replay(plan(trace, TRN2)).body_ns
    trace.in_order = [(0, 3)]
    assert replay(plan(trace, TRN2)).body_ns == before


@nki.jit
def summed(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    copy = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=copy, src=x)
    ncc.all_reduce(srcs=[copy], dsts=[y], replica_group=ncc.ReplicaGroup([[0, 1, 2, 3]]), op=nl.add)
    return y


def test_a_collective_over_four_ranks_costs_its_hops_and_its_bytes():
    """All-reduce over four ranks: six hops of 1.5 us and 256 KiB at 368 bytes per ns, from when the last rank came."""
    with using("trn2", Settings(execute=False)) as runs:
        simulate_ranks(summed, [(np.ones((128, 512), np.float32),) for _ in range(4)])
    lines = timed([run.traces[0] for run in runs])
    trace = runs[0].traces[0]
    bring, receive = named(trace, "all_reduce")
    for line in lines:
        assert line.end[bring] - line.start[bring] == pytest.approx(6 * 1500 + 262144 / 368, rel=0.01)
        assert line.start[receive] >= max(other.end[bring] for other in lines)


def test_ranks_of_other_groups_do_not_wait():
    @nki.jit
    def paired(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        group = ncc.ReplicaGroup([[0, 1], [2, 3]])
        ncc.all_reduce(srcs=[x], dsts=[y], replica_group=group, op=nl.add)
        return y

    with using("trn2", Settings(execute=False)) as runs:
        simulate_ranks(paired, [(np.ones((128, 64), np.float32),) for _ in range(4)])
    traces = [run.traces[0] for run in runs]
    joined = join(traces, [dependencies(trace) for trace in traces])
    assert [joined[2 * rank + 1] for rank in range(4)] == [(0, 2), (0, 2), (4, 6), (4, 6)]
