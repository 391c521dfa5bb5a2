import ml_dtypes
import numpy as np
import pytest

from kernels_neuron.sim.isa.microscaling import unpacked

FORMATS = {"float8_e4m3fn_x4": (ml_dtypes.float8_e4m3fn, 8), "float8_e5m2_x4": (ml_dtypes.float8_e5m2, 15)}


def golden(values, dtype, shift=1):
    """(values as the format holds them, scale bytes) of float [P, F], by loops over groups."""
    element, emax = FORMATS[dtype]
    partitions, columns = values.shape
    held = np.empty(values.shape, np.float64)
    scales = np.empty((partitions // 8, columns // 4), np.uint8)
    for g in range(partitions // 8):
        for c in range(columns // 4):
            block = values[8 * g : 8 * g + 8, 4 * c : 4 * c + 4].astype(np.float64)
            largest = np.abs(block).max()
            exponent = int(np.floor(np.log2(largest))) - (emax - shift) if largest else -127
            scales[g, c] = exponent + 127
            limit = float(ml_dtypes.finfo(element).max)
            small = np.clip(block / 2.0**exponent, -limit, limit).astype(np.float32).astype(element)
            held[8 * g : 8 * g + 8, 4 * c : 4 * c + 4] = small.astype(np.float64) * 2.0**exponent
    return held, scales


def rows(partitions):
    return [32 * (g // 4) + g % 4 for g in range(partitions // 8)]


def quantized(bench, values, dtype, offset=0):
    packed = bench.empty((values.shape[0], values.shape[1] // 4), dtype)
    scale = bench.tile(np.full((128, values.shape[1] // 4), 99, np.uint8))
    bench.issue("quantize_mx", packed, bench.tile(values, "bfloat16"), scale[offset:])
    return packed, scale


def bf16(rng, shape):
    return (rng.standard_normal(shape) * 100).astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("partitions", [32, 128])
def test_quantize_mx_matches_numpy(machine, rng, dtype, partitions):
    bench, values = machine("trn3"), bf16(rng, (partitions, 16))
    values[:8, :4] = 0
    packed, scale = quantized(bench, values, dtype)
    held, scales = golden(values, dtype)
    np.testing.assert_array_equal(scale.array()[rows(partitions)], scales)
    got = unpacked(packed).astype(np.float64) * 2.0 ** (
        np.repeat(scales, 8, axis=0)[..., None].astype(np.float64) - 127
    )
    np.testing.assert_array_equal(got.reshape(partitions, 16), held)


def test_quantize_mx_keeps_the_other_rows_and_offsets_of_its_scales(machine, rng):
    bench = machine("trn3")
    values = bf16(rng, (128, 8))
    _, first = quantized(bench, values, "float8_e4m3fn_x4")
    _, moved = quantized(bench, values, "float8_e4m3fn_x4", offset=8)
    np.testing.assert_array_equal(moved.array()[[r + 8 for r in rows(128)]], first.array()[rows(128)])
    untouched = np.setdiff1d(np.arange(128), rows(128))
    assert (first.array()[untouched] == 99).all()


def test_quantize_mx_before_0_5_used_the_whole_range_and_clipped(machine, rng):
    values = bf16(rng, (32, 4))
    bench = machine("trn3", nki="0.4")
    packed, scale = quantized(bench, values, "float8_e4m3fn_x4")
    held, scales = golden(values, "float8_e4m3fn_x4", shift=0)
    np.testing.assert_array_equal(scale.array()[rows(32)], scales)
    got = unpacked(packed) * 2.0 ** (np.repeat(scales, 8, axis=0)[..., None].astype(np.float64) - 127)
    np.testing.assert_array_equal(got.reshape(32, 4), held)


def test_quantize_mx_price(machine):
    bench = machine("trn3")
    packed, scale = bench.empty((128, 128), "float8_e5m2_x4"), bench.empty((128, 128), "uint8")
    (record,) = bench.issue("quantize_mx", packed, bench.tile(np.ones((128, 512)), "bfloat16"), scale)
    assert record.price.issue_ns == pytest.approx(128 / 1.2 + 70)


@pytest.mark.parametrize("left", FORMATS)
@pytest.mark.parametrize("right", FORMATS)
@pytest.mark.parametrize("partitions", [32, 128])
def test_nc_matmul_mx_matches_numpy(machine, rng, left, right, partitions):
    bench = machine("trn3")
    a, b = bf16(rng, (partitions, 4 * 6)), bf16(rng, (partitions, 4 * 10))
    (packed_a, scale_a), (packed_b, scale_b) = quantized(bench, a, left), quantized(bench, b, right, offset=4)
    out = bench.empty((6, 10), buffer="psum")
    bench.issue("nc_matmul_mx", out, packed_a, packed_b, scale_a, scale_b[4:])
    held_a, held_b = golden(a, left)[0].reshape(partitions, 6, 4), golden(b, right)[0].reshape(partitions, 10, 4)
    expected = np.einsum("piq,pjq->ij", held_a, held_b)
    np.testing.assert_allclose(out.array(), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    bench.issue("nc_matmul_mx", out, packed_a, packed_b, scale_a, scale_b[4:])
    np.testing.assert_allclose(out.array(), 2 * expected, rtol=1e-4, atol=2e-4 * np.abs(expected).max())


def test_nc_matmul_mx_reads_fp4(machine):
    bench = machine("trn3")
    codes = np.arange(16, dtype=np.uint16)
    words = bench.empty((32, 4), "float4_e2m1fn_x4")
    words.array()[...] = (codes.reshape(4, 4) << (4 * np.arange(4, dtype=np.uint16))).sum(axis=1)
    words.storage.written.add(words.region())
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    np.testing.assert_array_equal(unpacked(words)[0].reshape(-1), [*values, *(-v for v in values)])
    one = bench.tile(np.full((4, 4), 127, np.uint8))
    out = bench.empty((4, 4), buffer="psum")
    bench.issue("nc_matmul_mx", out, words, words, one, one)
    table = unpacked(words)[0].astype(np.float64)
    np.testing.assert_array_equal(out.array(), 32 * table @ table.T)


def test_nc_matmul_mx_price(machine):
    bench = machine("trn3")
    packed = bench.tile(np.zeros((128, 512), np.uint32)).view("float8_e4m3fn_x4")
    scale, out = bench.tile(np.zeros((128, 512), np.uint8)), bench.empty((128, 512), buffer="psum")
    load, multiply = bench.issue("nc_matmul_mx", out, packed[:, :128], packed, scale[:, :128], scale)
    assert load.price.weights and multiply.price.issue_ns == pytest.approx(512 / 2.4 + 2)
    assert multiply.macs == 512 * 128 * 512


def test_mx_instructions_refuse(machine):
    bench = machine("trn3")
    packed, scale = quantized(bench, np.ones((64, 16), np.float32), "float8_e4m3fn_x4")
    source, out = bench.tile(np.ones((64, 16)), "bfloat16"), bench.empty((4, 4), buffer="psum")
    quantize = lambda rule, *args: bench.refuses(rule, "quantize_mx", *args)  # noqa: E731
    quantize("operand-dtype", packed, bench.tile(np.ones((64, 16))), scale)
    quantize("operand-extent", packed, source[:, :12], scale)
    quantize("mx-partitions", packed[:16], source[:16], scale)
    quantize("mx-scale", packed, source, scale[:34])
    quantize("mx-scale", packed, source, scale[2:])
    quantize("operand-dtype", packed, source, bench.empty((64, 4), "int8"))
    multiply = lambda rule, *args, **kw: bench.refuses(rule, "nc_matmul_mx", *args, **kw)  # noqa: E731
    multiply("matmul-contraction", out, packed, packed[:32], scale, scale)
    multiply("stationary-limit", bench.empty((3, 4), buffer="psum"), packed[:, :3], packed, scale[:, :3], scale)
    multiply("matmul-extent", bench.empty((4, 3), buffer="psum"), packed, packed, scale, scale)
    multiply("operand-dtype", out, source[:, :4], packed, scale, scale)
    multiply("pe-tile", out, packed, packed, scale, scale, tile_position=(0, 32), tile_size=(64, 128))
    multiply("pe-tile", out, packed, packed, scale, scale, tile_position=(0, 0))
    multiply("accumulate-unwritten", out, packed, packed, scale, scale, accumulate=True)
    old = machine()
    tile = old.tile(np.zeros((32, 4), np.uint32)).view("float8_e4m3fn_x4")
    rows_ = old.tile(np.zeros((32, 4), np.uint8))
    old.refuses("chip-generation", "nc_matmul_mx", old.empty((4, 4), buffer="psum"), tile, tile, rows_, rows_)
    old.refuses("chip-generation", "quantize_mx", tile, old.tile(np.ones((32, 16)), "bfloat16"), rows_)


def test_nc_matmul_mx_moves_at_most_what_psum_holds(machine):
    bench = machine("trn3", execute=False)
    packed, scale = bench.tile(np.zeros((32, 2)), "float8_e4m3fn_x4"), bench.tile(np.zeros((32, 2)), "uint8")
    wide, wide_scale = bench.tile(np.zeros((32, 4100)), "float8_e4m3fn_x4"), bench.tile(np.zeros((32, 4100)), "uint8")
    out = bench.empty((2, 4100), buffer="psum")
    bench.refuses("moving-limit", "nc_matmul_mx", out, packed, wide, scale, wide_scale)
    bench.issue("nc_matmul_mx", bench.empty((2, 4100), "bfloat16", "psum"), packed, wide, scale, wide_scale)
