import numpy as np
import pytest

from kernels_neuron.sim.isa.enums import dge_mode, engine, oob_mode
from kernels_neuron.sim.isa.ops import OPS


@pytest.mark.parametrize("dst", ["float32", "bfloat16", "int32", "int8"])
@pytest.mark.parametrize("src", ["float32", "bfloat16", "int32"])
def test_dma_copy_matches_numpy(machine, hostile, close, src, dst):
    bench = machine()
    data, out = bench.tile(hostile((130, 9), src), src, "shared_hbm"), bench.empty((65, 18), dst)
    bench.issue("dma_copy", out, data)
    close(out, data.array().astype(np.float64).reshape(65, 18))


def test_dma_copy_of_one_dtype_keeps_every_bit(machine, rng):
    bench = machine()
    bits = rng.integers(0, 2**32, (64, 8), dtype=np.uint32)
    out = bench.empty((64, 8), buffer="shared_hbm")
    bench.issue("dma_copy", out, bench.tile(bits.view(np.float32)))
    np.testing.assert_array_equal(out.array().view(np.uint32), bits)


def test_dma_copy_reads_any_strides_and_any_partitions(machine, rng):
    bench = machine()
    data = bench.tile(rng.standard_normal((6, 40)).astype(np.float32), buffer="shared_hbm")
    tile = bench.empty((128, 6))
    bench.issue("dma_copy", tile[13:53], data.permute((1, 0)))
    np.testing.assert_array_equal(tile.array()[13:53], data.array().T)


def test_dma_copy_price(machine):
    bench = machine()
    tile, data = bench.empty((128, 64)), bench.tile(np.ones((128, 64)), buffer="shared_hbm")
    (load,) = bench.issue("dma_copy", tile, data)
    assert load.engine == "sync"
    assert load.price.issue_ns == pytest.approx(477 + 0.37 * 128 + 47)
    transfer = load.price.transfer
    assert (transfer.direction, transfer.descriptors, transfer.descriptor_bytes) == ("load", 128, 256)
    (store,) = bench.issue("dma_copy", data, tile)
    assert store.engine == "scalar" and store.price.transfer.direction == "store"
    (cast,) = bench.issue("dma_copy", bench.empty((128, 64), "bfloat16"), data)
    assert cast.engine == "gpsimd" and cast.price.transfer.dge == "sw"
    assert cast.price.transfer.descriptor_bytes == 256
    (asked,) = bench.issue("dma_copy", tile, data, dge_mode=dge_mode.hwdge, engine=engine.scalar)
    assert asked.engine == "scalar"
    (none,) = bench.issue("dma_copy", tile, data, dge_mode=dge_mode.none)
    assert (none.price.issue_ns, none.price.latency_ns) == (100.0, 63.0)


@pytest.mark.parametrize(
    ("shape", "order"), [((16, 64), (1, 0)), ((2, 8, 128), (2, 1, 0)), ((4, 3, 8, 32), (3, 1, 2, 0))]
)
def test_dma_transpose_matches_numpy(machine, rng, shape, order):
    bench = machine()
    data = bench.tile(rng.integers(-999, 999, shape).astype(np.int16), buffer="shared_hbm")
    out = bench.empty(tuple(shape[axis] for axis in order), "int16")
    bench.issue("dma_transpose", out, data)
    np.testing.assert_array_equal(out.array(), data.array().transpose(order))


def test_dma_transpose_price(machine):
    bench = machine()
    for buffer, rate in (("shared_hbm", 0.9), ("sbuf", 0.5)):
        data = bench.tile(np.ones((16, 64)), "bfloat16", buffer)
        (record,) = bench.issue("dma_transpose", bench.empty((64, 16), "bfloat16"), data)
        transfer = record.price.transfer
        assert transfer.rate == rate
        assert (transfer.descriptors, transfer.descriptor_bytes) == (16, 128)


# ---- dma_compute


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("count", [1, 3])
def test_dma_compute_matches_numpy(machine, rng, close, dtype, count):
    bench = machine()
    terms = [bench.tile(rng.standard_normal((4, 40)), dtype, "shared_hbm") for _ in range(count)]
    out = bench.empty((8, 20), dtype)
    bench.issue("dma_compute", out, terms, OPS["add"], scales=[1.0] * count)
    close(out, sum(term.array().astype(np.float64) for term in terms), slack=2, magnitude=4)


def test_dma_compute_adds_to_the_rows_its_indices_name(machine, rng):
    bench = machine()
    total, more = np.ones((6, 4), np.float32), rng.standard_normal((3, 4)).astype(np.float32)
    data, rows = bench.tile(total, buffer="shared_hbm"), bench.tile(np.array([[4], [-1], [0]], np.int32))
    with bench.inside():
        at = data.vector_select(0, rows)
    bench.issue("dma_compute", at, [at, bench.tile(more)], OPS["add"], oob_mode=oob_mode.skip)
    total[[4, 0]] += more[[0, 2]]
    np.testing.assert_allclose(data.array(), total, rtol=1e-6)


