"""Small random models, and stand-ins for built kernels: plain torch under the names an artifact exports."""

import json
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn import functional

from kernels_neuron.artifact import Metadata, build_id, digest_files
from kernels_neuron.loader import SimulatorWarning, report


class Unsupported(ValueError):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def _module(name: str, layers: dict[str, type], **members: object) -> ModuleType:
    module = ModuleType(f"_neuron_{name}_neuron_standin000")
    module.layers = types.SimpleNamespace(**layers)
    module.Unsupported = Unsupported
    module.log = []
    module.__dict__.update(members)
    return module


def _layer(compute, parameter: str, has_backward: bool) -> type:
    scope: dict[str, object] = {"compute": compute}
    exec(f"def forward(self, {parameter}): return compute(self, {parameter})", scope)
    members = {"forward": scope["forward"], "has_backward": has_backward, "can_torch_compile": True}
    return type("Layer", (nn.Module,), members)


class Standins(dict):
    """kernel name -> module; `log` has (layer, shape) of every call that a kernel served."""

    def __init__(self, *, has_backward: bool = False, nudge: float = 0.0, max_rows: int | None = None) -> None:
        self.log: list[tuple[str, tuple[int, ...]]] = []
        self.nudge = nudge
        self.max_rows = max_rows

        def served(name, compute):
            def run(module, x):
                rows = x.numel() // x.shape[-1]
                if self.max_rows is not None and rows > self.max_rows:
                    raise Unsupported("shape", f"{name}: M has to be 1 to {self.max_rows}, got {rows}")
                self.log.append((name, tuple(x.shape)))
                out = compute(module, x) + self.nudge
                return out if has_backward else out.detach()

            return run

        def attention(module, q, k, v, mask, scaling=None, dropout=0.0):
            self.log.append(("attention", tuple(q.shape)))
            out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling) + self.nudge
            return out.transpose(1, 2).contiguous(), None

        attention.has_backward = has_backward
        norm = served("norm", lambda m, x: functional.layer_norm(x, m.normalized_shape, m.weight, m.bias, m.eps))
        linear = served("linear", lambda m, x: x @ m.weight.T + (0 if m.bias is None else m.bias))
        gelu = served("linear-gelu", lambda m, x: functional.gelu(x @ m.weight.T + m.bias))
        tanh = served("linear-gelu-tanh", lambda m, x: functional.gelu(x @ m.weight.T + m.bias, approximate="tanh"))
        patch = served("patch", lambda m, x: functional.conv2d(x, m.weight, m.bias, m.stride))
        super().__init__(
            layernorm=_module("layernorm", {"LayerNorm": _layer(norm, "input", has_backward)}),
            gemm=_module(
                "gemm",
                {
                    "Linear": _layer(linear, "input", has_backward),
                    "LinearGELU": _layer(gelu, "hidden_states", has_backward),
                    "LinearGELUTanh": _layer(tanh, "hidden_states", has_backward),
                },
            ),
            vit_attn=_module("vit_attn", {}, attention_forward=attention),
            patch_embed=_module("patch_embed", {"PatchEmbedding": _layer(patch, "pixel_values", has_backward)}),
        )

    def count(self, name: str) -> int:
        return sum(1 for layer, _ in self.log if layer == name)


@pytest.fixture
def standins() -> Standins:
    return Standins()


@pytest.fixture
def make_standins() -> type[Standins]:
    return Standins


@pytest.fixture(autouse=True)
def _no_simulator_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimulatorWarning)
        yield


def _scaled_up(model: nn.Module) -> nn.Module:
    # at transformers' std of 0.02 attention is near uniform and hides errors
    generator = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        if "norm" not in name.lower():
            parameter.data.normal_(std=0.2, generator=generator)
        else:
            parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model


@pytest.fixture
def make_vit():
    from transformers import ViTConfig, ViTForImageClassification

    def make(cls: type = ViTForImageClassification, config: ViTConfig | None = None, **changes) -> nn.Module:
        sizes = {"image_size": 8, "patch_size": 2, "num_channels": 1, "hidden_size": 32, "num_hidden_layers": 2}
        sizes |= {"num_attention_heads": 4, "intermediate_size": 64, "num_labels": 10}
        torch.manual_seed(0)
        return _scaled_up(cls(config or ViTConfig(**(sizes | changes)))).eval()

    return make


