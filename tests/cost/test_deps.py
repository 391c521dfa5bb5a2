import random

import pytest

from kernels_neuron.cost.deps import GRID_FROM, dependencies, queue_of
from kernels_neuron.sim.trace import Place, Price, Record, Region, Tile, Trace, Transfer

LOAD = Price(570, 520, transfer=Transfer("load", 128, 64, 0, 128, "hw"))
WORK = Price(100, 200)


def record(engine, reads=(), writes=(), price=WORK):
    return Record("step", engine, price, tuple(reads), tuple(writes), 0, 0)


def random_trace(seed, count=120, tiles=12):
    """Tiles of two sizes at colliding addresses, regions with and without steps, all engines; each tile lives once."""
    rng = random.Random(seed)
    trace = Trace("trn2", 0, lines=[("kernel.py", 1)])
    for number in range(tiles):
        partitions = rng.choice([32, 64, 128])
        nbytes = rng.choice([32, 64])
        trace.tiles[number] = Tile(number, "", "sbuf", "float32", (partitions, nbytes // 4), partitions, nbytes, 0)
        trace.places[number] = Place("sbuf", 0, rng.choice([0, 32, 64, 100]))
    first = 0
    for step in range(count):
        # a sliding window of live tiles, as placement would give: a tile that was left is never touched again
        first = max(first, step * tiles // count)
        live = [n for n in range(first, min(first + 2, tiles)) if not _collides(trace, n, range(first, n))]

        def region(live=live):
            tile = rng.choice(live)
            partitions, nbytes = trace.tiles[tile].partitions, trace.tiles[tile].nbytes
            if rng.random() < 0.3:
                return Region(tile, 0, partitions, 0, nbytes)
            p0 = rng.choice([0, 32]) if partitions > 32 else 0
            p1 = rng.randint(p0 + 1, partitions)
            lo = rng.randrange(0, nbytes - 16, 4)
            steps = ((8, 2),) if rng.random() < 0.3 else ()
            return Region(tile, p0, p1, lo, rng.choice([4, 8]) if not steps else 4, steps)

        dma = rng.random() < 0.3
        engine = rng.choice(["sync", "scalar"]) if dma else rng.choice(["vector", "scalar", "gpsimd", "tensor"])
        trace.records.append(record(engine, [region()], [region()], LOAD if dma else WORK))
    return trace


def _collides(trace, tile, others):
    spans = {n: range(trace.places[n].byte, trace.places[n].byte + trace.tiles[n].nbytes) for n in (tile, *others)}
    return any(set(spans[tile]) & set(spans[other]) for other in others)


def absolute(trace, region):
    place = trace.places.get(region.tile, Place("", 0, 0))
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


class Plain:
    """The same waits the slow way: what was done to each tile in a list, and whose tile was at each byte in a table."""

    def __init__(self, trace):
        self.trace = trace
        self.done = {}  # tile -> [(region at its address, kind, queue, record)]
        self.inherits = {}  # tile -> former tiles whose accesses it has not taken over
        self.at = {}  # byte -> tiles, newest first

    def waits(self):
        return [self.waits_of(index) for index in range(len(self.trace.records))]

    def waits_of(self, index):
        step = self.trace.records[index]
        queue = queue_of(step)
        own = None if step.price.transfer else queue
        found = set()
        for region in step.reads:
            if any(region.tile == each.tile for other in self.trace.records for each in other.writes):
                here = self.enter(region)
                done = self.done[region.tile]
                found |= {(q, i) for other, kind, q, i in done if kind == "write" and here.overlaps(other)}
                self.note(region.tile, here, "read", queue, index)
        for region in step.writes:
            here = self.enter(region)
            if here.covers(self.box(region.tile)):
                # a first write of the whole tile leaves nothing of former tiles, even of bytes beyond it
                found |= {(q, i) for _, q, i in self.left_behind(region.tile) if q != own}
            self.take_over(region.tile)
            done = self.done[region.tile]
            found |= {(q, i) for other, _, q, i in done if q != own and here.overlaps(other)}
            self.done[region.tile] = [each for each in done if not here.covers(each[0])]
            self.note(region.tile, here, "write", queue, index)
        found.discard((queue, index))
        last = {q: max(i for other, i in found if other == q) for q, _ in found if not q.endswith("/dma")}
        if queue == "tensor":
            last.pop("tensor", None)
        return tuple(sorted({i for q, i in found if q.endswith("/dma")} | set(last.values())))

    def enter(self, region):
        tile = self.trace.tiles[region.tile]
        if region.tile not in self.done:
            self.done[region.tile], self.inherits[region.tile] = [], []
            at = self.box(tile.id)
            for byte in range(at.lo, at.hi) if tile.on_chip else ():
                for other in self.at.get(byte, []):
                    if self.box(other).overlaps(at) and other not in self.inherits[tile.id]:
                        self.inherits[tile.id].append(other)
                stays = [n for n in self.at.get(byte, []) if self.box(n).p0 < at.p0 or at.p1 < self.box(n).p1]
                self.at[byte] = [tile.id, *stays]
        return absolute(self.trace, region)

    def box(self, tile):
        whole = self.trace.tiles[tile]
        return absolute(self.trace, Region(tile, 0, whole.partitions, 0, whole.nbytes))

    def left_behind(self, tile):
        others, self.inherits[tile] = self.inherits[tile], []
        for other in others:
            self.take_over(other)
        left = [each for other in others for each in self.done[other]]
        return [(region, q, i) for region, _, q, i in left if region.overlaps(self.box(tile))]

    def take_over(self, tile):
        for region, queue, index in self.left_behind(tile):
            self.note(tile, region, "former", queue, index)

    def note(self, tile, region, kind, queue, index):
        kept = [each for each in self.done[tile] if each[:3] != (region, kind, queue)]
        same = [each[3] for each in self.done[tile] if each[:3] == (region, kind, queue)]
        self.done[tile] = [*kept, (region, kind, queue, max([index, *same]))]


@pytest.mark.parametrize("seed", range(25))
def test_waits_are_those_found_the_slow_way(seed):
    trace = random_trace(seed, count=60 + 10 * seed)
    assert dependencies(trace) == Plain(trace).waits()


def test_waits_of_a_tile_in_many_pieces_are_those_found_the_slow_way():
    trace = Trace("trn2", 0, lines=[("k.py", 1)])
    trace.tiles[0] = Tile(0, "y", "shared_hbm", "float32", (4096,), 1, 1 << 14, 0)
    rng = random.Random(0)
    for _ in range(8 * GRID_FROM):
        piece = Region(0, 0, 1, rng.randrange(0, 1 << 14, 64), 64, rng.choice([(), (), ((512, 4),)]))
        engine = rng.choice(["vector", "scalar"])
        trace.records.append(record(engine, [piece] * rng.randint(0, 1), [piece] * rng.randint(0, 1)))
    assert dependencies(trace) == Plain(trace).waits()


def test_a_tile_in_what_is_left_of_another_one_waits_for_those_bytes():
    """Tile 1 takes the first half of tile 0's place, tile 2 the second half, where tile 0 was read last."""
    trace = Trace("trn2", 0, lines=[("k.py", 1)])
    for number, (byte, nbytes) in enumerate([(0, 64), (0, 32), (32, 32)]):
        trace.tiles[number] = Tile(number, "", "sbuf", "float32", (128, nbytes // 4), 128, nbytes, 0)
        trace.places[number] = Place("sbuf", 0, byte)
    trace.records = [
        record("sync", writes=[Region(0, 0, 128, 0, 64)], price=LOAD),
        record("vector", [Region(0, 0, 128, 0, 32)]),
        record("scalar", [Region(0, 0, 128, 32, 32)]),
        record("gpsimd", writes=[Region(1, 0, 128, 0, 32)]),
        record("gpsimd", writes=[Region(2, 0, 128, 0, 32)]),
    ]
    assert dependencies(trace)[3:] == [(0, 1), (0, 2)]


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
