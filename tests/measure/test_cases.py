"""Which rows there are, and which chips a kernel is not made for."""

from pathlib import Path

import pytest

from kernels_neuron.arch import CHIPS
from kernels_neuron.errors import UsageError
from kernels_neuron.manifest import Manifest
from kernels_neuron.measure.cases import Filter, lacking, tasks

KERNELS = Manifest.read(Path(__file__).parents[2] / "kernel.toml").select(None)
VARIANTS = {kernel.name: kernel.folder for kernel in KERNELS}


def test_chips_that_kernels_are_not_made_for_are_named_with_the_kernels():
    missing = lacking(KERNELS)
    assert set(missing) <= set(CHIPS) and missing["trn1"] == [kernel.name for kernel in KERNELS]
    assert "trn2" not in missing and "trn3" not in missing


def test_a_chip_that_no_kernel_is_made_for_is_refused_by_name():
    with pytest.raises(UsageError, match="made for trn2, trn3, not for trn1"):
        tasks(KERNELS, VARIANTS, "bench", Filter.of(archs=["trn1"]))


def test_a_chip_that_some_rows_have_keeps_those():
    found = tasks(KERNELS, VARIANTS, "bench", Filter.of(archs=["trn1", "trn2"], lncs=[1]))
    assert {task.arch for task in found} == {"trn2"}
