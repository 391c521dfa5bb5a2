"""Where the programs of a launch meet: exchanges, waiting, and the public profile of several ranks."""

import json

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import kernels_neuron
from kernels_neuron.cost.meetings import program_names
from kernels_neuron.cost.profile import profile, profile_ranks
from kernels_neuron.errors import UsageError
from kernels_neuron.flows.profile_html import render
from kernels_neuron.settings import Settings
from kernels_neuron.sim.trace import Trace

X = np.ones((128, 512), np.float32)


@nki.jit
def late(x, extra=0):
    """x summed over two ranks, after `extra` copies that nobody else makes."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    brought = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for _ in range(extra):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=brought, src=tile)
    ncc.all_reduce(srcs=[brought], dsts=[y], replica_group=ncc.ReplicaGroup([[0, 1]]), op=nl.add)
    return y


@nki.jit
def handed_over(x):
    """Each core sends the other its tile, and both meet at a barrier."""
    y = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    me = nl.program_id(0)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.sendrecv(src=tile, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.dma_copy(dst=y[me], src=other)
    nisa.core_barrier(y, (0, 1))
    return y


def test_an_exchange_takes_its_hops_and_bytes_and_the_early_rank_waits():
    """Two ranks: two hops of 1.5 us and 256 KiB at 368 bytes per ns; rank 1 comes eight instructions later."""
    found = profile_ranks(late, [(X, 0), {"x": X, "extra": 8}])
    [meeting] = found.meetings
    assert (meeting.instruction, meeting.times) == ("all_reduce", 1) and meeting.where.startswith("test_meetings.py:")
    assert meeting.exchange_us == pytest.approx(2 * 1.5 + 262144 / 368e3, abs=0.1)
    alone = profile_ranks(late, [(X, 0)] * 2)
    assert meeting.waited_us["rank 0"] == pytest.approx(found.body_us - alone.body_us, rel=0.1)
    assert meeting.waited_us["rank 1"] == 0 and max(alone.meetings[0].waited_us.values()) < 0.2


def test_the_body_lasts_until_the_last_rank_has_ended_and_the_bound_is_a_ranks():
    one, found = profile(late_alone, X), profile_ranks(late, [(X, 8), (X, 0)])
    assert found.ranks == 2 and found.lnc == 1 and list(found.bodies_us) == ["rank 0", "rank 1"]
    assert found.body_us == max(found.bodies_us.values()) and found.estimated_us == found.body_us + found.launch_us
    assert one.bound_us < found.bound_us < 3 * one.bound_us
    assert sum(segment.us for segment in found.path) == pytest.approx(found.body_us)
    assert any("waiting for an exchange of all_reduce at" in line for line in found.critical_path)


@nki.jit
def late_alone(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=y, src=tile)
    return y


def test_ranks_that_meet_nobody_take_as_long_as_one_and_each_gives_its_outputs():
    one = profile(late_alone, X)
    found = profile_ranks(late_alone, [(X,), (2 * X,)])
    assert found.body_us == pytest.approx(one.body_us, rel=0.05)  # they share HBM
    assert found.bound_us == pytest.approx(one.bound_us)
    assert found.meetings == [] and found.instructions == 2 * one.instructions
    assert [float(out[0, 0]) for out in found.outputs] == [1.0, 2.0]


def test_two_cores_meet_at_a_send_and_at_a_barrier():
    found = profile(handed_over[2], X)
    assert [meeting.instruction for meeting in found.meetings] == ["sendrecv", "core_barrier"]
    assert all(list(meeting.waited_us) == ["core 0", "core 1"] for meeting in found.meetings)
    send, barrier = found.meetings
    assert send.exchange_us > 0 and barrier.exchange_us == 0
    assert profile(late_alone, X).meetings == []


def test_programs_are_called_by_what_tells_them_apart():
    traces = {(rank, core): Trace("trn2", core, rank) for rank in range(2) for core in range(2)}
    assert program_names([traces[0, 0]]) == ["core 0"]
    assert program_names([traces[0, 0], traces[0, 1]]) == ["core 0", "core 1"]
    assert program_names([traces[0, 0], traces[1, 0]]) == ["rank 0", "rank 1"]
    assert program_names(list(traces.values()))[1:3] == ["rank 0 core 1", "rank 1 core 0"]


def test_json_trace_and_page_tell_the_ranks_apart(tmp_path):
    found = profile_ranks(late, [(X, 8), (X, 0)], settings=Settings(execute=False))
    values = json.loads(json.dumps(found.to_json()))
    assert values["ranks"] == 2 and set(values["bodies_us"]) == {"rank 0", "rank 1"}
    assert values["meetings"][0]["waited_us"]["rank 1"] > 0
    found.write_trace(tmp_path / "out.json")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "trn2 rank 0 (estimated)", 1: "trn2 rank 1 (estimated)"}
    page = render(found)
    assert "late on trn2, 2 ranks" in page and "Where programs meet" in page and "rank 1 sync" in page


def test_ranks_of_two_cores_on_another_chip():
    @nki.jit
    def gathered(x):
        y = nl.ndarray((2 * x.shape[0], x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
        group = ncc.ReplicaGroup([[0, 1]])
        ncc.all_gather(srcs=[x], dsts=[y], replica_group=group, collective_dim=0)
        return y

    found = profile_ranks(gathered[2], [(X,), (X,)], arch="trn3")
    assert len(found.programs) == 4 and "rank 1 core 1" in found.bodies_us and not found.validated


def test_ranks_are_part_of_the_public_face_and_limited_to_64():
    assert kernels_neuron.profile_ranks is profile_ranks and "simulate_ranks" in kernels_neuron.__all__
    with pytest.raises(UsageError, match="1 to 64 ranks, got 65"):
        profile_ranks(late, [(X,)] * 65)


def test_a_path_that_begins_on_a_late_queue_says_which():
    @nki.jit
    def by_scalar(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=y, src=x, engine=nisa.engine.scalar)
        return y

    last = profile(by_scalar, X).path[-1]
    assert (last.engine, last.instruction) == ("scalar", "queue not begun")
    assert last.where.startswith("before test_meetings.py:") and last.us == pytest.approx(0.138)
