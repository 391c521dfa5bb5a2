import numpy as np
import pytest

REVERSED = list(range(31, -1, -1))


@pytest.mark.parametrize("partitions", [32, 64, 128])
def test_nc_stream_shuffle_matches_numpy(machine, rng, partitions):
    bench = machine()
    values = rng.standard_normal((partitions, 9)).astype(np.float32)
    out = bench.empty((partitions, 9))
    bench.issue("nc_stream_shuffle", out, bench.tile(values), REVERSED)
    np.testing.assert_array_equal(out.array(), values.reshape(-1, 32, 9)[:, ::-1].reshape(partitions, 9))


def test_nc_stream_shuffle_broadcasts_one_partition(machine, rng):
    bench = machine()
    values = rng.standard_normal((1, 9)).astype(np.float32)
    out = bench.empty((32, 9))
    bench.issue("nc_stream_shuffle", out, bench.tile(values), [0] * 32)
    np.testing.assert_array_equal(out.array(), np.repeat(values, 32, axis=0))


def test_nc_stream_shuffle_keeps_partitions_marked_255_and_works_in_place(machine, rng):
    bench = machine()
    values = rng.standard_normal((32, 3)).astype(np.float32)
    tile = bench.tile(values)
    mask = [255] * 32
    mask[4], mask[9] = 9, 4
    (record,) = bench.issue("nc_stream_shuffle", tile, tile, mask)
    expected = values.copy()
    expected[[4, 9]] = values[[9, 4]]
    np.testing.assert_array_equal(tile.array(), expected)
    assert [(region.p0, region.p1) for region in record.writes] == [(4, 5), (9, 10)]


def test_nc_stream_shuffle_leaves_kept_partitions_unwritten(machine):
    bench = machine()
    out, sink = bench.empty((32, 3)), bench.empty((32, 3))
    bench.issue("nc_stream_shuffle", out, bench.tile(np.ones((32, 3))), [255, *range(1, 32)])
    bench.refuses("unwritten-read", "tensor_copy", dst=sink, src=out)


def test_nc_stream_shuffle_price(machine):
    bench = machine()
    tile = bench.tile(np.zeros((128, 512)))
    (record,) = bench.issue("nc_stream_shuffle", tile, tile, REVERSED)
    assert record.price.issue_ns == pytest.approx(512 / 0.96 + 70)
