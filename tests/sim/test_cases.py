"""Inputs that people report as broken elsewhere: views, loops, casts and calls that must come out as numpy has them."""

import warnings

import ml_dtypes
import numpy as np
import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings
from kernels_neuron.sim import shim
from kernels_neuron.sim.races import RaceWarning, ScatterWarning
from kernels_neuron.sim.run import jit, simulate

shim.install()
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

RNG = np.random.default_rng(5)


def out_like(x, shape=None, dtype=None):
    return nl.ndarray(shape or x.shape, dtype or x.dtype, buffer=nl.shared_hbm)


def refused(rule, kernel, *args, **kwargs):
    with pytest.raises(KernelError) as caught:
        simulate(kernel, *args, **kwargs)
    assert caught.value.rule == rule, str(caught.value)
    return str(caught.value)


def test_a_reshape_of_the_free_axis_and_a_copy_by_slices_agree():
    def kernel(x):
        out, tile = out_like(x), nl.load(x)
        nl.store(out, tile.reshape((128, 2, 64)).permute((0, 2, 1)).reshape_dim(1, (64, 1)).squeeze_dim(2)[:, :, 0:2])
        return out

    def by_slices(x):
        out, tile = out_like(x, (128, 64, 2)), nl.load(x)
        for i in range(2):
            nl.store(out[:, :, i : i + 1].squeeze_dim(2), tile[:, 64 * i : 64 * (i + 1)])
        return out

    x = RNG.standard_normal((128, 128)).astype(np.float32)
    expected = x.reshape(128, 2, 64).transpose(0, 2, 1)
    np.testing.assert_array_equal(simulate(kernel, x).reshape(128, 64, 2), expected)
    np.testing.assert_array_equal(simulate(by_slices, x), expected)


