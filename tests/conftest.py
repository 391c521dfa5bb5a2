"""The scripts that write pages of docs/, and a kernel with a tile parameter, as docs/tuning.md makes it."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "tuning.md"


@pytest.fixture(scope="session")
def page_script():
    """docs/NAME.py as a module, for its name."""

    def load(name):
        spec = importlib.util.spec_from_file_location(f"{name}_page", DOCS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def tunable(tmp_path, monkeypatch, capsys):
    """The folder of swish in a project of its own, which is the current folder."""
    from kernels_neuron.cli.main import run

    blocks = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    declared, table, kernel = (text for language, text in blocks if language in ("toml", "python"))
    monkeypatch.chdir(tmp_path)
    assert run(["new", "swish"]) == 0
    capsys.readouterr()
    folder = tmp_path / "nki_src" / "swish"
    spec = folder / "spec.toml"
    spec.write_text(spec.read_text().replace("[inputs]", f"{declared}\n[inputs]"))
    (folder / "tuned.py").write_text(table)
    (folder / "kernel.py").write_text(kernel)
    return folder
