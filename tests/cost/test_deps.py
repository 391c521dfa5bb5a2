import random

import pytest

from kernels_neuron.cost.deps import dependencies, overlap, queue_of
from kernels_neuron.sim.trace import Place, Price, Record, Region, Tile, Trace, Transfer

LOAD = Price(570, 520, transfer=Transfer("load", 128, 64, 0, 128, "hw"))
WORK = Price(100, 200)


def record(engine, reads=(), writes=(), price=WORK):
    return Record("step", engine, price, tuple(reads), tuple(writes), 0, 0)


def random_trace(seed, count=120, tiles=12):
    """Tiles at colliding addresses, sub-regions with and without steps, all engines; each tile lives once."""
    rng = random.Random(seed)
    trace = Trace("trn2", 0, lines=[("kernel.py", 1)])
    for number in range(tiles):
        partitions = rng.choice([32, 64, 128])
        trace.tiles[number] = Tile(number, "", "sbuf", "float32", (partitions, 16), partitions, 64, 0)
        trace.places[number] = Place("sbuf", 0, rng.choice([0, 32, 64, 100]))
    first = 0
    for step in range(count):
        # a sliding window of live tiles, as placement would give: a tile that was left is never touched again
        first = max(first, step * tiles // count)
        live = [n for n in range(first, min(first + 2, tiles)) if not _collides(trace, n, range(first, n))]

        def region(live=live):
            tile = rng.choice(live)
            partitions = trace.tiles[tile].partitions
            p0 = rng.choice([0, 32]) if partitions > 32 else 0
            p1 = rng.randint(p0 + 1, partitions)
            lo = rng.randrange(0, 48, 4)
            steps = ((8, 2),) if rng.random() < 0.3 else ()
            return Region(tile, p0, p1, lo, rng.choice([4, 8]) if not steps else 4, steps)

        dma = rng.random() < 0.3
        engine = rng.choice(["sync", "scalar"]) if dma else rng.choice(["vector", "scalar", "gpsimd", "tensor"])
        trace.records.append(record(engine, [region()], [region()], LOAD if dma else WORK))
    return trace


def _collides(trace, tile, others):
    mine = trace.places[tile].byte
    return any(abs(mine - trace.places[other].byte) < 64 for other in others)


def absolute(trace, region):
    place = trace.places[region.tile]
    return Region(0, region.p0 + place.partition, region.p1 + place.partition, region.lo + place.byte, *region[4:])


def ordered_before(trace, preds):
    """For each record, all records that are over before it, through waits and through in-order engines."""
    before, last = [], {}
    for index, found in enumerate(preds):
        reach = set()
        for pred in found:
            reach |= before[pred] | {pred}
        queue = queue_of(trace.records[index])
        if not queue.endswith("/dma") and queue in last:
            reach |= before[last[queue]] | {last[queue]}
        last[queue] = index
        before.append(reach)
    return before


@pytest.mark.parametrize("seed", range(25))
def test_every_conflict_is_ordered(seed):
    trace = random_trace(seed)
    before = ordered_before(trace, dependencies(trace))
    for later, record_ in enumerate(trace.records):
        for earlier in range(later):
            other = trace.records[earlier]
            pairs = [
                *((a, b) for a in record_.writes for b in (*other.reads, *other.writes)),
                *((a, b) for a in record_.reads for b in other.writes if a.tile == b.tile),
            ]
            if any(absolute(trace, a).overlaps(absolute(trace, b)) for a, b in pairs):
                assert earlier in before[later], f"{later} does not wait for {earlier}"


@pytest.mark.parametrize("seed", range(25))
def test_no_wait_without_a_conflict(seed):
    trace = random_trace(seed)
    for later, found in enumerate(dependencies(trace)):
        for earlier in found:
            a, b = trace.records[later], trace.records[earlier]
            pairs = [
                *((x, y) for x in a.writes for y in (*b.reads, *b.writes)),
                *((x, y) for x in a.reads for y in b.writes),
            ]
            assert any(absolute(trace, x).overlaps(absolute(trace, y)) for x, y in pairs)


def test_an_engine_waits_for_itself_only_to_read_back():
    trace = Trace("trn2", 0, tiles={0: Tile(0, "", "sbuf", "float32", (128, 16), 128, 64, 0)}, lines=[("k.py", 1)])
    trace.places[0] = Place("sbuf", 0, 0)
    whole = Region(0, 0, 128, 0, 64)
    trace.records = [record("vector", writes=[whole]), record("vector", [whole]), record("vector", writes=[whole])]
    assert dependencies(trace) == [(), (0,), ()]
    trace.records[2] = record("scalar", writes=[whole])
    assert dependencies(trace)[2] == (1,)


def test_matmuls_of_one_group_do_not_wait_for_each_other(trace_of, kernels):
    trace = trace_of(kernels.matmuls, (128, 512), (128, 512))
    preds = dependencies(trace)
    on_tensor = [i for i, each in enumerate(trace.records) if each.engine == "tensor"]
    assert not any(set(preds[i]) & set(on_tensor) for i in on_tensor)


def test_halves_of_one_allocation_are_apart(trace_of, kernels):
    trace = trace_of(kernels.halves, (128, 1024))
    loads = [i for i, each in enumerate(trace.records) if each.engine == "sync"]
    preds = dependencies(trace)
    assert preds[loads[1]] == ()  # the other half: nothing to wait for
    assert preds[loads[2]] == (loads[0], loads[0] + 1)  # the first half again: its writer and its reader


def test_an_address_used_again_waits_for_its_former_readers():
    trace = Trace("trn2", 0, lines=[("k.py", 1)])
    for number in (0, 1):
        trace.tiles[number] = Tile(number, "", "sbuf", "float32", (128, 16), 128, 64, 0)
        trace.places[number] = Place("sbuf", 0, 32 * number)
    trace.records = [
        record("sync", writes=[Region(0, 0, 128, 0, 64)], price=LOAD),
        record("vector", [Region(0, 0, 128, 0, 32)]),
        record("scalar", [Region(0, 0, 128, 32, 32)]),
        record("sync", writes=[Region(1, 0, 128, 0, 32)], price=LOAD),  # over the second half of the first tile
        record("sync", writes=[Region(1, 0, 128, 32, 32)], price=LOAD),  # beyond it
    ]
    assert dependencies(trace)[3:] == [(0, 2), ()]


def test_rows_of_one_pitch_with_columns_apart_do_not_overlap():
    left = Region(0, 0, 1, 0, 64, ((256, 1000),))
    right = Region(0, 0, 1, 64, 64, ((256, 1000),))
    assert not overlap(left, right) and not overlap(right, left)
    assert overlap(left, right._replace(lo=60)) and overlap(right._replace(lo=60), left)
    assert overlap(left, Region(0, 0, 1, 256 * 999, 4)) and not overlap(left, Region(0, 0, 1, 256 * 999 + 64, 4))


@pytest.mark.slow
def test_waits_of_many_records_are_found_in_linear_work():
    trace = Trace("trn2", 0, lines=[("k.py", 1)])
    trace.tiles[0] = Tile(0, "y", "shared_hbm", "float32", (1 << 22,), 1, 1 << 24, 0)
    for turn in range(20_000):
        tile = 1 + turn
        trace.tiles[tile] = Tile(tile, "", "sbuf", "float32", (128, 64), 128, 256, 0)
        trace.places[tile] = Place("sbuf", 0, turn % 700 * 256)
        whole = Region(tile, 0, 128, 0, 256)
        trace.records.append(record("vector", writes=[whole]))
        trace.records.append(record("sync", [whole], [Region(0, 0, 1, turn * 256, 256)], LOAD))
    preds = dependencies(trace)
    assert sum(map(len, preds)) < 4 * len(preds)
    assert preds[1401] == (1400,) and preds[1400] == (1,)
