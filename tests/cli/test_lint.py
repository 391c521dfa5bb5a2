import json

import pytest

from kernels_neuron.cli.main import run
from kernels_neuron.lint import RULES

BAD = "import nki.language as nl\n\ni = nl.arange(128)\n"
WARNED = "import nki.language as nl\n\nfor i in nl.affine_range(4):\n    pass\n"


@pytest.fixture(autouse=True)
def kernel(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.py").write_text(BAD)
    (tmp_path / "old.py").write_text(WARNED)


def test_an_error_is_printed_with_its_place_and_hint_and_exits_1(capsys):
    assert run(["lint", "kernel.py"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "kernel.py:3:5: NKI103 nl.arange is gone since NKI 0.1",
        "    hint: use slices or nl.ds",
        "1 error, 0 warnings, 0 notes",
    ]


def test_a_warning_exits_0(capsys):
    assert run(["lint", "old.py"]) == 0
    assert capsys.readouterr().out.endswith("0 errors, 1 warning, 0 notes\n")


def test_the_version_decides(capsys):
    assert run(["lint", ".", "--nki", "beta"]) == 0
    assert capsys.readouterr().out == "0 errors, 0 warnings, 0 notes\n"


def test_json_is_a_list_of_findings(capsys):
    assert run(["lint", "kernel.py", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found == {
        "path": "kernel.py",
        "line": 3,
        "column": 5,
        "rule": "NKI103",
        "severity": "error",
        "message": "nl.arange is gone since NKI 0.1",
        "hint": "use slices or nl.ds",
    }


def test_sarif_is_one_log(capsys):
    assert run(["lint", ".", "--sarif"]) == 1
    log = json.loads(capsys.readouterr().out)
    assert [each["ruleId"] for each in log["runs"][0]["results"]] == ["NKI103", "NKI104"]


def test_rules_are_selected_and_ignored(capsys):
    assert run(["lint", ".", "--ignore", "NKI103"]) == 0
    assert run(["lint", ".", "--select", "NKI104"]) == 0
    assert capsys.readouterr().out.count("NKI104") == 2


def test_the_table_of_rules_names_each(capsys):
    assert run(["lint", "--rules"]) == 0
    out = capsys.readouterr().out
    assert all(rule in out for rule in RULES) and "start-partition" in out
    assert run(["lint", "--rules", "--json"]) == 0
    assert {each["id"] for each in json.loads(capsys.readouterr().out)["rules"]} >= set(RULES)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "takes files or folders"),
        (["no.py"], "there is no no.py"),
        ([".", "--nki", "0.9"], "0.9"),
        ([".", "--arch", "trn9"], "trn9"),
        ([".", "--select", "NKI999"], "NKI999"),
        ([".", "--json", "--sarif"], "stdout"),
    ],
)
def test_wrong_use_exits_2_with_one_error(capsys, words, says):
    assert run(["lint", *words]) == 2
    printed = capsys.readouterr()
    assert says in printed.out + printed.err


RUNS = """import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def doubled(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=y, src=tile)
    return y
"""


def test_one_function_of_a_file_is_run(capsys, tmp_path):
    (tmp_path / "runs.py").write_text(RUNS)
    assert run(["lint", "--run", "runs.py:doubled", "--input", "x=8x4"]) == 0
    assert run(["lint", "--run", "runs.py::doubled", "--input", "x=200x4"]) == 1
    found = capsys.readouterr().out.splitlines()[1:]
    assert found[0] == "runs.py:9:1: partition-limit a sbuf tile has at most 128 partitions, got [200, 4]"


def test_a_function_without_run_is_refused(capsys):
    assert run(["lint", "kernel.py:doubled"]) == 2
    assert "give --run, or the file alone" in capsys.readouterr().err
