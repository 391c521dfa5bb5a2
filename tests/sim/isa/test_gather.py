import numpy as np
import pytest

from kernels_neuron.sim.isa.ops import OPS


@pytest.mark.parametrize("piece", [1, 2, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_local_gather_matches_numpy(machine, rng, dtype, piece):
    bench = machine()
    data = rng.integers(0, 100, (32, 40)).astype(np.float32)
    places = rng.integers(0, 40 - piece + 1, (32, 3)).astype(np.uint16)
    source, index, out = bench.tile(data, dtype), bench.tile(places), bench.empty((32, 48 * piece), dtype)
    bench.issue("local_gather", out, source, index, piece)
    expected = np.empty((32, 48, piece), np.float32)
    for p in range(32):
        first = p // 16 * 16
        for i in range(48):
            at = int(places[first + i % 16, i // 16])
            expected[p, i] = data[p, at : at + piece]
    np.testing.assert_array_equal(out.array().astype(np.float32), expected.reshape(32, -1))


def test_local_gather_takes_the_first_valid_indices(machine):
    bench = machine()
    data = bench.tile(np.arange(16.0 * 8).reshape(16, 8))
    index = bench.tile(np.full((16, 2), 7, np.uint16))
    index.array()[:4, 0] = [3, 1, 0, 2]
    out = bench.empty((16, 4))
    bench.issue("local_gather", out, data, index, num_valid_indices=4)
    np.testing.assert_array_equal(out.array(), data.array()[:, [3, 1, 0, 2]])


def test_local_gather_price(machine):
    bench = machine()
    data, index = bench.tile(np.zeros((16, 64)), "bfloat16"), bench.tile(np.zeros((16, 4), np.uint16))
    (record,) = bench.issue("local_gather", bench.empty((16, 64), "bfloat16"), data, index)
    assert record.engine == "gpsimd"
    assert record.price.issue_ns == pytest.approx((150 + 64 * 8) / 1.2)


def test_local_gather_refuses(machine):
    bench = machine()
    data, index, out = bench.tile(np.zeros((16, 8))), bench.tile(np.zeros((16, 1), np.uint16)), bench.empty((16, 16))
    bench.issue("local_gather", out, data, index)
    bench.refuses("gather-piece", "local_gather", out, data, index, 3)
    bench.refuses("gather-count", "local_gather", out, data, index, 1, 17)
    bench.refuses("operand-extent", "local_gather", out, data, index, 2)
    bench.refuses("operand-dtype", "local_gather", out, data, bench.tile(np.zeros((16, 1), np.int32)))
    bench.refuses("gather-index", "local_gather", out, data, bench.tile(np.full((16, 1), 8, np.uint16)))
    few = bench.tile(np.zeros((8, 8)))
    bench.refuses("gpsimd-cores", "local_gather", bench.empty((8, 16)), few, bench.tile(np.zeros((8, 1), np.uint16)))
    bench.refuses("operand-buffer", "local_gather", bench.empty((16, 16), buffer="psum"), data, index)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_nc_n_gather_matches_numpy(machine, rng, hostile, dtype):
    bench = machine()
    data = bench.tile(hostile((7, 4, 10), dtype), dtype)
    places = rng.integers(0, 40, (7, 13)).astype(np.uint32)
    out = bench.empty((7, 13), dtype)
    bench.issue("nc_n_gather", out, data, bench.tile(places))
    flat = data.array().reshape(7, 40)
    want = np.take_along_axis(flat, places.astype(np.int64), axis=1)
    np.testing.assert_array_equal(out.array().view(np.uint8), want.view(np.uint8))


def test_nc_n_gather_price(machine):
    bench = machine()
    data, index = bench.tile(np.zeros((16, 1024))), bench.tile(np.zeros((16, 8), np.uint32))
    (record,) = bench.issue("nc_n_gather", bench.empty((16, 8)), data, index)
    assert record.price.issue_ns == pytest.approx((2 * 150 + 1024) / 1.2)


def test_nc_n_gather_refuses(machine):
    bench = machine()
    data, index, out = bench.tile(np.zeros((4, 8))), bench.tile(np.zeros((4, 2), np.uint32)), bench.empty((4, 2))
    bench.issue("nc_n_gather", out, data, index)
    bench.refuses("operand-dtype", "nc_n_gather", out, data, bench.tile(np.zeros((4, 2), np.int32)))
    bench.refuses("operand-dtype", "nc_n_gather", bench.empty((4, 2), "bfloat16"), data, index)
    bench.refuses("operand-extent", "nc_n_gather", bench.empty((4, 3)), data, index)
    bench.refuses("gather-index", "nc_n_gather", out, data, bench.tile(np.full((4, 2), 8, np.uint32)))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_nonzero_with_count_matches_numpy(machine, rng, dtype):
    bench = machine()
    data = rng.integers(-1, 2, (40, 30)).astype(dtype)
    out = bench.empty((40, 31), "int32")
    bench.issue("nonzero_with_count", out, bench.tile(data), index_offset=100, padding_val=-7)
    for p in (0, 16, 32):
        found = np.flatnonzero(data[p]) + 100
        np.testing.assert_array_equal(out.array()[p, : len(found)], found)
        assert (out.array()[p, len(found) : 30] == -7).all() and out.array()[p, 30] == len(found)
    bench.refuses("unwritten-read", "tensor_copy", bench.empty((2, 31), "int32"), out[32:34])


def test_nonzero_with_count_price(machine):
    bench = machine()
    (record,) = bench.issue("nonzero_with_count", bench.empty((128, 129), "int32"), bench.tile(np.zeros((128, 128))))
    assert record.price.issue_ns == pytest.approx((150 + 129) / 1.2) and len(record.reads) == 8


def test_nonzero_with_count_refuses(machine):
    bench = machine()
    data, out = bench.tile(np.zeros((1, 8))), bench.empty((1, 9), "int32")
    bench.refuses("operand-extent", "nonzero_with_count", bench.empty((1, 8), "int32"), data)
    bench.refuses("operand-dtype", "nonzero_with_count", out, bench.tile(np.zeros((1, 8)), "bfloat16"))
    bench.refuses("operand-type", "nonzero_with_count", out, data, padding_val=0.5)
    old = machine("trn1")
    old.refuses("chip-generation", "nonzero_with_count", old.empty((1, 9), "int32"), old.tile(np.zeros((1, 8))))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_sequence_bounds_matches_numpy(machine, dtype):
    bench = machine()
    out = bench.empty((1, 2, 9), dtype)
    bench.issue("sequence_bounds", out, bench.tile(np.array([[0, 1, 1, 2, 2, 2, 0, 3, 3]]), dtype))
    assert out.array()[0].tolist() == [[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]]


def test_sequence_bounds_price(machine):
    bench = machine()
    (record,) = bench.issue("sequence_bounds", bench.empty((1, 2, 64)), bench.tile(np.ones((1, 64))))
    assert record.price.issue_ns == pytest.approx((150 + 128) / 1.2)


def test_sequence_bounds_refuses(machine):
    bench = machine()
    bench.refuses("operand-extent", "sequence_bounds", bench.empty((2, 2, 4)), bench.tile(np.ones((2, 4))))
    bench.refuses("operand-dtype", "sequence_bounds", bench.empty((1, 2, 4)), bench.tile(np.ones((1, 4), np.uint8)))


def snake(groups):
    """[groups, e] values as the instruction lays them out: element e at partition e % 16, column e // 16."""
    count, size = groups.shape
    columns = -(-size // 16)
    padded = np.zeros((count, columns * 16), groups.dtype)
    padded[:, :size] = groups
    return padded.reshape(count, columns, 16).transpose(0, 2, 1).reshape(count * 16, columns)


@pytest.mark.parametrize(("n", "count"), [(40, 16), (33, 33), (100, 5)])
def test_topk_matches_numpy(machine, rng, n, count):
    bench = machine()
    values = np.stack([rng.permutation(128) for _ in range(2)]).astype(np.float32)
    src = bench.tile(snake(values), "bfloat16")
    out, places = bench.empty((32, count), "bfloat16"), bench.empty((32, count), "uint32")
    bench.issue("topk", out, places, src, n)
    columns = -(-count // 16)
    for g in range(2):
        order = np.argsort(values[g, :n])[-count:]
        got = [tile.array()[16 * g : 16 * g + 16, :columns].T.reshape(-1)[:count] for tile in (out, places)]
        np.testing.assert_array_equal(got[0].astype(np.float32), values[g][order])
        np.testing.assert_array_equal(got[1], order)


def test_topk_leaves_the_other_columns_unwritten(machine):
    bench = machine()
    out, places = bench.empty((16, 20), "bfloat16"), bench.empty((16, 20), "uint32")
    bench.issue("topk", out, places, bench.tile(np.ones((16, 4)), "bfloat16"), 64)
    bench.issue("tensor_copy", bench.empty((16, 1), "bfloat16"), out[:, 0:1])
    bench.refuses("unwritten-read", "tensor_copy", bench.empty((16, 1), "bfloat16"), out[:, 1:2])


def test_topk_price(machine):
    bench = machine()
    out, places = bench.empty((16, 64), "bfloat16"), bench.empty((16, 64), "uint32")
    (record,) = bench.issue("topk", out, places, bench.tile(np.ones((16, 256)), "bfloat16"), 4096)
    assert record.price.issue_ns == pytest.approx((150 + 4 * 4096 + 64) / 1.2)


def test_topk_refuses(machine):
    bench = machine()
    src, out, places = (
        bench.tile(np.ones((16, 4)), "bfloat16"),
        bench.empty((16, 8), "bfloat16"),
        bench.empty((16, 8), "uint32"),
    )
    bench.refuses("topk-count", "topk", out, places, src, 7)
    bench.refuses("topk-count", "topk", out, places, src, 65)
    bench.refuses("topk-count", "topk", bench.empty((16, 20), "bfloat16"), bench.empty((16, 20), "uint32"), src, 16)
    bench.refuses("operand-dtype", "topk", out, bench.empty((16, 8), "int32"), src, 8)
    bench.refuses("gpsimd-cores", "topk", out, places, bench.tile(np.ones((8, 8)), "bfloat16"), 8)


@pytest.mark.parametrize("op", ["add", "average", "maximum", "bitwise_or", "bitwise_and"])
def test_tensor_partition_reduce_matches_numpy(machine, rng, close, op):
    bench = machine()
    bits = op.startswith("bitwise")
    data = rng.integers(0, 2**31, (40, 6)).astype(np.int32) if bits else rng.standard_normal((40, 6)).astype(np.float32)
    out = bench.empty((1, 2, 3), "int32" if bits else "float32")
    bench.issue("tensor_partition_reduce", out, OPS[op], bench.tile(data))
    if bits:
        np.testing.assert_array_equal(out.array().reshape(-1), getattr(np, op).reduce(data, axis=0))
    else:
        close(out, {"add": np.sum, "average": np.mean, "maximum": np.max}[op](data.astype(np.float64), axis=0), 10, 40)


def test_tensor_partition_reduce_price(machine):
    bench = machine()
    (record,) = bench.issue("tensor_partition_reduce", bench.empty((1, 64)), OPS["add"], bench.tile(np.ones((128, 64))))
    assert record.price.issue_ns == pytest.approx((150 + 64) / 1.2)


def test_tensor_partition_reduce_refuses(machine):
    bench = machine()
    data, out = bench.tile(np.ones((8, 4))), bench.empty((1, 4))
    bench.refuses("op-kind", "tensor_partition_reduce", out, OPS["multiply"], data)
    bench.refuses("operand-extent", "tensor_partition_reduce", bench.empty((1, 3)), OPS["add"], data)
    bench.refuses("bitvec-dtype", "tensor_partition_reduce", out, OPS["bitwise_or"], data)
    wide, narrow = bench.empty((1, 4), "int32"), bench.tile(np.ones((8, 4), np.int8))
    bench.refuses("bitvec-dtype", "tensor_partition_reduce", wide, OPS["bitwise_or"], narrow)
