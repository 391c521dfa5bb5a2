"""Modules of older NKI versions import and lead to the same objects as the current ones."""

import importlib
import sys

import pytest

import kernels_neuron.sim.shim as shim

shim.install()


@pytest.mark.parametrize(
    "name",
    [
        "nki.compiler", "nki.dtype", "nki.isa.constants", "nki.language.dtypes", "nki.meta.tensor", "nki.tensor",
        "neuronxcc.nki.typing",
    ],
)  # fmt: skip
def test_a_retired_module_imports(name):
    assert importlib.import_module(name).__all__


def test_retired_names_are_the_current_objects():
    import nki
    import nki.isa as nisa
    import nki.language as nl
    from nki.isa import constants
    from nki.meta.tensor import NkiTensor

    assert constants.oob_mode is nisa.oob_mode
    assert nki.dtype.bfloat16 is nl.bfloat16
    assert NkiTensor is nl.NkiTensor


def test_importing_nki_alone_reaches_its_submodules():
    nki = importlib.import_module("nki")
    assert nki.language is sys.modules["nki.language"]
    with pytest.raises(AttributeError, match=r"nki\.simulator_of_the_moon is not supported by this simulator"):
        nki.simulator_of_the_moon  # noqa: B018


def test_compiling_for_a_device_is_refused_by_name():
    from nki.compiler import kernel_builder

    from kernels_neuron.errors import NotSimulated

    with pytest.raises(NotSimulated, match="compile_kernel"):
        kernel_builder.compile_kernel(None)


def test_mutable_tensor_is_an_annotation():
    import neuronxcc.nki.typing as nt

    def kernel(out: nt.mutable_tensor, x: nt.tensor[128, 512]) -> None: ...

    assert kernel.__annotations__
