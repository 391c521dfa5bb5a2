"""Upstream's `kernels`, unmodified, on the emulated device, against our registry that serves a relu kernel of ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels_neuron.builder import scaffold
from kernels_neuron.flows.publish import publish
from kernels_neuron.hub.serving import run_server
from kernels_neuron.manifest import Manifest

pytestmark = pytest.mark.slow

# the name that upstream's own test for Neuron asks for
OWNER, REPO = "kernels-test", "relu-nki"

# file of the scaffold, which multiplies by a scale -> what to replace in it
RELU = {
    "kernel.toml": [('"neuron-relu"', f'"{REPO}"')],
    "nki_src/relu/kernel.py": [
        ("def relu(x, scale)", "def relu(x)"),
        ("op0=nl.multiply, operand0=scale", "op0=nl.maximum, operand0=0.0"),
    ],
    "nki_src/relu/reference.py": [("(x, scale=1.0)", "(x)"), ("x * scale", "x.relu()")],
    "nki_src/relu/ops.py": [
        ("x: torch.Tensor, scale: float = 1.0", "x: torch.Tensor"),
        ("reference.relu(x, scale)", "reference.relu(x)"),
        ("x.shape[-1]), float(scale))", "x.shape[-1]))"),
        ("_impl(x: torch.Tensor, scale: float)", "_impl(x: torch.Tensor)"),
        ("launch(kernel, x, scale)", "launch(kernel, x)"),
        ("_fake(x, scale)", "_fake(x)"),
        ("ctx.scale = inputs[1]", "ctx.save_for_backward(output)"),
        ("return relu(grad, ctx.scale), None", "return grad * (ctx.saved_tensors[0] > 0)"),
    ],
    "nki_src/relu/layers.py": [("    scale: float\n", ""), ("relu(x, self.scale)", "relu(x)")],
    "nki_src/relu/benchmark.py": [
        ("self.x, 0.5", "self.x"),
        ("self.x * 0.5", "self.x.relu()"),
        ("1024, 2048", "96, 64"),
    ],
}


def write_relu(project: Path) -> Manifest:
    """A project of its own with the relu kernel."""
    project.mkdir()
    scaffold("relu", project)
    for name, replacements in RELU.items():
        path = project / name
        text = path.read_text()
        for old, new in replacements:
            assert old in text, f"{name} of the scaffold has no {old!r}"
            text = text.replace(old, new)
        path.write_text(text)
    spec = project / "nki_src/relu/spec.toml"
    spec.write_text("".join(line for line in spec.open() if not line.startswith("args")))
    return Manifest.read(project / "kernel.toml")


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    folder = tmp_path_factory.mktemp("upstream")
    manifest = write_relu(folder / "project")
    with run_server(folder / "registry") as server:
        publish(None, to=server.url, token=server.token, owner=OWNER, manifest=manifest)
        yield server


@pytest.fixture
def client(python, registry, tmp_path):
    """client(code): run code against the registry, on the emulated device; its dict `out` comes back."""

    def run(code: str) -> dict:
        script = f"import json\nout = {{}}\n{code}\nprint('\\n' + json.dumps(out))\n"
        done = python(script, KERNELS_NEURON_SIM="1", HF_ENDPOINT=registry.url, HF_HOME=str(tmp_path / "home"))
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_upstreams_own_neuron_test_passes(client):
    """As in upstream's tests, where it is marked neuron_only: half precision, moved to the device, compared there."""
    out = client(f"""
import torch
from kernels import get_kernel
relu = get_kernel("{OWNER}/{REPO}", version=1)
x = torch.randn((16, 16), dtype=torch.float16).to(device="neuron")
torch.testing.assert_close(relu.relu(x), x.relu())
out["device"], out["backend"] = str(relu.relu(x).device), relu.__name__
""")
    assert out["device"] == "neuron:0"
    assert "_neuron_" in out["backend"]


LAYERS = f"""
import torch
from torch import nn
from kernels import LayerRepository, Mode, kernelize, register_kernel_mapping, use_kernel_forward_from_hub

@use_kernel_forward_from_hub("Relu")
class Relu(nn.Module):
    calls = 0
    def forward(self, x):
        Relu.calls += 1
        return x.relu()

register_kernel_mapping({{
    "Relu": {{"neuron": LayerRepository(repo_id="{OWNER}/{REPO}", layer_name="Relu", version=1)}}
}})
torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
model = nn.Sequential(nn.Linear(8, 16), Relu(), nn.Linear(16, 4))
model.load_state_dict(plain.state_dict())
model = model.to("neuron")
x = torch.randn(3, 8)
"""


@pytest.mark.parametrize("device", ["device='neuron', ", ""], ids=["given", "inferred"])
def test_kernelize_runs_the_layer_of_the_hub_on_the_device(client, device):
    out = client(f"""{LAYERS}
model = kernelize(model, {device}mode=Mode.INFERENCE)
with torch.inference_mode():
    y = model(x.to("neuron"))
torch.testing.assert_close(y.cpu(), plain(x))
out["device"], out["original"] = str(y.device), Relu.calls
""")
    assert out == {"device": "neuron:0", "original": 0}


def test_kernelize_for_training_goes_backward_through_the_kernel(client):
    out = client(f"""{LAYERS}
model = kernelize(model, mode=Mode.TRAINING)
model(x.to("neuron")).sum().backward()
plain(x).sum().backward()
for ours, theirs in zip(model.parameters(), plain.parameters()):
    torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
out["original"] = Relu.calls
""")
    assert out == {"original": 0}


def test_kernelize_for_compilation_leaves_one_graph(client):
    out = client(f"""{LAYERS}
model = kernelize(model, mode=Mode.INFERENCE | Mode.TORCH_COMPILE)
compiled = torch.compile(model, backend="eager", fullgraph=True)
with torch.no_grad():
    torch.testing.assert_close(compiled(x.to("neuron")).cpu(), plain(x))
out["original"] = Relu.calls
""")
    assert out == {"original": 0}


def test_kernels_benchmark_times_and_verifies_on_the_device(registry, tmp_path):
    environment = {
        **os.environ,
        "KERNELS_NEURON_SIM": "1",
        "HF_ENDPOINT": registry.url,
        "HF_HOME": str(tmp_path / "home"),
    }
    result = tmp_path / "result.json"
    argv = [str(Path(sys.executable).parent / "kernels"), "benchmark", f"{OWNER}/{REPO}", "--version", "1"]
    argv += ["--iterations", "2", "--warmup", "1", "--output", str(result)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(result.read_text())["results"]
    assert row["verified"] is True