@pytest.mark.parametrize("batch", range(1, 21))
def test_a_view_with_a_unit_dim_is_the_same_for_every_trip_count(batch):
    def kernel(x):
        out = out_like(x)
        for b in range(x.shape[0]):
            tile = nl.load(x[b]).reshape((16, 1, 32))
            nl.store(out[b], nl.exp(tile[:, 0, :]))
        return out

    x = RNG.standard_normal((batch, 16, 32)).astype(np.float32)
    np.testing.assert_allclose(simulate(kernel, x), np.exp(x), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("op", ["copy", "relu", "exp", "square"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_no_function_ignores_its_bias_or_scale(op, dtype):
    def kernel(x, bias):
        out, tile = out_like(x), nl.load(x)
        nisa.activation(dst=tile, op=getattr(nl, op), data=tile, bias=nl.load(bias), scale=2.0)
        nl.store(out, tile)
        return out

    functions = {"copy": lambda v: v, "relu": lambda v: np.maximum(v, 0), "exp": np.exp, "square": np.square}
    x = RNG.uniform(-1, 1, (128, 64)).astype(dtype)
    expected = functions[op](2 * x.astype(np.float32) + 3)
    got = simulate(kernel, x, np.full((128, 1), 3, dtype)).astype(np.float32)
    np.testing.assert_allclose(got, expected, rtol=1e-2 if dtype is not np.float32 else 1e-5)


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_what_a_kernel_does_does_not_depend_on_how_many_arguments_it_has(inputs, outputs):
    def kernel(*xs):
        outs = tuple(out_like(xs[0]) for _ in range(outputs))
        tile = nl.ndarray((128, 2, 16), xs[0].dtype)
        for i in range(2):
            nisa.dma_copy(dst=tile[:, i], src=xs[0][i])
        for out in outs:
            for i in range(2):
                nisa.dma_copy(dst=out[i], src=tile[:, i])
        return outs if outputs > 1 else outs[0]

    xs = [RNG.standard_normal((2, 128, 16)).astype(np.float16) for _ in range(inputs)]
    got = simulate(kernel, *xs)
    for each in got if outputs > 1 else (got,):
        np.testing.assert_array_equal(each, xs[0])


def test_arguments_bind_by_position_keyword_order_and_default():
    def kernel(a, b, scale=2.0):
        out, tile = out_like(a), nl.load(a)
        nisa.scalar_tensor_tensor(
            dst=tile, data=tile, op0=nl.multiply, operand0=scale, op1=nl.subtract, operand1=nl.load(b)
        )
        nl.store(out, tile)
        return out

    a, b = (RNG.standard_normal((4, 8)).astype(np.float32) for _ in range(2))
    first = simulate(kernel, a, b, 2.0)
    for call in (lambda: simulate(kernel, a, b), lambda: simulate(kernel, scale=2.0, b=b, a=a)):
        np.testing.assert_array_equal(call(), first)


def test_writing_into_a_result_leaves_the_argument_that_was_passed_through():
    x = RNG.standard_normal((4, 8)).astype(np.float32)
    before = x.copy()
    same, _ = simulate(lambda x: (x, nl_stored(x)), x)
    same[...] = 0
    np.testing.assert_array_equal(x, before)


def nl_stored(x):
    out = out_like(x)
    nl.store(out, nl.load(x))
    return out


def test_an_int8_tile_rounds_to_nearest_even_each_turn_of_a_device_loop():
    def kernel(x):
        out, tile = out_like(x), nl.load(x)
        nl.fori_loop(0, 10, lambda i: nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.99) and None)
        nl.store(out, tile)
        return out

    assert (simulate(kernel, np.full((128, 8), 100, np.int8)) == 90).all()


def test_two_programs_that_write_the_same_rows_are_reported():
    def kernel(x, differ):
        out, tile = out_like(x), nl.load(x)
        if differ:
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(nl.program_id(0)))
        nl.store(out, tile)
        return out

    x = np.ones((4, 8), np.float32)
    with pytest.warns(RaceWarning):
        simulate(jit(kernel)[2], x, False)
    refused("race", jit(kernel)[2], x, True)


@pytest.mark.parametrize(("start", "count"), [(0, 128), (32, 32), (64, 64), (96, 32)])
def test_copies_start_at_partitions_that_engines_address(start, count):
    def kernel(x, start, count):
        out, tile = out_like(x), nl.load(x)
        nisa.tensor_copy(dst=tile[start : start + count], src=tile[start : start + count])
        nl.store(out, tile)
        return out

    x = np.ones((128, 4), np.float32)
    simulate(kernel, x, start, count)
    for bad in ((32, 64), (48, 8), (1, 2)):
        assert f"got start {bad[0]}" in refused("start-partition", kernel, x, *bad)


def test_an_index_out_of_bounds_is_named_or_left_out_on_request():
    def kernel(table, rows, mode):
        out, index = out_like(table, (6, 32)), nl.load(rows)
        tile = nl.full((6, 32), 7.0, table.dtype)
        nisa.dma_copy(dst=tile, src=table.ap([[32, 6], [1, 32]], vector_offset=index), oob_mode=mode)
        nl.store(out, tile)
        return out

    table = RNG.standard_normal((100, 32)).astype(np.float32)
    rows = np.array([[0], [99], [100], [-1], [99], [105]], np.int32)
    assert "reaches row 2" in refused("out-of-bounds", kernel, table, rows, nisa.oob_mode.error)
    got = simulate(kernel, table, rows, nisa.oob_mode.skip)
    np.testing.assert_array_equal(got[[0, 1, 4]], table[[0, 99, 99]])
    np.testing.assert_array_equal(got[[2, 3, 5]], np.full((3, 32), 7.0))


def test_an_offset_of_a_float_register_tile_is_refused():
    def kernel(x, index):
        return x.ap([[4, 1], [1, 4]], scalar_offset=nl.load(index))

    assert "float32" in refused("dynamic-offset", kernel, np.ones((4, 4), np.float32), np.ones((1, 1), np.float32))


@pytest.mark.parametrize(("value", "legacy"), [(239.0, 240.0), (240.0, 240.0), (248.0, np.inf), (-448.0, -np.inf)])
def test_fp8_has_the_range_of_its_flavour(value, legacy):
    def kernel(x, kind):
        out, tile = out_like(x, dtype=nl.float32), nl.ndarray(x.shape, kind)
        nisa.tensor_copy(dst=tile, src=nl.load(x))
        wide = nl.ndarray(x.shape, nl.float32)
        nisa.tensor_copy(dst=wide, src=tile)
        nl.store(out, wide)
        return out

    x = np.full((4, 8), value, np.float32)
    assert (simulate(kernel, x, nl.float8_e4m3) == legacy).all()
    fn = x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(simulate(kernel, x, nl.float8_e4m3fn), fn)


def test_the_same_kernel_gives_the_same_bits_on_every_call():
    def kernel(x):
        out, tile = out_like(x), nl.load(x)
        nisa.activation(dst=tile, op=nl.gelu, data=tile)
        nl.store(out, tile)
        return out

    xs = [RNG.standard_normal((128, n)).astype(kind) for n in (16, 40) for kind in (np.float32, np.float16)]
    first = [simulate(kernel, x) for x in xs]
    for _ in range(10):
        for x, want in zip(xs, first, strict=True):
            np.testing.assert_array_equal(simulate(kernel, x), want)


def scatters(x, index):
    out = nl.ndarray((8, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, nl.zeros((8, 4), nl.float32))
    nisa.dma_copy(dst=out.ap([[4, 4], [1, 4]], vector_offset=nl.load(index)), src=nl.load(x))
    return out


def test_a_scatter_that_repeats_an_index_is_flagged_where_the_order_shows():
    x, index = np.arange(16, dtype=np.float32).reshape(4, 4), np.array([[1], [2], [1], [3]], np.uint32)
    with pytest.warns(ScatterWarning, match=r"test_cases.py:\d+: dma_copy scatters rows 0 and 2 to row 1 of"):
        simulate(scatters, x, index)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(scatters, np.ones((4, 4), np.float32), index)
        simulate(scatters, x, np.array([[1], [2], [0], [3]], np.uint32))


def test_a_scattered_sum_that_repeats_an_index_is_flagged():
    def adds(x, index):
        out = nl.ndarray((8, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, nl.zeros((8, 4), nl.float32))
        rows = out.ap([[4, 4], [1, 4]], vector_offset=nl.load(index))
        nisa.dma_compute(rows, [rows, nl.load(x)], nl.add)
        return out

    with pytest.warns(ScatterWarning, match="dma_compute scatters rows 0 and 2 to row 1"):
        simulate(adds, np.ones((4, 4), np.float32), np.array([[1], [2], [1], [3]], np.uint32))


@jit
def reads_past_its_tile(x):
    """A copy of a pattern whose last four elements lie beyond the tile."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, copy = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_copy(dst=copy, src=tile.ap([[8, 128], [1, 8]], offset=4))
    nisa.dma_copy(dst=y, src=copy)
    return y


@jit
def one_size_is_a_fraction(x):
    """A tile of 8 columns, then one of 8.0."""
    nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
    nl.ndarray((128, 8.0), dtype=x.dtype, buffer=nl.sbuf)
    return x


@pytest.mark.parametrize("execute", [True, False])
@pytest.mark.parametrize(
    ("kernel", "rule"), [(reads_past_its_tile, "out-of-bounds"), (one_size_is_a_fraction, "shape-type")]
)
def test_what_was_right_before_does_not_make_a_call_right_that_is_not(kernel, rule, execute):
    refused(rule, kernel, np.zeros((128, 8), np.float32), settings=Settings(execute=execute))
