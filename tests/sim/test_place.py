import numpy as np
import pytest

from kernels_neuron.arch import chip
from kernels_neuron.errors import KernelError
from kernels_neuron.sim.place import place
from kernels_neuron.sim.trace import Price, Record, Region, Tile, Trace

PRICE = Price(1.0, 1.0)


def trace_of(tiles, uses, arch="trn2"):
    """A trace with `tiles` as (buffer, partitions, bytes, address) and `uses` as (tile read or None, tile written)."""
    trace = Trace(arch, 0, lines=[("kernel.py", 7)])
    for i, (buffer, partitions, nbytes, address) in enumerate(tiles):
        trace.tiles[i] = Tile(i, f"t{i}", buffer, "uint8", (partitions, nbytes), partitions, nbytes, 0, address)
    region = lambda i: Region(i, 0, trace.tiles[i].partitions, 0, trace.tiles[i].nbytes)  # noqa: E731
    for read, written in uses:
        reads = () if read is None else (region(read),)
        trace.records.append(Record("step", "vector", PRICE, reads, (region(written),), 0, 0))
    return trace


def live_together(*sizes, buffer="sbuf", partitions=128, arch="trn2"):
    count = len(sizes)
    uses = [(None, i) for i in range(count)] + [(i, i) for i in range(count)]
    return trace_of([(buffer, partitions, size, None) for size in sizes], uses, arch)


def placed(trace):
    place(trace, chip(trace.arch))
    return trace.places


def refused(rule, trace):
    with pytest.raises(KernelError) as caught:
        placed(trace)
    assert caught.value.rule == rule
    return str(caught.value)


@pytest.mark.parametrize("arch", ["trn1", "trn2", "trn3"])
def test_capacity_is_judged_by_each_chips_own_limit(arch):
    too_much = live_together(98568, 98568, 888, arch=arch)
    if arch == "trn1":
        message = refused("sbuf-capacity", too_much)
        for words in ("196608 bytes", "198024 on partition 0", "98568 bytes  t0", "888 bytes  t2", "kernel.py:7"):
            assert words in message
    else:
        assert len(placed(too_much)) == 3
    assert len(placed(live_together(80000, 80000, 888, arch=arch))) == 3


def test_what_is_live_beyond_sbuf_may_spill_but_not_the_operands_of_one_instruction():
    too_much = live_together(98568, 98568, 888, arch="trn1")
    place(too_much, chip("trn1"), spill=True)
    assert too_much.spills and not too_much.places
    fits = live_together(80000, 80000, 888, arch="trn1")
    place(fits, chip("trn1"), spill=True)
    assert not fits.spills and len(fits.places) == 3

    at_once = trace_of([("sbuf", 128, 98568, None)] * 2, [(None, 0), (0, 1)], "trn1")
    with pytest.raises(KernelError, match="take 197136 on partition 0"):
        place(at_once, chip("trn1"), spill=True)


def test_capacity_counts_the_fullest_partition():
    tiles = [("sbuf", 65, 4, None)] * 1000 + [("sbuf", 128, 196608 - 3996, None)]
    uses = [(None, i) for i in range(1001)] + [(i, i) for i in range(1001)]
    assert "196612 on partition 0" in refused("sbuf-capacity", trace_of(tiles, uses, "trn1"))


def test_only_live_tiles_count():
    uses = [(None, 0), (0, 1), (1, 2), (2, 3)]
    assert len(placed(trace_of([("sbuf", 128, 100_000, None)] * 4, uses))) == 4


def test_a_tile_that_is_never_used_takes_no_room():
    assert placed(trace_of([("sbuf", 128, 10**9, None)], [])) == {}


def test_psum_holds_eight_live_banks_and_not_nine():
    places = placed(live_together(*[2048] * 8, buffer="psum"))
    assert sorted(spot.byte for spot in places.values()) == [2048 * bank for bank in range(8)]
    assert "in 8 banks of 2048" in refused("psum-capacity", live_together(*[2048] * 9, buffer="psum"))


def test_psum_banks_rotate():
    uses = [(None, 0), (0, 1), (1, 2), (2, 3)]
    places = placed(trace_of([("psum", 128, 2048, None)] * 4, uses))
    assert [places[i].byte // 2048 for i in range(4)] == [0, 1, 2, 3]


def test_a_tile_wider_than_a_bank_takes_two():
    places = placed(live_together(2052, 2048, buffer="psum"))
    assert places[1].byte == 4096


def test_pinned_tiles_may_share_an_address_when_they_live_one_after_the_other():
    tiles = [("sbuf", 128, 64, (0, 0)), ("sbuf", 128, 64, (0, 64)), ("sbuf", 128, 64, (0, 0))]
    assert placed(trace_of(tiles, [(None, 0), (0, 1), (1, 2)]))[2].byte == 0


def test_pinned_tiles_that_overlap_while_both_live_are_named():
    tiles = [("sbuf", 128, 64, (0, 0)), ("sbuf", 128, 64, (0, 32))]
    message = refused("address-overlap", trace_of(tiles, [(None, 0), (None, 1), (0, 1)]))
    assert "t1" in message and "t0" in message


def test_pinned_tiles_on_other_partitions_do_not_overlap():
    tiles = [("sbuf", 64, 64, (0, 0)), ("sbuf", 64, 64, (64, 0))]
    assert len(placed(trace_of(tiles, [(None, 0), (None, 1), (0, 1)]))) == 2


def test_unpinned_tiles_keep_clear_of_a_pin_that_comes_later():
    tiles = [("sbuf", 128, 64, None), ("sbuf", 128, 64, (0, 0))]
    places = placed(trace_of(tiles, [(None, 0), (None, 1), (0, 1)]))
    assert places[0].byte == 64


@pytest.mark.parametrize(
    ("buffer", "address", "rule"),
    [("sbuf", (0, 229376 - 32), "address"), ("sbuf", (64, 0), "address"), ("psum", (0, 1024), "psum-bank")],
)
def test_a_pin_outside_the_memory_or_inside_a_bank_is_refused(buffer, address, rule):
    refused(rule, trace_of([(buffer, 128, 64, address)], [(None, 0)]))


def test_holes_are_closed_by_placing_the_largest_tiles_first():
    # small tiles in the middle of the memory, as rotation leaves them, must not make a large one fail
    rng = np.random.default_rng(0)
    tiles, uses, live = [], [], []
    for i in range(400):
        tiles.append(("sbuf", 128, int(rng.choice([64, 4096, 60000])), None))
        while sum(tiles[j][2] for j in live) + tiles[-1][2] > 200_000:
            live.pop(int(rng.integers(len(live))))
        live.append(i)
        uses += [(None, i)] + [(j, j) for j in live]
    trace = trace_of(tiles, uses)
    places = placed(trace)
    first, last = {}, {}
    for index, region, _ in trace.uses():
        first.setdefault(region.tile, index)
        last[region.tile] = index
    for a in range(400):
        for b in range(a):
            if first[a] <= last[b] and first[b] <= last[a]:
                assert places[a].byte >= places[b].byte + tiles[b][2] or places[b].byte >= places[a].byte + tiles[a][2]


def test_placement_is_the_same_every_time():
    make = lambda: live_together(64, 128, 3, 4096, 65)  # noqa: E731
    assert placed(make()) == placed(make())
    assert all(spot.byte % 4 == 0 for spot in placed(make()).values())
