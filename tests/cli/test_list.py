import json
import subprocess
import sys

import pytest

from kernels_neuron.builder import scaffold
from kernels_neuron.cli.main import run


@pytest.fixture(autouse=True)
def inside_a_project(tmp_path, monkeypatch):
    scaffold("halve", tmp_path)
    monkeypatch.chdir(tmp_path)


def test_list_prints_a_line_for_each_kernel(capsys):
    assert run(["list"]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.startswith("halve   neuron-halve        1  torch-neuron, torch-cpu  float32, bfloat16, float16  ")


def test_list_answers_in_json(capsys):
    assert run(["list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["kernel"] == "halve"
    assert row["version"] == 1
    assert row["dtypes"] == ["float32", "bfloat16", "float16"]
    assert row["serves"] == ["y = scale * x, element by element"]
    assert row["loose"] == {}


def test_what_is_loose_is_printed(capsys, tmp_path):
    spec = tmp_path / "nki_src" / "halve" / "spec.toml"
    loose = '[tolerance]\nfloat32 = { rtol = 0.1, reason = "sums in bfloat16" }\n[inputs]'
    spec.write_text(spec.read_text().replace("[inputs]", loose))
    assert run(["list"]) == 0
    assert "halve float32 loose: sums in bfloat16" in capsys.readouterr().out


def test_list_imports_no_torch():
    code = "import sys; from kernels_neuron.cli.main import run; run(['list']); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
