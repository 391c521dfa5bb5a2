import ml_dtypes
import numpy as np
import pytest

from kernels_neuron.arch import chip
from kernels_neuron.sim.isa.enums import engine as Engine
from kernels_neuron.sim.isa.ops import OPS

PARTITIONS = (1, 17, 128)
ARITHMETIC = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


def wide(tile):
    return tile.array().astype(np.float64).reshape(tile.shape[0], -1)


def quiet(function, *operands):
    with np.errstate(all="ignore"):
        return function(*operands).astype(np.float64)


# ---- tensor_copy


@pytest.mark.parametrize("dst", ["float32", "bfloat16", "float16", "int8", "uint16", "int32"])
@pytest.mark.parametrize("src", ["float32", "bfloat16", "int16"])
def test_tensor_copy_matches_numpy(machine, hostile, close, src, dst):
    bench = machine()
    data, out = bench.tile(hostile((17, 33), src), src), bench.empty((17, 33), dst)
    bench.issue("tensor_copy", dst=out, src=data)
    close(out, wide(data))


def test_tensor_copy_of_one_dtype_keeps_every_bit(machine, rng):
    bench = machine()
    bits = rng.integers(0, 2**32, (128, 8), dtype=np.uint32)
    data, out = bench.tile(bits.view(np.float32)), bench.empty((128, 8))
    bench.issue("tensor_copy", dst=out, src=data)
    np.testing.assert_array_equal(out.array().view(np.uint32), bits)


def test_tensor_copy_takes_views_of_other_ranks(machine, rng):
    bench = machine()
    data = bench.tile(rng.standard_normal((32, 4, 6)).astype(np.float32))
    out = bench.empty((32, 3, 2, 4))
    bench.issue("tensor_copy", dst=out.permute((0, 3, 1, 2)), src=data[:, :, ::1])
    np.testing.assert_array_equal(out.array(), data.array().reshape(32, 4, 3, 2).transpose(0, 2, 3, 1))


def test_tensor_copy_price(machine):
    trn2 = chip("trn2").vector
    bench = machine()
    cases = [("float32", "sbuf", 1), ("bfloat16", "sbuf", 4), ("bfloat16", "psum", 2)]
    for dtype, buffer, speed in cases:
        data, out = bench.tile(np.zeros((128, 512)), dtype, buffer), bench.empty((128, 512), dtype)
        (record,) = bench.issue("tensor_copy", dst=out, src=data)
        assert record.engine == "vector"
        assert record.price.issue_ns == pytest.approx(512 / speed / trn2.ghz + trn2.issue_ns)
        assert record.price.latency_ns == pytest.approx(512 / speed / trn2.ghz + trn2.latency_ns)


def test_tensor_copy_price_on_gpsimd_starts_with_150_cycles(machine):
    bench = machine()
    data, out = bench.tile(np.zeros((128, 512))), bench.empty((128, 512))
    (record,) = bench.issue("tensor_copy", dst=out, src=data, engine=Engine.gpsimd)
    assert record.engine == "gpsimd"
    assert record.price.issue_ns == pytest.approx((150 + 512) / 1.2)


# ---- tensor_tensor


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int16"])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_tensor_tensor_matches_numpy(machine, hostile, close, op, dtype):
    bench = machine()
    left, right = (bench.tile(hostile((17, 31), dtype), dtype) for _ in range(2))
    out = bench.empty((17, 31), "float32")
    bench.issue("tensor_tensor", dst=out, data1=left, data2=right, op=OPS[op])
    close(out, quiet(ARITHMETIC[op], wide(left), wide(right)))


def test_tensor_tensor_rounds_and_saturates_into_integers(machine):
    bench = machine()
    left = bench.tile(np.array([[0.5, 1.5, 2.5, 300.0, -300.0, np.nan, np.inf]], np.float32))
    out = bench.empty((1, 7), "int8")
    bench.issue("tensor_tensor", dst=out, data1=left, data2=bench.tile(np.zeros((1, 7), np.float32)), op=OPS["add"])
    assert out.array().tolist() == [[0, 2, 2, 127, -128, 0, 127]]


