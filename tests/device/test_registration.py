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


OLDER = "import torch; del torch.utils.backend_registration._setup_privateuseone_for_python_backend\n"


def test_an_older_torch_gets_the_namespace_and_kernels_on_cpu_tensors(python, tmp_path):
    code = f"""
{OLDER}
import warnings, kernels_neuron, pathlib
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(kernels_neuron.device.enable(), kernels_neuron.device.enable(), kernels_neuron.device.is_enabled())
print([str(one.message) for one in caught])
from kernels.backends import _select_backend
import torch_neuronx, nki
torch.neuron.synchronize()
print(_select_backend(None).name, torch.neuron.device_count(), nki.__name__)
from kernels_neuron.builder import build, scaffold
from kernels_neuron.manifest import Manifest
root = pathlib.Path({str(tmp_path)!r})
scaffold("halve", root)
(built,) = build(Manifest.read(root / "kernel.toml"))
from kernels import get_local_kernel
kernel = get_local_kernel(built.root)
x = torch.ones(2, 3, requires_grad=True)
y = kernel.halve(x, 0.5)
y.sum().backward()
print("_neuron_" in kernel.__name__, y.tolist(), x.grad.tolist())
"""
    first, said, chosen, answer = python(code).stdout.splitlines()
    assert first == "False False False"
    assert "torch.neuron is there and torch.device('neuron') is not" in said
    assert chosen == "neuron 1 nki"
    assert answer == f"True {[[0.5] * 3] * 2} {[[0.5] * 3] * 2}"


def test_importing_an_older_torch_under_the_variable_only_warns(python):
    code = f"{OLDER}import kernels_neuron_autoload; kernels_neuron_autoload.autoload(); print(hasattr(torch, 'neuron'))"
    done = python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0", KERNELS_NEURON_SIM="1")
    assert done.stdout.split() == ["True"] and "was not registered" not in done.stderr


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
