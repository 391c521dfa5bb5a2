"""The ends of number formats, and PSUM regions that overlap, against models that share nothing with the simulator."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kernels_neuron.dtypes import ROWS
from kernels_neuron.errors import KernelError
from kernels_neuron.sim.isa.ops import OPS

PROFILE = settings(
    max_examples=60, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
FLOATS = {  # exponent bits, mantissa bits, whether the top exponent is inf and NaN alone
    "float8_e4m3": (4, 3, True),
    "float8_e4m3fn": (4, 3, False),
    "float8_e5m2": (5, 2, True),
    "float16": (5, 10, True),
    "bfloat16": (8, 7, True),
}


def magnitudes(dtype):
    """Every finite magnitude of a format, ascending, subnormals included; built from its bits alone."""
    exponent_bits, mantissa_bits, has_inf = FLOATS[dtype]
    bias, steps = 2 ** (exponent_bits - 1) - 1, 2**mantissa_bits
    values = [m / steps * 2.0 ** (1 - bias) for m in range(steps)]
    for exponent in range(1, 2**exponent_bits - int(has_inf)):
        values += [(1 + m / steps) * 2.0 ** (exponent - bias) for m in range(steps)]
    return np.array(values if has_inf else values[:-1])


def rounded(x, dtype):
    """x to the nearest value of a format, ties to the even one; beyond half a step above the largest: inf or NaN."""
    grid = magnitudes(dtype)
    size = np.abs(np.float64(np.float32(x)))
    if np.isnan(size):
        return np.nan
    top = grid[-1] + (grid[-1] - grid[-2]) / 2
    # a tie goes to the even one, which is above the largest but for e4m3fn
    if size > top or (size == top and FLOATS[dtype][2]):
        return np.copysign(np.inf if FLOATS[dtype][2] else np.nan, x)
    after = min(int(np.searchsorted(grid, size)), len(grid) - 1)
    before = max(after - 1, 0)
    down, up = size - grid[before], grid[after] - size
    chosen = before if down < up or (down == up and before % 2 == 0) else after
    return np.copysign(grid[chosen], x)


def near(dtype):
    """Numbers around the values of a format, its ends and its halves."""
    grid = magnitudes(dtype)
    picked = st.integers(0, len(grid) - 1).flatmap(
        lambda i: st.sampled_from([grid[i], (grid[i] + grid[min(i + 1, len(grid) - 1)]) / 2, np.nextafter(grid[i], 9)])
    )
    ends = st.sampled_from([grid[-1] * f for f in (1, 1.03, 1.0625, 1.07, 2, 1e4)] + [0.0, np.inf, np.nan, grid[1] / 2])
    return st.builds(
        lambda x, sign: float(np.float32(x if not np.isfinite(x) else min(x, 3e38))) * sign,
        st.one_of(picked, ends),
        st.sampled_from([1, -1]),
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_cast_rounds_to_the_nearest_even_value_of_the_format(machine, dtype):
    @PROFILE
    @given(st.lists(near(dtype), min_size=1, max_size=24))
    def check(values):
        bench = machine()
        out = bench.empty((1, len(values)), dtype)
        bench.issue("tensor_copy", out, bench.tile(np.array([values], np.float32)))
        expected = np.array([[rounded(x, dtype) for x in values]])
        np.testing.assert_array_equal(out.array().astype(np.float64), expected)
        zeros = expected == 0
        np.testing.assert_array_equal(np.signbit(out.array().astype(np.float64))[zeros], np.signbit(expected)[zeros])

    check()


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e4m3fn", "float8_e5m2"])
def test_the_switch_saturates_an_fp8_cast(machine, dtype):
    bench = machine(switches={"fp8_overflow": "saturate"})
    largest = magnitudes(dtype)[-1]
    out = bench.empty((1, 5), dtype)
    bench.issue("tensor_copy", out, bench.tile(np.array([[1e6, -1e6, largest, np.nan, 1.0]], np.float32)))
    np.testing.assert_array_equal(out.array().astype(np.float64), [[largest, -largest, largest, np.nan, 1.0]])


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_cast_to_integers_rounds_to_even_and_saturates(machine, dtype):
    info = np.iinfo(dtype)
    numbers = st.one_of(
        st.floats(float(info.min) * 2 - 3, float(info.max) * 2 + 3, width=64),
        st.integers(-9, 9).map(lambda n: n + 0.5),
        st.sampled_from([np.inf, -np.inf, 1e30, -1e30]),
    )

    @PROFILE
    @given(st.lists(numbers, min_size=1, max_size=16))
    def check(values):
        bench = machine()
        single = np.array([values], np.float32)
        out = bench.empty(single.shape, dtype)
        bench.issue("tensor_copy", out, bench.tile(single))
        expected = [min(max(round(x) if np.isfinite(x) else x, info.min), info.max) for x in single[0].astype(float)]
        assert out.array()[0].tolist() == [int(x) for x in expected]

    check()


@pytest.mark.parametrize("op", ["add", "subtract", "multiply"])
@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_integers_on_gpsimd_are_exact_and_wrap_at_32_bits(machine, op, dtype):
    info = np.iinfo(dtype)

    @PROFILE
    @given(st.lists(st.tuples(*[st.integers(int(info.min), int(info.max))] * 2), min_size=1, max_size=8))
    def check(pairs):
        bench = machine()
        left, right = (np.array([column], dtype) for column in zip(*pairs, strict=True))
        out = bench.empty(left.shape, dtype)
        bench.issue("tensor_tensor", out, bench.tile(left), bench.tile(right), OPS[op])
        python = {"add": int.__add__, "subtract": int.__sub__, "multiply": int.__mul__}[op]
        wrapped = [(python(a, b) - info.min) % 2**32 + info.min for a, b in pairs]
        assert out.array()[0].tolist() == wrapped

    check()


# ---- PSUM

MATMULS = st.lists(
    st.tuples(
        st.sampled_from([0, 32, 64, 96]), st.integers(1, 32), st.integers(0, 11), st.integers(1, 12), st.integers(1, 3),
        st.sampled_from([None, None, False, True]), st.integers(-3, 3), st.booleans(),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_matmuls_into_regions_that_overlap_add_where_a_matmul_was_and_overwrite_elsewhere(machine, dtype):
    @PROFILE
    @given(MATMULS)
    def check(calls):
        bench = machine("trn3")
        tile = bench.empty((128, 24), dtype, "psum")
        held, by_matmul, written = np.zeros((128, 24)), np.zeros((128, 24), bool), np.zeros((128, 24), bool)
        for start, rows, column, width, step, accumulate, value, other in calls:
            columns = slice(column, min(column + width * step, 24), step)
            rows = slice(start, start + rows)
            if other:  # another instruction writes there: it starts no group and ends none
                bench.issue("memset", tile[rows, columns], float(value))
                held[rows, columns], written[rows, columns] = value, True
                continue
            count = held[rows, columns].shape
            weights, moving = bench.tile(np.ones((4, count[0]))), bench.tile(np.full((4, count[1]), value / 2))
            if accumulate and not written[rows, columns].all():
                with pytest.raises(KernelError) as caught:
                    bench.issue("nc_matmul", tile[rows, columns], weights, moving, accumulate=True)
                assert caught.value.rule == "accumulate-unwritten"
                continue
            bench.issue("nc_matmul", tile[rows, columns], weights, moving, accumulate=accumulate)
            adds = {None: by_matmul[rows, columns], False: np.zeros(count, bool), True: np.ones(count, bool)}[
                accumulate
            ]
            held[rows, columns] = np.where(adds, held[rows, columns], 0) + 2 * value
            by_matmul[rows, columns] = written[rows, columns] = True
        with np.errstate(invalid="ignore"):  # bytes that nothing wrote
            found = tile.array().astype(np.float64)
        np.testing.assert_array_equal(found[written], held[written])

    check()


# ---- MX

EDGES = [0.0, -0.0, 2.0**-14, 2.0**-24, 1.0, -1.0, 3.0, 447.0, 65504.0, -65504.0, 2.0**-20 * 3]


@pytest.mark.parametrize(("dtype", "emax"), [("float8_e4m3fn_x4", 8), ("float8_e5m2_x4", 15)])
def test_quantized_groups_hold_their_values_to_half_a_step(machine, dtype, emax):
    plain = dtype.removesuffix("_x4")

    @PROFILE
    @given(st.lists(st.sampled_from(EDGES), min_size=32, max_size=32))
    def check(values):
        bench = machine("trn3")
        source = np.zeros((32, 4), np.float16)
        source[:8] = np.array(values).reshape(8, 4)
        out, scale = bench.empty((32, 1), dtype), bench.empty((4, 1), "uint8")
        bench.issue("quantize_mx", out, bench.tile(source, "float16"), scale)
        largest = np.abs(source[:8].astype(np.float64)).max()
        exponent = -127 if largest == 0 else int(np.floor(np.log2(largest))) - (emax - 1)
        assert scale.array()[0, 0] == exponent + 127
        stored = out.array().view(np.uint8).reshape(32, 4).view(ROWS[plain].numpy)[:8].astype(np.float64)
        expected = [[rounded(float(x) / 2.0**exponent, plain) for x in row] for row in source[:8]]
        np.testing.assert_array_equal(stored, expected)

    check()
