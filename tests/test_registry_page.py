"""docs/registry.md: its figures are those of bench/results/, and what it shows runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels_neuron.builder import scaffold
from kernels_neuron.hub.serving import run_server

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "registry.md"


@pytest.fixture(scope="module")
def figures(page_script):
    return page_script("registry")


def test_the_figures_are_those_of_the_results(figures):
    assert PAGE.read_text() == figures.page(PAGE.read_text()), "run python docs/registry.py"


def test_without_results_the_page_says_how_to_make_them(figures, monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    assert figures.figures().count("no run is kept") == 2


def shown(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_every_command_and_example_of_the_page_runs_in_its_order(tmp_path):
    """Against a server of this test instead of the one that `serve` would start and keep running."""
    project = tmp_path / "project"
    project.mkdir()
    scaffold("layernorm", project)
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"me/neuron-layernorm" = 1\n')
    with run_server(project / "registry") as server:
        lines = [line for block in shown("bash") for line in block.splitlines()]
        kept = [line for line in lines if not line.startswith(("pip install", "kernels-neuron registry serve"))]
        assert len(kept) == len(lines) - 2
        script = "\n".join(["set -e", *kept])
        script = script.replace("http://127.0.0.1:8080", server.url).replace("hf_...", server.token)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "KERNELS_"))}
        environment |= {
            "HF_HOME": str(tmp_path / "home"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        run = {"cwd": project, "capture_output": True, "text": True, "check": False}
        done = subprocess.run(["bash", "-c", script], env=environment, **run)
        assert done.returncode == 0, done.stdout + done.stderr
        (line,) = re.findall(r"sign with (ed25519 \S+)", done.stderr)
        (project / "trusted_keys").write_text(f"{line} me/*\n")
        code = "\n".join(shown("python"))
        done = subprocess.run([sys.executable, "-c", code], env=environment | {"HF_ENDPOINT": server.url}, **run)
        assert done.returncode == 0, done.stderr