def test_dma_compute_adds_gathered_rows_to_a_tile(machine, rng):
    bench = machine()
    data = bench.tile(rng.standard_normal((6, 4)).astype(np.float32), buffer="shared_hbm")
    rows, sums = bench.tile(np.array([[4], [0]], np.uint32)), bench.tile(np.ones((2, 4)))
    with bench.inside():
        gathered = data.vector_select(0, rows)
    bench.issue("dma_compute", sums, (gathered, sums), OPS["add"])
    np.testing.assert_allclose(sums.array(), 1 + data.array()[[4, 0]], rtol=1e-6)


def test_dma_compute_price(machine):
    bench = machine()
    data, out = bench.tile(np.zeros((128, 512)), buffer="shared_hbm"), bench.empty((128, 512))
    (record,) = bench.issue("dma_compute", out, [data, data], OPS["add"])
    assert record.price.transfer.rate == 0.5 and record.price.transfer.dge == "none"


def test_dma_compute_refuses_what_the_engines_do_not_add(machine):
    bench = machine()
    data, tile = bench.tile(np.zeros((4, 8)), buffer="shared_hbm"), bench.tile(np.zeros((4, 8)))
    bench.refuses("dma-sources", "dma_compute", tile, [data] * 17, OPS["add"])
    bench.refuses("dma-size", "dma_compute", tile, [data[0:3]], OPS["add"])
    bench.refuses("op-kind", "dma_compute", tile, [data], OPS["maximum"])
    bench.refuses("dma-scales", "dma_compute", tile, [data], OPS["add"], scales=[2.0])
    bench.refuses("oob-mode", "dma_compute", tile, [data], OPS["add"], oob_mode=oob_mode.skip)
    bench.refuses("dma-cast", "dma_copy", bench.empty((4, 8), "float8_e5m2_x4"), data)
    machine("trn3").refuses("dma-priority", "dma_copy", tile, data, priority=4)
    with bench.inside():
        gathered = data.vector_select(0, bench.tile(np.zeros((4, 1), np.int32)))
    bench.refuses("dma-modify", "dma_compute", tile, [gathered, data], OPS["add"])
    bench.refuses("dma-modify", "dma_compute", tile, [gathered, tile], OPS["add"], unique_indices=False)


def test_the_number_of_a_dge_mode_is_taken_where_the_switch_says_so(machine):
    bench = machine()
    data, out = bench.tile(np.ones((4, 8)), buffer="shared_hbm"), bench.empty((4, 8))
    (record,) = bench.issue("dma_copy", out, data, dge_mode=3)
    assert record.price.transfer.dge == "none"
    bench.refuses("enum-type", "dma_copy", out, data, dge_mode=7)
    strict = machine(switches={"raw_dge_mode": "refuse"})
    strict.refuses("enum-type", "dma_copy", out, data, dge_mode=3)


# ---- views that step over partitions


def test_dma_copy_leaves_the_partitions_it_steps_over_unwritten(machine, rng):
    bench = machine()
    data, tile = bench.tile(rng.standard_normal((4, 6)), buffer="shared_hbm"), bench.empty((8, 6))
    (record,) = bench.issue("dma_copy", tile[::2], data)
    np.testing.assert_array_equal(tile.array()[::2], data.array())
    assert [(region.p0, region.p1) for region in record.writes] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    message = bench.refuses("unwritten-read", "tensor_copy", bench.empty((8, 6)), tile)
    assert "nothing has written" in message
    bench.issue("dma_copy", tile[1::2], data)
    bench.issue("tensor_copy", bench.empty((8, 6)), tile)


def test_dma_copy_reads_nothing_of_the_partitions_it_steps_over(machine, rng):
    bench = machine()
    tile, out = bench.empty((8, 6)), bench.empty((4, 6), buffer="shared_hbm")
    for row in (0, 2, 4, 6):
        bench.issue("dma_copy", tile[row : row + 1], bench.tile(rng.standard_normal((1, 6)), buffer="shared_hbm"))
    bench.issue("dma_copy", out, tile[::2])
    np.testing.assert_array_equal(out.array(), tile.array()[::2])


def test_every_dma_writes_the_stepped_partitions_alone(machine, rng):
    bench = machine()
    ones = bench.tile(np.ones((4, 6)))
    for issue in (
        lambda dst: bench.issue("dma_compute", dst, [ones, ones], OPS["add"]),
        lambda dst: bench.issue("dma_copy", dst, ones),
    ):
        tile = bench.empty((8, 6))
        issue(tile[::2])
        assert tile.storage.written.missing_bytes() == 4 * 6 * 4
    rows = bench.tile(rng.integers(0, 9, (16, 4)).astype(np.int16), buffer="shared_hbm")
    tile = bench.empty((8, 16), "int16")
    bench.issue("dma_transpose", tile[::2], rows)
    np.testing.assert_array_equal(tile.array()[::2], rows.array().T)
    assert tile.storage.written.missing_bytes() == 4 * 16 * 2
