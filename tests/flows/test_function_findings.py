"""lint --run FILE.py:FUNC: the simulator's findings on any file's kernel, at the line of its source."""

from pathlib import Path

import pytest

from kernels_neuron.errors import UsageError
from kernels_neuron.flows.function_findings import function_findings, function_of
from kernels_neuron.lint import Selection

KERNEL = """import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def halves(x, start=0, rows=64):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile[start:], data=tile[start:], op0=nl.multiply, operand0=0.5)
    nisa.dma_copy(dst=y[:rows], src=tile[:rows])
    return y


@nki.jit
def fails(x):
    return {}["x"]
"""
X = ["x=64x4"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    return path


@pytest.mark.parametrize("text", ["a/kernel.py:halves", "a/kernel.py::halves"])
def test_a_function_is_named_as_profile_and_pytest_do(text):
    assert function_of(Path(text)) == (Path("a/kernel.py"), "halves")


def test_other_paths_name_no_function():
    assert [function_of(Path(text)) for text in ("kernel.py", "nki_src", "kernel.py:", "a:b")] == [None] * 4


def test_a_kernel_that_keeps_the_rules_has_no_findings(file):
    assert function_findings(file, "halves", X) == []


def test_what_ends_the_run_is_a_finding_at_its_line(file):
    (found,) = function_findings(file, "halves", X, ["start=16"])
    assert (found.path, found.line, found.rule, found.severity) == ("kernel.py", 11, "start-partition", "error")
    assert found.message.startswith("tensor_scalar takes dst of 48 partitions") and "dma_copy" in found.hint
    assert function_findings(file, "halves", X, ["start=16"], selection=Selection(ignore=["start-partition"])) == []


def test_an_output_left_unwritten_is_a_finding(file):
    (found,) = function_findings(file, "halves", X, ["rows=32"])
    assert found.rule == "unwritten-output" and "512 of 1024 bytes never written" in found.message


def test_programs_that_all_do_the_same_work_are_a_warning(file):
    (found,) = function_findings(file, "halves", X, lnc=2)
    assert (found.rule, found.severity, found.line) == ("race", "warning", 12)


def test_an_exception_of_the_kernels_own_is_a_finding_at_its_line(file):
    (found,) = function_findings(file, "fails", X)
    assert (found.rule, found.line, found.message) == ("python", 18, "KeyError: 'x'")


def test_the_chip_and_the_version_are_those_of_the_run(file):
    assert [found.rule for found in function_findings(file, "halves", X, arch="trn1", lnc=2)] == ["lnc"]
    with pytest.raises(UsageError, match=r"runs NKI 0\.3 and later, got 0\.2"):
        function_findings(file, "halves", X, nki="0.2")
