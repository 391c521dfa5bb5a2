"""Paths, files that cannot be read, which rules are looked at, and comments that silence one."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernels_neuron.errors import UsageError
from kernels_neuron.lint import Selection, Target, lint

ROOT = Path(__file__).parents[2]
GONE = "@nki.jit\ndef kernel(x):\n    i = nl.arange(128){comment}\n"


def rules(findings):
    return [each.rule for each in findings]


def test_our_kernels_have_no_error_and_no_warning():
    assert [str(each) for each in lint([ROOT / "nki_src"]) if each.severity != "note"] == []


@pytest.mark.parametrize("arch", ["trn2", "trn3"])
def test_our_kernels_have_no_error_on_their_chips(arch):
    assert [str(each) for each in lint([ROOT / "nki_src"], Target.of("0.7", arch)) if each.severity == "error"] == []


def test_a_missing_path_is_one_clear_error():
    with pytest.raises(UsageError, match=r"there is no no/such\.py"):
        lint(["no/such.py"])


@pytest.mark.parametrize(
    "data",
    [b"def f(:\n", b"x = '\n", b"\xff\xfe\x00", b"x = 1\x00", b"# coding: no-such\n", b"  x = 1\n y = 2\n", b"("],
    ids=["syntax", "string", "bytes", "null", "coding", "indent", "paren"],
)
def test_a_file_that_is_not_python_is_one_finding(tmp_path, data):
    (tmp_path / "broken.py").write_bytes(data)
    (found,) = lint([tmp_path])
    assert found.rule == "NKI001" and found.severity == "error" and "broken.py" in found.path


def test_a_file_that_nests_too_deep_is_one_finding(tmp_path):
    (tmp_path / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)
    assert rules(lint([tmp_path])) == ["NKI001"]


def test_an_empty_file_and_an_empty_folder_have_no_findings(tmp_path):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "inside").mkdir()
    assert lint([tmp_path]) == [] and lint([tmp_path / "inside"]) == []


def test_folders_are_searched_and_hidden_ones_left_out(tmp_path):
    for folder in ("a", ".hidden", "a/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "k.py").write_text("import nki.language as nl\nnl.arange(1)\n")
    found = lint([tmp_path, tmp_path / "a" / "k.py"])
    assert rules(found) == ["NKI103"] and found[0].line == 2


def test_the_linted_file_is_not_imported(tmp_path):
    marker = tmp_path / "ran"
    (tmp_path / "k.py").write_text(f"open({str(marker)!r}, 'w')\nimport nki.language as nl\nnl.arange(1)\n")
    assert rules(lint([tmp_path])) == ["NKI103"] and not marker.exists()


def test_lint_imports_no_torch():
    code = "import sys; from kernels_neuron.lint import lint; lint(['nki_src']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_rules_are_selected_and_ignored_by_id_by_start_and_by_the_simulators_name(lint_text):
    text = GONE.format(comment="") + "    t = nl.ndarray((256, 4), nl.float32, buffer=nl.sbuf)\n"
    assert set(rules(lint_text(text))) == {"NKI103", "NKI309", "partition-limit"}
    assert rules(lint_text(text, select=["NKI1"])) == ["NKI103"]
    assert rules(lint_text(text, select=["partition-limit"])) == ["partition-limit"]
    assert rules(lint_text(text, ignore=["NKI", "partition-limit"])) == []


def test_a_rule_that_does_not_exist_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="start-partition"):
        Selection(select=["start-partitions"])


@pytest.mark.parametrize("version", ["0.8", "1", "zero"])
def test_a_version_that_does_not_exist_is_refused(version):
    with pytest.raises(UsageError, match="NKI version"):
        Target.of(version)


OLD = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n"


@pytest.mark.parametrize(
    ("line", "rule", "instead"),
    [
        ("", "NKI108", "import nki"),
        ("nki.simulate_kernel(kernel, x)", "NKI103", "nki.simulate"),
        ("for i in nl.affine_range(4, precise_schedule=True): pass", "NKI105", "leave it out"),
        ("t = nl.zeros((nl.par_dim(128), 4), dtype=nl.float32)", "NKI103", "partition axis"),
        ("t = nl.load(x, mask=x)", "NKI105", "shorter slices"),
        ("i = nl.mgrid[0:128, 0:4]", "NKI103", "nl.ds"),
        ("t = nl.zeros((128, 4), nl.float32, buffer='sbuf')", "NKI111", "nl.sbuf"),
    ],
)
def test_a_form_that_a_version_retired_is_found_with_its_replacement_and_clean_under_the_old_one(
    lint_text, line, rule, instead
):
    found = [each for each in lint_text(line, header=OLD) if each.rule == rule]
    assert instead in found[0].hint and found[0].severity == "error"
    assert lint_text(line, nki="beta", header=OLD) == []


def test_a_comment_silences_its_line_or_the_next_one(lint_text):
    reason = "  # lint: ignore[NKI103] kept for the Beta"
    assert rules(lint_text(GONE.format(comment=reason))) == []
    above = GONE.format(comment="").replace("    i =", f"  {reason}\n    i =")
    assert rules(lint_text(above)) == []
    assert rules(lint_text(GONE.format(comment="  # lint: ignore[NKI104] another"))) == ["NKI103"]


def test_a_comment_without_a_reason_silences_nothing_and_is_a_finding(lint_text):
    assert rules(lint_text(GONE.format(comment="  # lint: ignore[NKI103]"))) == ["NKI103", "NKI002"]


def test_a_comment_inside_a_string_silences_nothing(lint_text):
    text = GONE.format(comment="; s = '# lint: ignore[NKI103] no comment'")
    assert rules(lint_text(text)) == ["NKI103"]


def test_findings_print_as_path_line_column_rule(lint_text):
    (found,) = lint_text(GONE.format(comment=""))
    assert str(found).endswith("kernel.py:8:9: NKI103 nl.arange is gone since NKI 0.1")
    assert found.hint == "use slices or nl.ds"