@pytest.fixture
def scaled_up():
    return _scaled_up


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def logits():
    """logits(model, x, ...): what the model answers, without gradients."""

    def call(model: nn.Module, x: torch.Tensor, **kwargs) -> torch.Tensor:
        with torch.no_grad():
            return model(x, **kwargs).logits

    return call


@pytest.fixture
def rows():
    """rows(model): the lines of its report, by the path of the module."""
    return lambda model: {row.path: row for row in report(model).modules}


LAYERS = """
import torch
from torch import nn


class LayerNorm(nn.Module):
    has_backward = False
    can_torch_compile = True

    def forward(self, input):
        return nn.functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps) + {nudge}
"""


def _write_variant(repo: Path, variant: str = "torch-neuron", *, nudge: float = 0.0, **changes) -> Path:
    """A built layernorm whose layer is plain torch, as the builder lays it out."""
    folder = repo / "build" / variant
    folder.mkdir(parents=True)
    folder.joinpath("__init__.py").write_text("from . import layers\n\nNUDGE = layers.torch.tensor(1.0)\n")
    folder.joinpath("layers.py").write_text(LAYERS.format(nudge=nudge))
    backend = variant.removeprefix("torch-")
    sources = {path.name: path.read_bytes() for path in folder.iterdir()}
    values = {
        "name": "neuron-layernorm",
        "id": build_id("neuron-layernorm", backend, sources),
        "version": 1,
        "license": "apache-2.0",
        "python_depends": ("nki",) if backend == "neuron" else (),
        "backend": backend,
        "digest": digest_files(folder),
        "nki": {"versions": ["0.7"], "kernel": "layernorm"} if backend == "neuron" else None,
    }
    folder.joinpath("metadata.json").write_text(Metadata(**(values | changes)).to_json())
    return folder


@pytest.fixture
def write_variant():
    """write_variant(repo, variant, nudge=..., **metadata): a built layernorm, as the builder lays it out."""
    return _write_variant


ASK = """
import json, logging, sys, time, warnings
logging.disable(); warnings.simplefilter("ignore")
from kernels_neuron.errors import KernelsNeuronError
from kernels_neuron.loader import get_kernel, kernelize, report
import torch
from torch import nn

def ask(what, *args, **kwargs):
    started = time.monotonic()
    try:
        if what == "get_kernel":
            return {"name": get_kernel(*args, **kwargs).__name__}
        model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)).eval()
        kernelize(model, **kwargs)
        return {"rows": [[row.path, row.outcome, row.reason, row.kernel_version] for row in report(model).modules]}
    except KernelsNeuronError as error:
        return {"error": f"{type(error).__name__}: {error}", "hint": error.hint, "took": time.monotonic() - started}

print(json.dumps([ask(what, *args, **kwargs) for what, args, kwargs in json.load(sys.stdin)]))
"""


def _ask(home: Path, url: str, *questions, **environment) -> list[dict]:
    """Answers of a fresh process, since huggingface_hub reads its environment when it is imported."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    env |= {"HF_HOME": str(home), "HF_ENDPOINT": url, "HF_HUB_DISABLE_PROGRESS_BARS": "1"} | environment
    process = subprocess.run(
        [sys.executable, "-c", ASK], input=json.dumps(questions), capture_output=True, text=True, env=env, check=False
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.fixture
def ask():
    """ask(home, url, [what, args, kwargs], ..., **environment): what a fresh process gets or is told."""
    return _ask


@pytest.fixture
def server(tmp_path):
    from kernels_neuron.hub.serving import run_server

    with run_server(tmp_path / "registry", untrusted=frozenset({"stranger"})) as running:
        yield running


def _publish(server, repo: Path, owner: str, branch: str) -> None:
    from huggingface_hub import HfApi

    api = HfApi(server.url, token=server.token)
    name = f"{owner}/neuron-layernorm"
    api.create_repo(name, repo_type="kernel", exist_ok=True)
    api.create_branch(name, branch=branch, repo_type="kernel", exist_ok=True)
    api.upload_folder(repo_id=name, folder_path=repo, repo_type="kernel", revision=branch)


@pytest.fixture
def publish():
    """publish(server, repo, owner, branch): upload a built layernorm as it is."""
    return _publish
