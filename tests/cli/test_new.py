import json

import pytest

from kernels_neuron.cli.main import run


@pytest.fixture(autouse=True)
def inside_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_new_prints_the_folder_and_says_what_is_next(capsys, tmp_path):
    assert run(["new", "my_gelu"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{tmp_path / 'nki_src' / 'my_gelu'}\n"
    assert "kernels-neuron verify my_gelu" in printed.err
    assert (tmp_path / "kernel.toml").is_file()


def test_new_answers_in_json(capsys, tmp_path):
    assert run(["new", "my_gelu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"kernel": "my_gelu", "folder": str(tmp_path / "nki_src" / "my_gelu")}


def test_a_wrong_name_is_a_wrong_use_and_leaves_nothing(capsys, tmp_path):
    assert run(["new", "My-Gelu"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: a kernel name is lower-case letters, digits and underscores, got 'My-Gelu'",
        "",
        "hint: `kernels-neuron new my_gelu`",
    ]
    assert list(tmp_path.iterdir()) == []
