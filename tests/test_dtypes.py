import ml_dtypes
import numpy as np
import pytest
import torch

from kernels_neuron.dtypes import ROWS, as_array, as_tensor, dtype
from kernels_neuron.errors import UnsupportedDtype

IN_TORCH = [row for row in ROWS.values() if row.torch]


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_a_dtype_is_its_name(row):
    assert row.name == str(row.name) and dtype(str(row.name)) is row.name
    assert row.name.itemsize == row.numpy.itemsize


@pytest.mark.parametrize("row", IN_TORCH, ids=lambda row: row.name)
def test_numpy_and_torch_name_the_same_dtype(row):
    assert dtype(getattr(torch, row.torch)) == row.name
    assert dtype(row.numpy) == row.name


@pytest.mark.parametrize(
    "value", ["float64", np.float64, torch.float64, torch.int64, np.int64, torch.complex64, "fp32", object()]
)
def test_what_nki_cannot_name_is_refused(value):
    with pytest.raises(UnsupportedDtype, match="NKI has no dtype"):
        dtype(value)


def test_the_two_e4m3_flavours_are_apart():
    assert ROWS["float8_e4m3"].largest == 240 and ROWS["float8_e4m3fn"].largest == 448
    for name in ("float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"):
        assert float(ml_dtypes.finfo(ROWS[name].numpy).max) == ROWS[name].largest


@pytest.mark.parametrize("row", IN_TORCH, ids=lambda row: row.name)
def test_a_round_trip_shares_memory_and_keeps_bits_and_strides(row):
    tensor = torch.randint(0, 2, (6, 8)).to(getattr(torch, row.torch))[:, ::2].t()
    array = as_array(tensor)
    assert array.dtype == row.numpy
    assert array.strides == tuple(stride * row.itemsize for stride in tensor.stride())
    back = as_tensor(array)
    assert back.dtype == tensor.dtype and back.stride() == tensor.stride()
    assert back.data_ptr() == tensor.data_ptr() == array.ctypes.data


def test_a_tensor_that_needs_a_gradient_is_read_without_it():
    x = torch.ones(2, 2, requires_grad=True)
    assert as_array(x).sum() == 4


def test_int64_becomes_int32_when_every_value_fits():
    assert as_array(torch.tensor([2**31 - 1, -(2**31)])).dtype == np.int32
    with pytest.raises(UnsupportedDtype, match="beyond int32"):
        as_array(torch.tensor([2**31]))


def test_a_dtype_that_torch_lacks_is_refused():
    with pytest.raises(UnsupportedDtype, match="torch has no dtype"):
        as_tensor(np.zeros(2, ml_dtypes.float8_e4m3))
