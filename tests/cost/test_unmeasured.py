"""What no measurement backs is named: documented and assumed prices, GpSimdE, DMA transposes, several cores."""

import pytest

from kernels_neuron.arch import chip
from kernels_neuron.cost.unmeasured import unmeasured_parts
from kernels_neuron.sim.isa.prices import PRICES
from kernels_neuron.sim.trace import Price, Record, Trace, Transfer

NOTHING = Price(100.0, 200.0)


def trace_with(*records):
    trace = Trace(chip("trn2"), 0)
    trace.records += [Record(name, engine, price, (), (), at, 0) for at, (name, engine, price) in enumerate(records)]
    return trace


@pytest.mark.parametrize("name", ["tensor_copy", "tensor_scalar", "tensor_tensor", "tensor_reduce", "activation"])
def test_what_public_profiles_show_is_measured(name):
    assert unmeasured_parts([trace_with((name, "vector", NOTHING), ("nc_matmul", "tensor", NOTHING))]) == []


def test_a_transpose_is_measured_on_tensor_and_not_on_vector():
    assert unmeasured_parts([trace_with(("nc_transpose", "tensor", NOTHING))]) == []
    assert unmeasured_parts([trace_with(("nc_transpose", "vector", NOTHING))]) == ["nc_transpose"]


def test_documented_and_assumed_prices_are_named_once():
    assert "[isa]" in PRICES["range_select"].__doc__ and "Assumed" in PRICES["select_reduce"].__doc__
    trace = trace_with(*[(name, "vector", NOTHING) for name in ("select_reduce", "range_select", "range_select")])
    assert unmeasured_parts([trace]) == ["range_select", "select_reduce"]


def test_gpsimd_transposes_and_two_cores_are_named():
    turned = Price(500.0, 500.0, transfer=Transfer("load", 128, 256, 0, 128, "hw", rate=0.9))
    plain = Price(500.0, 500.0, transfer=Transfer("load", 128, 256, 0, 128, "hw"))
    trace = trace_with(("tensor_copy", "gpsimd", NOTHING), ("dma_transpose", "sync", turned))
    expected = ["DMA transpose", "tensor_copy on GpSimdE", "2 cores at once"]
    assert unmeasured_parts([trace, trace_with(("dma_copy", "gpsimd", plain))]) == expected
