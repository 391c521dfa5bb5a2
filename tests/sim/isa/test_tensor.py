import numpy as np
import pytest

from kernels_neuron.sim.isa.enums import engine as Engine
from kernels_neuron.sim.isa.enums import matmul_perf_mode as PerfMode


def wide(tile):
    return tile.array().astype(np.float64).reshape(tile.shape[0], -1)


@pytest.mark.parametrize("matmul_sum", ["float32", "float64"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize(("k", "m", "n"), [(128, 128, 512), (1, 1, 1), (77, 19, 130)])
def test_nc_matmul_matches_numpy(machine, rng, k, m, n, dtype, matmul_sum):
    bench = machine(switches={"matmul_sum": matmul_sum})
    left, right = bench.tile(rng.standard_normal((k, m)), dtype), bench.tile(rng.standard_normal((k, n)), dtype)
    out = bench.empty((m, n), buffer="psum")
    bench.issue("nc_matmul", out, left, right)
    expected = wide(left).T @ wide(right)
    error = np.abs(out.array() - expected)
    assert (error <= (k + 2) * 2.0**-24 * (np.abs(wide(left)).T @ np.abs(wide(right)))).all()
    if matmul_sum == "float64":
        np.testing.assert_array_equal(out.array(), expected.astype(np.float32))


def test_nc_matmul_passes_nan_and_infinity(machine):
    bench = machine()
    left = bench.tile(np.array([[np.nan, np.inf, 1.0]]))
    out = bench.empty((3, 2), buffer="psum")
    bench.issue("nc_matmul", out, left, bench.tile(np.array([[1.0, 0.0]])))
    with np.errstate(all="ignore"):
        out.array()  # where a kernel runs, its run says so
    assert np.isnan(out.array()).tolist() == [[True, True], [False, True], [False, False]]
    assert out.array()[1, 0] == np.inf


def test_nc_matmul_reads_free_dims_beyond_two_in_order(machine, rng):
    bench = machine()
    left, right = bench.tile(rng.standard_normal((8, 2, 3))), bench.tile(rng.standard_normal((8, 4, 5)))
    out = bench.empty((6, 20), buffer="psum")
    bench.issue("nc_matmul", out, left.permute((0, 2, 1)), right)
    expected = left.array().transpose(0, 2, 1).reshape(8, 6).T @ right.array().reshape(8, 20)
    np.testing.assert_allclose(out.array(), expected, rtol=1e-5, atol=1e-5)


def test_nc_matmul_first_write_overwrites_and_the_next_ones_add(machine):
    bench = machine()
    ones, out = bench.tile(np.ones((4, 4))), bench.empty((4, 4), buffer="psum")
    for turn in range(1, 4):
        bench.issue("nc_matmul", out, ones, ones)
        assert (out.array() == 4 * turn).all()
    bench.issue("nc_matmul", out, ones, ones, accumulate=False)
    assert (out.array() == 4).all()
    bench.issue("nc_matmul", out, ones, ones, accumulate=True)
    assert (out.array() == 8).all()


def test_nc_matmul_accumulates_byte_by_byte_where_regions_overlap(machine):
    bench = machine()
    one, out = bench.tile(np.ones((1, 8))), bench.empty((8, 6), buffer="psum")
    bench.issue("nc_matmul", out[:, 0:4], one, one[:, :4])
    bench.issue("nc_matmul", out[:, 2:6], one, one[:, :4])
    assert out.array()[0].tolist() == [1, 1, 2, 2, 1, 1]


def test_nc_matmul_overwrites_what_memset_left(machine):
    bench = machine()
    ones, out = bench.tile(np.ones((4, 4))), bench.empty((4, 4), buffer="psum")
    bench.issue("memset", out, 100.0)
    bench.issue("nc_matmul", out, ones, ones)
    assert (out.array() == 4).all()


@pytest.mark.parametrize("mode", [PerfMode.double_row, "double_row"])
def test_nc_matmul_double_row_contracts_over_both_halves(machine, rng, mode):
    bench = machine()
    left, right = (bench.tile(rng.standard_normal((16, 2, 8)), "float8_e5m2") for _ in range(2))
    out = bench.empty((8, 8), buffer="psum")
    bench.issue("nc_matmul", out, left, right, perf_mode=mode)
    bench.refuses("enum-type", "nc_matmul", out, left, right, perf_mode="twice")
    expected = np.einsum("kjm,kjn->mn", left.array().astype(np.float64), right.array().astype(np.float64))
    np.testing.assert_allclose(out.array(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "passes", "cycles"), [("bfloat16", 1, 512), ("float32", 2, 1024)])
def test_nc_matmul_price(machine, dtype, passes, cycles):
    bench = machine()
    left, right = bench.tile(np.ones((128, 128)), dtype), bench.tile(np.ones((128, 512)), dtype)
    records = bench.issue("nc_matmul", bench.empty((128, 512), buffer="psum"), left, right)
    moving = [record for record in records if not record.price.weights]
    assert [record.price.pe_cycles for record in moving] == [cycles] * passes
    assert moving[0].price.issue_ns == pytest.approx(cycles / 2.4 + 2)
    assert sum(record.macs for record in records) == 128 * 128 * 512
    assert len(records) == 2 * passes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("p", "f"), [(128, 128), (64, 128), (100, 70), (1, 128)])
def test_nc_transpose_matches_numpy(machine, rng, p, f, dtype):
    bench = machine()
    values = rng.standard_normal((p, f)).astype(np.float32)
    values[0, 0], values[-1, -1] = np.nan, -np.inf
    data, out = bench.tile(values, dtype), bench.empty((f, p), dtype, "psum")
    bench.issue("nc_transpose", out, data)
    np.testing.assert_array_equal(wide(out), wide(data).T)


def test_nc_transpose_on_vector_handles_a_block_of_32(machine, rng):
    bench = machine()
    data, out = bench.tile(rng.integers(-9, 9, (20, 32)).astype(np.int32)), bench.empty((32, 20), "int32")
    (record,) = bench.issue("nc_transpose", out, data)
    assert record.engine == "vector"
    np.testing.assert_array_equal(out.array(), data.array().T)


def test_nc_transpose_price(machine):
    bench = machine()
    data = bench.tile(np.ones((128, 128)), "bfloat16")
    records = bench.issue("nc_transpose", bench.empty((128, 128), "bfloat16", "psum"), data)
    assert [record.engine for record in records] == ["tensor", "tensor"]
    assert records[-1].price.pe_cycles == 128
    block = bench.tile(np.ones((32, 32)))
    (record,) = bench.issue("nc_transpose", bench.empty((32, 32)), block, engine=Engine.vector)
    assert record.price.issue_ns == pytest.approx(max(64, 32 + 70 * 0.96) / 0.96)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_nc_matmul_of_unwritten_weights_leaves_their_rows_unwritten(machine, dtype):
    bench = machine(switches={"unwritten_read": "track"})
    weights, data, out = (
        bench.empty((4, 3), dtype),
        bench.tile(np.ones((4, 5)), dtype),
        bench.empty((3, 5), buffer="psum"),
    )
    bench.issue("tensor_copy", weights[:, 0:1], data[:, 0:1])
    bench.issue("nc_matmul", out, weights, data)
    assert out.storage.written.contains(out[0:1].region())
    assert not out.storage.written.touches(out[1:3].region())
    strict = machine(switches={"unwritten_read": "refuse"})
    tile = strict.tile(np.ones((4, 5)), dtype)
    strict.refuses(
        "unwritten-read", "nc_matmul", strict.empty((3, 5), buffer="psum"), strict.empty((4, 3), dtype), tile
    )


def test_nc_matmul_into_bfloat16_psum_rounds_at_each_accumulation(machine):
    bench = machine("trn3")
    out, one = bench.empty((4, 4), "bfloat16", "psum"), bench.tile(np.ones((1, 4)), "bfloat16")
    bench.issue("nc_matmul", out, one, bench.tile(np.full((1, 4), 256.0), "bfloat16"))
    for _ in range(3):
        bench.issue("nc_matmul", out, one, one)
    # 257 is no bfloat16, and in float32 it would have come to 259
    np.testing.assert_array_equal(out.array().astype(np.float32), np.full((4, 4), 256.0))


def test_nc_transpose_of_fp8_on_tensor_lands_in_16_bit_elements(machine):
    bench = machine()
    data = bench.tile(np.arange(8.0).reshape(2, 4), "float8_e4m3")
    out = bench.empty((4, 2), "bfloat16", "psum")
    bench.issue("nc_transpose", out, data)
    np.testing.assert_array_equal(out.array().astype(np.float32), np.arange(8.0).reshape(2, 4).T)
    bench.refuses("operand-dtype", "nc_transpose", bench.empty((4, 2), "float8_e4m3", "psum"), data)
