import json

import pytest

from kernels_neuron.builder import scaffold
from kernels_neuron.cli.main import run


@pytest.fixture(autouse=True)
def inside_a_project(tmp_path, monkeypatch):
    scaffold("halve", tmp_path)
    monkeypatch.chdir(tmp_path)


def test_a_good_build_exits_0(capsys):
    assert run(["build"]) == 0
    capsys.readouterr()
    assert run(["check"]) == 0
    assert capsys.readouterr().out == "1 of 1 kernels can be published\n"
    assert run(["check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_problems_are_printed_and_exit_1(capsys, tmp_path):
    assert run(["build"]) == 0
    (tmp_path / "build" / "neuron-halve" / "README.md").unlink()
    capsys.readouterr()
    assert run(["check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "halve  README.md: is missing, and the Hub shows it as the kernel's card",
        "0 of 1 kernels can be published, 1 problem",
    ]
    assert run(["check", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == [
        {"kernel": "halve", "where": "README.md", "text": "is missing, and the Hub shows it as the kernel's card"}
    ]
