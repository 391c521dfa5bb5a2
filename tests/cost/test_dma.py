import pytest

from kernels_neuron.arch import chip
from kernels_neuron.cost.dma import Chunk, Hbm, Lane, lanes, make_lanes
from kernels_neuron.sim.trace import Transfer

TRN2 = chip("trn2")


def shares(transfer, arch=TRN2):
    return lanes([transfer], arch).shares[transfer]


def test_a_full_tile_falls_evenly_on_all_engines():
    plan = lanes([Transfer("load", 128, 2048, 0, 128, "hw")], TRN2)
    assert plan.engines == (tuple(range(16)),)
    ((_, ns, size),) = next(iter(plan.shares.values()))
    assert size == 8 * 2048
    assert ns == pytest.approx(8 * (4.7 + 2048 / 27.2))


def test_four_partitions_keep_one_engine_busy():
    """The published 32 KiB load of [4, 4096] bfloat16 takes 1,416 ns on its engine, a load stall included."""
    ((lane, ns, size),) = shares(Transfer("load", 4, 8192, 0, 4, "none"))
    assert size == 32768 and ns == pytest.approx(1249, rel=0.02)
    assert ns + TRN2.dma_static_load_stall_ns == pytest.approx(1416, rel=0.05)
    assert lanes([Transfer("load", 4, 8192, 0, 4, "none")], TRN2).engines[lane] == (0,)


def test_long_rows_are_split_at_4_kib():
    ((_, ns, _),) = shares(Transfer("store", 128, 16384, 0, 128, "hw"))
    assert ns == pytest.approx(8 * (4 * 4.7 + 16384 / 27.2))


def test_a_software_load_packs_rows_and_a_store_does_not():
    ((_, load, _),) = shares(Transfer("load", 128, 256, 0, 128, "sw"))
    ((_, store, _),) = shares(Transfer("store", 128, 256, 0, 128, "sw"))
    assert load == pytest.approx(4.7 + 2048 / 27.2)  # one packet of 2 KiB per engine, 82 to 97 ns measured
    assert store == pytest.approx(8 * 4.7 + 2048 / 27.2)


def test_a_slow_kind_of_transfer_takes_longer():
    (fast,), (slow,) = (shares(Transfer("load", 128, 512, 0, 128, "hw", rate)) for rate in (1.0, 0.5))
    assert slow[1] == pytest.approx(2 * fast[1])


def lane():
    return Lane(stream=23.0, ahead=700.0)


def test_a_ring_is_first_in_first_out_and_two_rings_share():
    server = lane()
    server.join(0.0, "sync", Chunk(1, 100, 100))
    server.join(0.0, "sync", Chunk(2, 100, 100))
    server.join(0.0, "scalar", Chunk(3, 100, 100))
    done = []
    while (time := server.next_event()) is not None:
        done += [(chunk.record, time) for chunk in server.step(time)]
    assert done == [(1, 200.0), (3, 200.0), (2, 300.0)]
    assert server.busy == pytest.approx(300)


def times_of(server):
    done = []
    while (time := server.next_event()) is not None:
        done += [(chunk.record, time) for chunk in server.step(time)]
    return done


def test_a_stalled_packet_holds_the_engine():
    """As in the public traces: a hardware load's first packet comes when the software load's stall is over."""
    server = lane()
    server.join(0.0, "sync", Chunk(1, 100, 100, stall=500))
    server.join(0.0, "scalar", Chunk(2, 100, 100))
    assert times_of(server) == [(1, 700.0), (2, 700.0)]


def test_a_chunk_whose_data_is_not_there_lets_other_rings_pass():
    server = lane()
    server.join(0.0, "sync", Chunk(1, 100, 100, ready=500))
    server.join(0.0, "scalar", Chunk(2, 100, 100))
    assert times_of(server) == [(2, 100.0), (1, 600.0)]


def test_long_streams_fall_to_the_sustained_rate():
    plan = lanes([Transfer("load", 128, 4096, 0, 128, "hw")], TRN2)
    (server,) = make_lanes(plan, TRN2, cores=1)
    ((_, ns, size),) = next(iter(plan.shares.values()))
    for record in range(200):
        server.join(0.0, "sync", Chunk(record, ns, size))
    times = []
    while (time := server.next_event()) is not None:
        times += [time for _ in server.step(time)]
    assert size / times[0] == pytest.approx(26.4, rel=0.01)  # a burst
    assert size / (times[-1] - times[-2]) * 16 == pytest.approx(TRN2.dma_stream_gbps)


def test_what_two_cores_ask_hbm_for_goes_through_at_its_rate():
    """716 bytes per ns for a pair of trn2 cores: 7,160 of each take 10 and 20 ns."""
    hbm = Hbm(716.0)
    assert hbm.take(100.0, 7160) == pytest.approx(110.0)
    assert hbm.take(100.0, 7160) == pytest.approx(120.0)
    assert hbm.take(500.0, 7160) == pytest.approx(510.0)


def test_two_cores_that_stream_get_the_hbm_of_a_pair():
    plan = lanes([Transfer("load", 128, 4096, 0, 128, "hw")], TRN2)
    ((_, ns, size),) = next(iter(plan.shares.values()))
    servers = make_lanes(plan, TRN2, cores=2)
    for record in range(400):
        for server in servers:
            server.join(0.0, "sync", Chunk(record, ns, size))
    times = []
    while waiting := [(time, i) for i, server in enumerate(servers) if (time := server.next_event()) is not None]:
        time, i = min(waiting)
        times += [time for _ in servers[i].step(time)]
    rate = 400 * size * 16 / (times[-1] - times[-401])
    assert rate == pytest.approx(2 * TRN2.hbm_gbps, rel=0.01)
