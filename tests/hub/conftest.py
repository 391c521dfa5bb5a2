"""A running registry, small built kernels made by hand, and the real clients in processes of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernels_neuron.api import to_bytes
from kernels_neuron.artifact import Metadata, digest_files
from kernels_neuron.hub.serving import RunningServer, run_server

INIT = "from . import layers\nfrom ._double import double\n\n__all__ = ['double', 'layers']\n"
DOUBLE = "def double(x):\n    return x * {factor}\n"
API = {
    "names": ["double", "layers"],
    "functions": {"double": {"parameters": [{"name": "x", "kind": "positional"}]}},
    "dtypes": ["float32", "bfloat16"],
    "limits": {"H": [1, 4096]},
}
LAYERS = "import torch\n\n\nclass Double(torch.nn.Module):\n    def forward(self, x):\n        return x * {factor}\n"


def build_kernel(
    root: Path,
    name: str = "neuron-double",
    version: int = 1,
    backends: tuple[str, ...] = ("cpu",),
    factor: int = 2,
    api: dict | None = None,
) -> Path:
    """root/<name>/ as the builder leaves it: variants with their digests, a benchmark, a card."""
    folder = root / name
    for backend in backends:
        variant = folder / "build" / f"torch-{backend}"
        variant.mkdir(parents=True, exist_ok=True)
        (variant / "__init__.py").write_text(INIT)
        (variant / "_double.py").write_text(DOUBLE.format(factor=factor))
        (variant / "layers.py").write_text(LAYERS.format(factor=factor))
        (variant / "api.json").write_bytes(to_bytes(API | (api or {})))
        sign(variant, name, version, backend, factor)
    (folder / "benchmarks").mkdir(exist_ok=True)
    (folder / "benchmarks" / "benchmark.py").write_text("# times double\n")
    (folder / "README.md").write_text(f"---\nlicense: apache-2.0\n---\n# {name} v{version}\n")
    return folder


def sign(variant: Path, name: str, version: int, backend: str, factor: int = 2) -> None:
    """Write the metadata.json that fits the files of a variant."""
    depends = ("nki",) if backend == "neuron" else ()
    unique = f"_{name.replace('-', '_')}_{backend}_build{version}{factor}"
    metadata = Metadata(name, unique, version, "apache-2.0", depends, backend, digest_files(variant))
    (variant / "metadata.json").write_text(metadata.to_json())


@pytest.fixture(scope="session")
def make_kernel() -> Callable[..., Path]:
    return build_kernel


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return build_kernel(tmp_path / "build")


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    return lambda *args, **kwargs: build_kernel(tmp_path / "build", *args, **kwargs)


@pytest.fixture
def resign() -> Callable[..., None]:
    return sign


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with run_server(tmp_path / "registry") as running:
        yield running


def client_environment(home: Path, server: RunningServer, token: str | None) -> dict[str, str]:
    """Nothing of the caller's Hugging Face settings; everything goes to `server`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "KERNELS_", "LOCAL_KERNELS"))}
    mine = {"HF_HOME": str(home), "HF_ENDPOINT": server.url, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return {**kept, **mine, **({"HF_TOKEN": token} if token else {})}


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., dict]:
    """client(server, code, token=...): run code in a fresh Python with its own HF_HOME; its dict `out` comes back."""

    def run(server: RunningServer, code: str, token: str | None = None, home: Path | None = None) -> dict:
        script = f"import json\nout = {{}}\n{code}\nprint('\\n' + json.dumps(out))\n"
        environment = client_environment(home or tmp_path / "home", server, token)
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """command(server, "hf", ...): run an installed command with its own HF_HOME."""

    def run(server: RunningServer, *argv: str, token: str | None = None) -> subprocess.CompletedProcess:
        environment = client_environment(tmp_path / "home", server, token)
        program = str(Path(sys.executable).parent / argv[0])
        return subprocess.run(
            [program, *argv[1:]], env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    return run
