"""tensor_copy and tensor_tensor on any views: equal to a float64 model, and nothing around the destination changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_neuron.sim.isa.ops import OPS

DTYPES = ("float32", "bfloat16", "float16", "int8", "uint8", "int16", "int32")


@st.composite
def views(draw, bench, partitions, count, buffers=("sbuf", "psum")):
    """A view of `count` elements on `partitions` partitions of a written tile: strided, offset, split and permuted."""
    step = draw(st.integers(1, 3))
    offset = draw(st.integers(0, 3))
    start = draw(st.sampled_from([0, 32, 64, 96] if partitions <= 32 else [0, 64] if partitions <= 64 else [0]))
    dtype, buffer = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(buffers))
    values = np.random.default_rng(draw(st.integers(0, 2**16))).uniform(-200, 200, (128, offset + count * step))
    if dtype == "uint8":
        values = np.abs(values)
    tile = bench.tile(values, dtype, buffer)
    view = tile[start : start + partitions, offset : offset + count * step : step]
    factor = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    view = view.reshape_dim(1, (factor, count // factor))
    return view.permute((0, 2, 1)) if draw(st.booleans()) else view


def model(values, dtype):
    if dtype in ("int8", "uint8", "int16", "int32"):
        info = np.iinfo(dtype)
        return np.clip(np.rint(values), info.min, info.max)
    return values


def flat(view):
    return view.array().astype(np.float64).reshape(view.shape[0], -1)


def outside(view):
    """The bytes of the allocation that are not in the view, as a flat array with the view's bytes zeroed."""
    data = view.storage.data.copy()
    region = view.region()
    width = view.storage.tile.nbytes
    grid = data.reshape(view.storage.tile.partitions, width)
    for first in region.starts():
        grid[region.p0 : region.p1, first : first + region.width] = 0
    return grid


@pytest.mark.parametrize("op", [None, "add", "subtract", "multiply", "maximum"])
def test_any_views_equal_the_model_and_leave_the_rest(machine, op):
    tolerance = {"float32": 2e-6, "bfloat16": 2.0**-8, "float16": 2.0**-10}

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def check(data):
        bench = machine()
        partitions, count = data.draw(st.sampled_from([1, 7, 32, 50, 64, 128])), data.draw(st.integers(1, 12))
        dst = data.draw(views(bench, partitions, count))
        left = data.draw(views(bench, partitions, count))
        before = outside(dst)
        if op is None:
            bench.issue("tensor_copy", dst, left)
            expected = flat(left)
        else:
            right = data.draw(views(bench, partitions, count, ("sbuf",)))
            expected = getattr(np, op)(flat(left).astype(np.float32), flat(right).astype(np.float32)).astype(np.float64)
            bench.issue("tensor_tensor", dst, left, right, OPS[op])
        np.testing.assert_array_equal(outside(dst), before)
        allowed = tolerance.get(str(dst.dtype), 0.0)
        np.testing.assert_allclose(flat(dst), model(expected, dst.dtype), rtol=allowed, atol=allowed * 1e-3)

    check()
