import numpy as np
import pytest

from kernels_neuron.sim.isa.ops import OPS


@pytest.mark.parametrize("dtype", ["int32", "float32", "uint16", "int8", "bfloat16"])
def test_iota_matches_numpy(machine, close, dtype):
    bench = machine()
    out = bench.empty((17, 4, 6), dtype)
    bench.issue("iota", out, [[10, 4], [-3, 6]], offset=5, channel_multiplier=2)
    p, i, j = np.ogrid[:17, :4, :6]
    close(out, (5 + 2 * p + 10 * i - 3 * j).reshape(17, -1))


def test_iota_takes_a_pattern_of_another_rank(machine):
    bench = machine()
    out = bench.empty((2, 3, 4), "int32")
    bench.issue("iota", out, [[1, 12]], channel_multiplier=100)
    np.testing.assert_array_equal(out.array().reshape(2, -1), np.arange(12) + 100 * np.arange(2)[:, None])


def test_iota_price(machine):
    bench = machine()
    (record,) = bench.issue("iota", bench.empty((128, 512), "int32"), [[1, 512]])
    assert record.engine == "gpsimd"
    assert record.price.issue_ns == pytest.approx((150 + 512) / 1.2)


@pytest.mark.parametrize("op", ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_affine_select_matches_numpy(machine, hostile, close, op, dtype):
    bench = machine()
    data, out = bench.tile(hostile((40, 33))), bench.empty((40, 33), dtype)
    bench.issue("affine_select", out, [[-1, 33]], 1, data, -7.5, cmp_op=OPS[op], offset=3)
    values = 3 + np.arange(40)[:, None] - np.arange(33)[None]
    close(out, np.where(getattr(np, op)(values, 0), data.array().astype(np.float64), -7.5))


def test_affine_select_keeps_the_bits_of_integers(machine):
    bench = machine()
    data, out = bench.tile(np.array([[2**24 + 1, 2**31 - 1]], np.int32)), bench.empty((1, 2), "int32")
    bench.issue("affine_select", out, [[1, 2]], 0, data, 0.0, cmp_op=OPS["greater_equal"])
    assert out.array().tolist() == [[2**24 + 1, 2**31 - 1]]


def test_affine_select_price(machine):
    bench = machine()
    tile = bench.tile(np.zeros((128, 512)))
    (record,) = bench.issue("affine_select", tile, [[1, 512]], 0, tile, 0.0)
    assert record.engine == "gpsimd"
    assert record.price.issue_ns == pytest.approx((150 + 512) / 1.2)
