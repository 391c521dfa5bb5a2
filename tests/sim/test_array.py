"""Casts between float32 and the narrow float formats agree with ml_dtypes on every value, and on none of its traps."""

import ml_dtypes
import numpy as np
import pytest

from kernels_neuron.sim import array

EIGHT_BITS = ("float8_e4m3", "float8_e4m3fn", "float8_e5m2")


def every_kind_of_float() -> np.ndarray:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    # ties and limits of the 8-bit formats
    return np.concatenate([bits, halves, np.linspace(-600, 600, 240_000, dtype=np.float32)]).reshape(-1, 2)


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(
        np.array_equal(found, expected, equal_nan=True)
        and (np.signbit(found) == np.signbit(expected))[~np.isnan(expected)].all()
    )


@pytest.mark.parametrize("name", [*EIGHT_BITS, "float16", "bfloat16"])
def test_every_narrow_value_widens_exactly(name):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    codes = np.arange(256**dtype.itemsize, dtype=f"uint{8 * dtype.itemsize}").reshape(-1, 16)
    for values in (codes.view(dtype), codes.view(dtype)[:, ::2], codes.view(dtype).T):
        assert same(array.f32(values), values.astype(np.float32))


@pytest.mark.parametrize("name", [*EIGHT_BITS, "float16"])
def test_rounding_is_that_of_the_format(name):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    values = every_kind_of_float()
    with np.errstate(all="ignore"):
        expected = values.astype(dtype)
    target = np.zeros(values.shape, dtype)
    array.store(target, values, name)
    assert same(target.astype(np.float32), expected.astype(np.float32))


def test_a_read_only_operand_and_a_strided_target_are_cast_too():
    one = np.broadcast_to(np.float16(1.5), (4, 8))
    assert not one.flags.writeable and (array.f32(one) == 1.5).all()
    for dtype, name in ((np.float16, "float16"), (ml_dtypes.float8_e4m3, "float8_e4m3")):
        target = np.zeros((4, 16), dtype)
        array.store(target[:, ::2], np.broadcast_to(np.float32(1.5), (4, 8)), name)
        assert target.astype(np.float32).tolist() == [[1.5, 0.0] * 8] * 4
