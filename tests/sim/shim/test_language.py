"""nki.language functions against numpy, and what they refuse."""

import ml_dtypes
import numpy as np
import pytest
import torch

import kernels_neuron.sim.shim as shim
from kernels_neuron.errors import KernelError, UsageError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using
from kernels_neuron.sim.run import jit

shim.install()
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

RNG = np.random.default_rng(7)
X = RNG.standard_normal((9, 4, 6)).astype(np.float32) * 3


def run(function, *arrays, arch="trn2", **settings):
    """function over SBUF tiles with the values of `arrays`."""

    def kernel(*inputs):
        tiles = []
        for given in inputs:
            tile = nl.ndarray(given.shape, given.dtype)
            nisa.dma_copy(tile, given)
            tiles.append(tile)
        result = function(*tiles)
        if result.buffer == nl.psum:
            result = nl.copy(result)
        out = nl.ndarray(result.shape, result.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, result)
        return out

    with using(arch, Settings(**settings)):
        return jit(kernel)(*arrays)


def refused(function, *arrays, arch="trn2"):
    with pytest.raises(KernelError) as caught:
        run(function, *arrays, arch=arch)
    return caught.value.rule


def softmax(x, axes):
    power = np.exp(x - x.max(axis=axes, keepdims=True))
    return power / power.sum(axis=axes, keepdims=True)


@pytest.mark.parametrize(
    ("name", "ours", "numpy"),
    [
        ("softmax", lambda x: nl.softmax(x), lambda x: softmax(x, (2,))),
        ("softmax_2", lambda x: nl.softmax(x, axis=[1, 2]), lambda x: softmax(x, (1, 2))),
        ("var", lambda x: nl.var(x, axis=2), lambda x: x.var(axis=2, keepdims=True)),
        ("var_2", lambda x: nl.var(x, axis=[1, 2]), lambda x: x.var(axis=(1, 2), keepdims=True)),
        ("mean", lambda x: nl.mean(x, axis=2, keepdims=True), lambda x: x.mean(axis=2, keepdims=True)),
        ("sin", lambda x: nl.sin(nl.multiply(x, 10.0)), lambda x: np.sin(10 * x)),
        ("cos", lambda x: nl.cos(x), np.cos),
        ("floor", lambda x: nl.floor(x), np.floor),
        ("ceil", lambda x: nl.ceil(x), np.ceil),
        ("trunc", lambda x: nl.trunc(x), np.trunc),
        ("where", lambda x: nl.where(nl.greater(x, 0.0), x, -1.0), lambda x: np.where(x > 0, x, -1)),
        ("where_tiles", lambda x: nl.where(nl.greater(x, 0.0), 2.0, x), lambda x: np.where(x > 0, 2, x)),
        ("all", lambda x: nl.all(nl.greater(x, -4.0), axis=2), lambda x: (x > -4).all(axis=2).astype(np.float32)),
        ("logical_not", lambda x: nl.logical_not(nl.greater(x, 0.0)), lambda x: (x <= 0).astype(np.float32)),
        ("operators", lambda x: 2.0 - (x + x * x - 1.0) * 0.5, lambda x: 2 - (x + x * x - 1) * 0.5),
        ("negated", lambda x: -x, np.negative),
        ("compared", lambda x: (x < 0.5) + (x >= 0.5) * 3.0, lambda x: np.where(x < 0.5, 1.0, 3.0)),
        ("power", lambda x: nl.abs(x) ** x, lambda x: np.abs(x) ** x),
    ],
)  # fmt: skip
def test_a_function_agrees_with_numpy(name, ours, numpy):
    expected = numpy(X.astype(np.float64))
    got = run(ours, X)
    np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=2e-5, atol=3e-5)


def test_tan_agrees_with_numpy_away_from_its_poles():
    x = np.linspace(-1.2, 1.2, 50, dtype=np.float32).reshape(2, 25)
    np.testing.assert_allclose(run(lambda t: nl.tan(t), x), np.tan(x), rtol=1e-4)


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_rms_norm_adds_epsilon_where_the_switch_says(where):
    x, w = X[:, 0], np.broadcast_to(np.arange(6, dtype=np.float32), (9, 6)).copy()
    got = run(lambda a, b: nl.rms_norm(a, b, 1, 6, epsilon=0.5), x, w, switches={"rms_norm_epsilon": where})
    square = (x**2).mean(axis=1, keepdims=True)
    root = np.sqrt(square + 0.5) if where == "inside" else np.sqrt(square) + 0.5
    np.testing.assert_allclose(got, x / root * w, rtol=1e-5, atol=1e-6)


def test_bits_have_operators():
    x = RNG.integers(0, 2**20, (4, 8)).astype(np.int32)
    got = run(lambda a: ((a & 255) | (a << 3)) ^ (a >> 2), x)
    np.testing.assert_array_equal(got, ((x & 255) | (x << 3)) ^ (x >> 2))
    np.testing.assert_array_equal(run(lambda a: ~a, x), ~x)
    np.testing.assert_array_equal(run(lambda a: nl.logical_not(a & 1), x), 1 - (x & 1))


def test_a_tile_compares_with_none_as_python_does():
    run(lambda x: x if x != None and x != None else None, X)  # noqa: E711


def test_assignment_copies_into_a_slice():
    def half(x):
        tile = nl.zeros((9, 4, 6), nl.float32)
        tile[:, 1:3] = x[:, 0:2]
        return tile

    expected = np.zeros_like(X)
    expected[:, 1:3] = X[:, :2]
    np.testing.assert_array_equal(run(half, X), expected)

    def number(x):
        x[0:9] = 1.0
        return x

    assert refused(number, X) == "operand-type"