@pytest.mark.parametrize("op", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_tensor_tensor_bit_operations_never_cast(machine, rng, op):
    bench = machine()
    left, right = (rng.integers(-(2**31), 2**31, (128, 9)).astype(np.int32) for _ in range(2))
    out = bench.empty((128, 9), "int32")
    bench.issue("tensor_tensor", dst=out, data1=bench.tile(left), data2=bench.tile(right), op=OPS[op])
    np.testing.assert_array_equal(out.array(), getattr(np, op)(left, right))


def test_tensor_tensor_right_shift_is_logical_on_signed_types(machine):
    bench = machine()
    out = bench.empty((1, 2), "int32")
    left, right = bench.tile(np.array([[-8, 8]], np.int32)), bench.tile(np.array([[1, 1]], np.int32))
    bench.issue("tensor_tensor", dst=out, data1=left, data2=right, op=OPS["right_shift"])
    assert out.array().tolist() == [[2**31 - 4, 4]]


def test_tensor_tensor_integers_are_exact_on_gpsimd_and_rounded_on_vector(machine):
    bench = machine()
    big = bench.tile(np.array([[2**24 + 1]], np.int32))
    one, out = bench.tile(np.array([[2]], np.int32)), bench.empty((1, 1), "int32")
    (record,) = bench.issue("tensor_tensor", dst=out, data1=big, data2=one, op=OPS["add"])
    assert record.engine == "gpsimd" and out.array().item() == 2**24 + 3
    bench.issue("tensor_tensor", dst=out, data1=big, data2=one, op=OPS["add"], engine=Engine.vector)
    assert out.array().item() == 2**24 + 2


def test_tensor_tensor_power_runs_on_gpsimd(machine, close):
    bench = machine()
    left, right = bench.tile(np.array([[2.0, 9.0]], np.float32)), bench.tile(np.array([[3.0, 0.5]], np.float32))
    out = bench.empty((1, 2))
    (record,) = bench.issue("tensor_tensor", dst=out, data1=left, data2=right, op=OPS["power"])
    assert record.engine == "gpsimd"
    close(out, [[8.0, 3.0]])


def test_tensor_tensor_abs_max_keeps_the_sign_and_a_tie_takes_the_second(machine):
    bench = machine("trn3")
    left, right = (
        bench.tile(np.array([[-5.0, 2.0, 3.0]], np.float32)),
        bench.tile(np.array([[4.0, -3.0, -3.0]], np.float32)),
    )
    out = bench.empty((1, 3))
    bench.issue("tensor_tensor", dst=out, data1=left, data2=right, op=OPS["abs_max"])
    assert out.array().tolist() == [[-5.0, -3.0, -3.0]]


@pytest.mark.parametrize(
    ("chip", "dtype", "buffer", "cycles"),
    [
        ("trn1", "float32", "sbuf", 1024),
        ("trn1", "bfloat16", "sbuf", 512),
        ("trn1", "float32", "psum", 512),
        ("trn2", "float32", "sbuf", 512),
        ("trn2", "bfloat16", "sbuf", 512),
        ("trn2", "float32", "psum", 512),
    ],
)
def test_tensor_tensor_price(machine, chip, dtype, buffer, cycles):
    bench = machine(chip)
    vector = bench.core.arch.vector
    left, right = bench.tile(np.zeros((128, 512)), dtype), bench.tile(np.zeros((128, 512)), dtype, buffer)
    (record,) = bench.issue("tensor_tensor", dst=bench.empty((128, 512), dtype), data1=left, data2=right, op=OPS["add"])
    assert record.price.issue_ns == pytest.approx(cycles / vector.ghz + vector.issue_ns)


# ---- tensor_scalar


@pytest.mark.parametrize("dst", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("partitions", PARTITIONS)
def test_tensor_scalar_matches_numpy(machine, hostile, close, rng, partitions, dst):
    bench = machine()
    data = bench.tile(hostile((partitions, 37)))
    vector = bench.tile(rng.standard_normal((partitions, 1)).astype(np.float32))
    out = bench.empty((partitions, 37), dst)
    with np.errstate(all="ignore"):
        product = (wide(data) * wide(vector)).astype(np.float32).astype(np.float64)
        expected = (np.float32(2.5) - product).astype(np.float32)
    bench.issue(
        "tensor_scalar",
        dst=out,
        data=data,
        op0=OPS["multiply"],
        operand0=vector,
        op1=OPS["subtract"],
        operand1=2.5,
        reverse1=True,
    )
    close(out, expected)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_tensor_scalar_knows_every_arithmetic_operator(machine, hostile, close, op, reverse):
    bench = machine()
    data, out = bench.tile(hostile((9, 14))), bench.empty((9, 14))
    bench.issue("tensor_scalar", dst=out, data=data, op0=OPS[op], operand0=0.5, reverse0=reverse)
    sides = (np.float64(0.5), wide(data)) if reverse else (wide(data), np.float64(0.5))
    close(out, quiet(ARITHMETIC[op], *sides))


def test_tensor_scalar_reads_a_strided_view(machine, rng, close):
    bench = machine()
    data = bench.tile(rng.standard_normal((64, 5, 8)).astype(np.float32))
    out = bench.empty((64, 20))
    bench.issue("tensor_scalar", dst=out, data=data[:, :, ::2], op0=OPS["add"], operand0=1.0)
    close(out, data.array()[:, :, ::2].astype(np.float64) + 1.0)


def test_tensor_scalar_unary_operators_take_no_operand(machine, hostile, close):
    bench = machine()
    data, out = bench.tile(hostile((4, 16))), bench.empty((4, 16))
    bench.issue("tensor_scalar", dst=out, data=data, op0=OPS["abs"], operand0=None)
    close(out, np.abs(wide(data)))
    bench.issue("tensor_scalar", dst=out, data=data, op0=OPS["rsqrt"], operand0=0.0, engine=Engine.gpsimd)
    close(out, quiet(lambda x: 1 / np.sqrt(x), wide(data)))


def test_tensor_scalar_bit_operations_cut_numbers_to_the_width(machine):
    bench = machine()
    data, out = bench.tile(np.array([[-1, 5]], np.int16)), bench.empty((1, 2), "uint16")
    bench.issue(
        "tensor_scalar", dst=out, data=data, op0=OPS["bitwise_and"], operand0=0x0FF0, op1=OPS["right_shift"], operand1=4
    )
    assert out.array().tolist() == [[0xFF, 0]]
    bench.issue("tensor_scalar", dst=out, data=data, op0=OPS["bitwise_xor"], operand0=-1)
    assert out.array().tolist() == [[0, 0xFFFA]]


def test_tensor_scalar_price(machine):
    bench = machine()
    half, wide_tile = bench.tile(np.zeros((128, 512)), "bfloat16"), bench.tile(np.zeros((128, 512), np.float32))
    pointer = bench.tile(np.zeros((128, 1), np.float32))

    def price(data, operand):
        out = bench.empty((128, 512), data.dtype)
        return bench.issue("tensor_scalar", dst=out, data=data, op0=OPS["multiply"], operand0=operand)[0].price.issue_ns

    assert price(half, 2.0) == pytest.approx(512 / 4 / 0.96 + 70)
    assert price(wide_tile, 2.0) == pytest.approx(512 / 2 / 0.96 + 70)
    assert price(wide_tile, pointer) == pytest.approx(512 / 2 / 0.96 + 70 + 65)
    (record,) = bench.issue("tensor_scalar", dst=wide_tile, data=wide_tile, op0=OPS["rsqrt"], operand0=0)
    assert record.engine == "gpsimd" and record.price.issue_ns == pytest.approx((150 + 4 * 512) / 1.2)


# ---- scalar_tensor_tensor


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_scalar_tensor_tensor_matches_numpy(machine, hostile, close, rng, partitions):
    bench = machine()
    data, other = bench.tile(hostile((partitions, 24))), bench.tile(hostile((partitions, 24), "bfloat16"), "bfloat16")
    scalar, out = bench.tile(rng.standard_normal((partitions, 1)).astype(np.float32)), bench.empty((partitions, 24))
    bench.issue(
        "scalar_tensor_tensor",
        dst=out,
        data=data,
        op0=OPS["multiply"],
        operand0=scalar,
        op1=OPS["subtract"],
        operand1=other,
    )
    with np.errstate(all="ignore"):
        product = (wide(data) * wide(scalar)).astype(np.float32).astype(np.float64)
        close(out, (product - wide(other)).astype(np.float32))
        bench.issue(
            "scalar_tensor_tensor",
            dst=out,
            data=data,
            op0=OPS["subtract"],
            operand0=1.0,
            op1=OPS["subtract"],
            operand1=other,
            reverse0=True,
            reverse1=True,
        )
        inner = (1.0 - wide(data)).astype(np.float32).astype(np.float64)
        close(out, (wide(other) - inner).astype(np.float32))


@pytest.mark.parametrize(
    ("dtype", "op0", "op1", "n", "buffer", "cycles"),
    [
        ("bfloat16", "subtract", "multiply", 512, "sbuf", 512),
        ("bfloat16", "subtract", "multiply", 511, "sbuf", 1022),
        ("bfloat16", "multiply", "subtract", 512, "sbuf", 1024),
        ("bfloat16", "multiply", "add", 512, "sbuf", 1024),
        ("float16", "subtract", "multiply", 512, "sbuf", 1024),
        ("float32", "subtract", "multiply", 512, "sbuf", 1024),
        ("float32", "multiply", "add", 512, "psum", 512),
    ],
)
def test_scalar_tensor_tensor_price(machine, dtype, op0, op1, n, buffer, cycles):
    bench = machine()
    data, other = bench.tile(np.zeros((128, n)), dtype), bench.tile(np.zeros((128, n)), dtype, buffer)
    (record,) = bench.issue(
        "scalar_tensor_tensor",
        dst=bench.empty((128, n), dtype),
        data=data,
        op0=OPS[op0],
        operand0=1.0,
        op1=OPS[op1],
        operand1=other,
    )
    assert record.price.issue_ns == pytest.approx(cycles / 0.96 + 70)


# ---- reciprocal


def test_reciprocal_matches_numpy(machine, hostile, close):
    bench = machine()
    data, out = bench.tile(hostile((17, 40))), bench.empty((17, 40))
    bench.issue("reciprocal", dst=out, data=data)
    close(out, quiet(np.reciprocal, wide(data)))


def test_reciprocal_price(machine):
    bench = machine()
    tile = bench.tile(np.ones((128, 512), np.float32))
    (record,) = bench.issue("reciprocal", dst=tile, data=tile)
    assert record.price.issue_ns == pytest.approx(8 * 512 / 0.96 + 70)


# ---- memset


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", -1.5),
        ("bfloat16", 1.0 / 3),
        ("int8", -128),
        ("uint32", 2**32 - 1),
        ("uint32", 7.0),
        ("float32", np.inf),
    ],
)
def test_memset_matches_numpy(machine, dtype, value):
    bench = machine()
    tile = bench.empty((17, 5), dtype)
    bench.issue("memset", dst=tile, value=value)
    np.testing.assert_array_equal(tile.array(), np.full((17, 5), value).astype(tile.dtype.numpy))


