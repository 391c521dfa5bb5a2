"""When the device is registered, and above all when it is not."""

import re
from importlib import metadata
from pathlib import Path

import pytest
import torch

from kernels_neuron.device import enable, is_enabled, real_torch_neuronx, registration

ASK = "import sys, torch; print(hasattr(torch, 'neuron'), 'kernels_neuron' in sys.modules)"


@pytest.fixture
def installed(monkeypatch):
    """installed(version): torch-neuronx seems to be installed."""

    def install(version: str) -> None:
        monkeypatch.setattr(registration.metadata, "version", {"torch-neuronx": version}.__getitem__)

    return install


def test_a_process_that_did_not_ask_gets_nothing(python):
    assert python(ASK).stdout.split() == ["False", "False"]


def test_the_variable_registers_the_device_when_torch_is_imported(python):
    code = f"{ASK}; import torch_neuronx, nki; print(torch.ones(2, device='neuron').sum().item(), nki.__name__)"
    assert python(code, KERNELS_NEURON_SIM="1").stdout.split() == ["True", "True", "2.0", "nki"]


def test_enable_registers_in_a_process_that_asks_late_and_twice(python):
    code = """
import sys, kernels_neuron
assert not kernels_neuron.device.is_enabled() and "torch" not in sys.modules
assert kernels_neuron.device.enable() and kernels_neuron.device.enable() and kernels_neuron.device.is_enabled()
import torch
from kernels.backends import _select_backend
print(torch.zeros(1, device="neuron").device, torch.accelerator.current_accelerator(), _select_backend(None).name)
"""
    assert python(code).stdout.split() == ["neuron:0", "neuron", "neuron"]


@pytest.mark.skipif(is_enabled(), reason="this process has the device already")
def test_a_real_device_is_never_covered(installed, monkeypatch):
    installed("2.14.0")
    assert real_torch_neuronx() == "2.14.0" and not enable()
    monkeypatch.undo()
    monkeypatch.setattr(torch, "neuron", "someone else's", raising=False)
    assert not enable() and torch.neuron == "someone else's"


def test_the_placeholder_of_pypi_is_no_real_device(installed):
    installed("0.0.1")
    assert real_torch_neuronx() is None


def test_the_example_of_the_documentation_runs(python):
    text = (Path(__file__).parents[2] / "docs" / "device.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert python(example).stdout.startswith("neuron:0 ")


def test_the_entry_point_is_the_module_that_imports_nothing():
    (entry,) = [e for e in metadata.entry_points(group="torch.backends") if e.name == "kernels_neuron"]
    assert entry.value == "kernels_neuron_autoload:autoload"


def test_another_packages_device_is_named_and_importing_torch_survives_it(python):
    code = """
import torch, kernels_neuron, kernels_neuron_autoload, os
torch.utils.rename_privateuse1_backend("npu")
try:
    kernels_neuron.device.enable()
except kernels_neuron.errors.UsageError as error:
    print(error)
os.environ["KERNELS_NEURON_SIM"] = "1"
kernels_neuron_autoload.autoload()
print(kernels_neuron.device.is_enabled())
"""
    done = python(code)
    assert done.stdout.splitlines() == ["torch has one slot for devices of other packages, and npu has it", "False"]
    assert "the emulated neuron device was not registered" in done.stderr