@pytest.mark.parametrize(
    ("source", "target", "sizes", "numpy"),
    [
        (("b", "c", "d"), ("b", "d", "c"), {}, lambda x: x.transpose(0, 2, 1)),
        (("b", "c", ("h", "w")), ("b", "w", "c", "h"), {"h": 2}, lambda x: x.reshape(9, 4, 2, 3).transpose(0, 3, 1, 2)),
        (("b", "c", "d"), ("b", ("c", "d")), {}, lambda x: x.reshape(9, 24)),
    ],
)
def test_rearrange_agrees_with_numpy(source, target, sizes, numpy):
    np.testing.assert_array_equal(run(lambda x: nl.copy(x.rearrange(source, target, sizes)), X), numpy(X))


def test_rearrange_refuses_what_is_no_rearrangement():
    assert refused(lambda x: x.rearrange(("b", "c"), ("c", "b")), X) == "rearrange"
    assert refused(lambda x: x.rearrange(("b", "c", ("h", "w")), ("b", "c", "h", "w")), X) == "rearrange"


def test_broadcast_to_repeats_free_dims_as_a_view_and_partitions_by_a_product():
    row = RNG.standard_normal((1, 700)).astype(np.float32)
    got = run(lambda x: nl.broadcast_to(x, (5, 700)), row)
    np.testing.assert_array_equal(got, np.broadcast_to(row, (5, 700)))
    column = RNG.standard_normal((5, 1)).astype(np.float32)
    got = run(lambda x: nl.broadcast_to(x, (5, 3), nl.bfloat16), column)
    np.testing.assert_array_equal(got, np.broadcast_to(column.astype(ml_dtypes.bfloat16), (5, 3)))
    assert refused(lambda x: nl.broadcast_to(x, (5,)), column) == "view-broadcast"


def test_gather_flattened_gathers_per_partition():
    places = RNG.integers(0, 24, (9, 5)).astype(np.uint32)
    got = run(lambda x, i: nl.gather_flattened(x, i, dtype=nl.bfloat16), X, places)
    want = np.take_along_axis(X.reshape(9, 24), places.astype(np.int64), axis=1)
    np.testing.assert_array_equal(got, want.astype(ml_dtypes.bfloat16))
    assert refused(lambda x, i: nl.gather_flattened(x, i, axis=1), X, places) == "not-simulated"


def test_load_transpose2d_transposes_on_the_way():
    def kernel(x):
        out = nl.ndarray((6, 9), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(x))
        return out

    np.testing.assert_array_equal(jit(kernel)(X[:, 0]), X[:, 0].T)
    assert refused(lambda x: nl.load_transpose2d(x), X) == "operand-rank"


@pytest.mark.parametrize("arch", ["trn2", "trn3"])
def test_rand_is_uniform_and_repeats_with_its_seed(arch):
    def two(x):
        both = nl.ndarray((9, 2, 512), nl.float32)
        for i in range(2):
            nl.random_seed(nl.full((1, 1), 5, nl.int32))
            both[:, i] = nl.rand((9, 512), nl.float32)
        return both

    values = run(two, X, arch=arch)
    np.testing.assert_array_equal(values[:, 0], values[:, 1])
    assert values.min() >= 0 and values.max() < 1 and abs(values.mean() - 0.5) < 0.02


def test_dropout_zeroes_about_its_rate():
    values = run(lambda x: nl.dropout(nl.full((128, 64), 2.0, nl.float32), 0.25), X)
    assert abs((values == 0).mean() - 0.25) < 0.03


def test_identity_is_loaded_once():
    def kernel(x):
        assert nl.shared_identity_matrix(9, nl.float32) is nl.shared_identity_matrix(9, nl.float32)
        into = nl.ndarray((9, 9), nl.float32)
        nl.shared_identity_matrix(9, nl.float32, dst=into)
        return nl.add(into, nl.shared_identity_matrix(9, nl.float32))

    np.testing.assert_array_equal(run(kernel, X), 2 * np.eye(9))
    assert refused(lambda x: nl.shared_identity_matrix(129), X) == "partition-limit"


def test_a_constant_comes_from_an_array_a_tensor_or_a_file(tmp_path):
    values = RNG.standard_normal((3, 4)).astype(np.float32)
    np.save(tmp_path / "values.npy", values)
    for constant in (values, torch.from_numpy(values), str(tmp_path / "values.npy")):
        np.testing.assert_array_equal(run(lambda x, c=constant: nl.load(nl.shared_constant(c)), X), values)
    counts = run(lambda x: nl.load(nl.shared_constant(np.arange(6).reshape(2, 3))), X)
    np.testing.assert_array_equal(counts, np.arange(6, dtype=np.int32).reshape(2, 3))
    assert refused(lambda x: nl.shared_constant(np.zeros((1, 1), ml_dtypes.float8_e4m3)), X) == "constant-dtype"
    with pytest.raises(UsageError, match="cannot read"):
        run(lambda x: nl.shared_constant("nowhere.npy"), X)


@pytest.mark.parametrize("name", ["divide", "mod", "fmod"])
def test_functions_that_no_chip_has_are_refused(name):
    assert refused(lambda x: getattr(nl, name)(x, x), X) == "not-on-device"
    as_operator = {"op0": getattr(nl, name), "operand0": 2.0}
    assert refused(lambda x: nisa.tensor_scalar(dst=x, data=x, **as_operator), X) == "not-on-device"