def test_memset_of_a_view_leaves_the_rest(machine):
    bench = machine()
    tile = bench.tile(np.ones((8, 6), np.float32))
    bench.issue("memset", dst=tile[:, 1::2], value=0.0)
    assert tile.array().sum() == 24


def test_memset_price(machine):
    bench = machine()
    price = lambda dtype, value: bench.issue("memset", dst=bench.empty((128, 512), dtype), value=value)[0].price  # noqa: E731
    assert price("bfloat16", 0.0).issue_ns == pytest.approx(256 / 0.96 + 70)
    assert price("bfloat16", 1.0).issue_ns == pytest.approx(512 / 0.96 + 70)
    assert price("float32", 0.0).issue_ns == pytest.approx(512 / 0.96 + 70)


def test_every_operator_of_bfloat16_rounds_to_nearest_even(machine):
    bench = machine()
    # 1 + 2**-8 lies halfway between two bfloat16 values and goes to the even one
    data, out = bench.tile(np.array([[1 + 2.0**-8, 1 + 3 * 2.0**-8]], np.float32)), bench.empty((1, 2), "bfloat16")
    bench.issue("tensor_scalar", dst=out, data=data, op0=OPS["add"], operand0=0.0)
    assert out.array().astype(np.float32).tolist() == [[1.0, float(ml_dtypes.bfloat16(1 + 2.0**-6))]]


@pytest.mark.parametrize("dtype", ["float32", "tfloat32", "bfloat16"])
def test_operands_keep_their_values(machine, rng, dtype):
    bench = machine()
    data, other = bench.tile(rng.standard_normal((8, 6)), dtype), bench.tile(rng.standard_normal((8, 6)), dtype)
    before = data.array().copy()
    out = bench.empty((8, 6))
    bench.issue("tensor_tensor", out, data, other, OPS["add"])
    bench.issue("tensor_scalar", out, data, OPS["add"], 1.0, op1=OPS["multiply"], operand1=2.0)
    bench.issue("scalar_tensor_tensor", out, data, OPS["add"], 1.0, OPS["multiply"], other)
    np.testing.assert_array_equal(data.array(), before)
