import json

import pytest

from kernels_neuron.builder import scaffold
from kernels_neuron.cli.main import run


@pytest.fixture(autouse=True)
def inside_a_project(tmp_path, monkeypatch):
    scaffold("halve", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_build_prints_a_line_for_each_repo(capsys, tmp_path):
    assert run(["build"]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["kernel", "repo", "variants", "digest", "root"]
    assert line.startswith("halve   neuron-halve  torch-neuron, torch-cpu  ")
    assert line.endswith(str(tmp_path / "build" / "neuron-halve"))


def test_build_answers_in_json(capsys, tmp_path):
    assert run(["build", "halve", "--out", "elsewhere", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["kernel"] == "halve"
    assert row["repo"] == "neuron-halve"
    assert row["variants"]["torch-cpu"] == str(tmp_path / "elsewhere" / "neuron-halve" / "build" / "torch-cpu")
    assert len(row["digest"]) == 64


def test_a_wrong_name_is_a_wrong_use(capsys):
    assert run(["build", "halv", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"] == "unknown kernel 'halv', did you mean 'halve'"


def test_wrong_sources_exit_1_with_all_problems(capsys, tmp_path):
    ops = tmp_path / "nki_src" / "halve" / "ops.py"
    ops.write_text(ops.read_text() + "\nimport numpy\nimport scipy\n")
    assert run(["build"]) == 1
    error = capsys.readouterr().err
    assert "has 2 problems:" in error
    assert "import numpy" in error
    assert "import scipy" in error
