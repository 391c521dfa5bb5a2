"""lint --run: the simulator's findings, at the line of the source that the variant was built from."""

import pytest

from kernels_neuron.builder import scaffold
from kernels_neuron.errors import UsageError
from kernels_neuron.flows.findings import lint_kernels, run_findings
from kernels_neuron.lint import Selection
from kernels_neuron.manifest import Manifest

SPEC = """summary = "y = scale * x"
entry   = "halve"
source  = "test"
dtypes  = ["float32"]
kind    = "elementwise"
flops   = "N * H"

[inputs]
x = { shape = ["N", "H"], dtype = "$dtype" }

[[workload]]
name = "ragged"
N    = 130
H    = 77
args = { scale = 0.5 }

[[workload]]
name = "small"
N    = 4
H    = 8
args = { scale = 0.5 }
"""


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A scaffolded kernel with two workloads; a function that replaces a piece of its source and gives the line."""
    scaffold("halve", tmp_path)
    folder = tmp_path / "nki_src" / "halve"
    (folder / "spec.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)

    def edit(old, new):
        path = folder / "kernel.py"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return next(i for i, line in enumerate(path.read_text().splitlines(), 1) if new.splitlines()[0].strip() in line)

    return edit


def run(path="nki_src/halve", **options):
    return run_findings([path], arch="trn2", workers=1, **options)


def test_a_kernel_that_keeps_the_rules_has_no_findings_and_every_case_ran(kernel):
    told, done = [], []
    assert run(".", expect=told.append, on_case=lambda: done.append(1)) == []
    assert told == [4] and len(done) == 4  # two workloads, on one core and on two


def test_a_broken_rule_is_one_finding_at_its_line_with_the_simulators_name(kernel):
    line = kernel("out = nl.ndarray((n, h),", "out = nl.ndarray((n, h + 1),") + 1
    (found,) = run()
    assert (found.path, found.line, found.rule, found.severity) == (
        "nki_src/halve/kernel.py",
        line,
        "operand-extent",
        "error",
    )
    assert "in halve/ragged/float32/trn2/lnc1 and 3 others" in found.message


def test_a_result_that_is_not_wholly_written_is_found_where_it_is_allocated(kernel):
    kernel("src=out)\n", "src=out)\n            break\n")
    line = kernel("y = nl.ndarray((rows, width)", "y = nl.ndarray((rows + 1, width)")
    (found,) = run()
    assert found.rule == "unwritten-output" and found.line == line


def test_programs_that_write_the_same_rows_are_a_warning(kernel):
    kernel("    part = -(-rows // nl.num_programs())", "    return 0, rows")
    (found,) = run()
    assert found.rule == "race" and found.severity == "warning" and found.path == "nki_src/halve/kernel.py"


def test_an_exception_of_the_kernels_own_is_a_finding_at_its_line(kernel):
    line = kernel("    pmax = nl.tile_size.pmax", "    pmax = [][0]")
    (found,) = run()
    assert found.rule == "python" and found.line == line and "IndexError" in found.message


def test_rules_can_be_left_out(kernel):
    kernel("out = nl.ndarray((n, h),", "out = nl.ndarray((n, h + 1),")
    assert run(selection=Selection(ignore=["operand-extent"])) == []


def test_a_path_without_a_kernel_folder_is_refused(kernel, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(UsageError, match="holds no kernel folder"):
        run("elsewhere")
    with pytest.raises(UsageError, match="there is no missing"):
        run("missing")


def test_a_version_that_the_simulator_does_not_run_is_refused(kernel):
    with pytest.raises(UsageError, match=r"runs NKI 0\.3 and later, got beta"):
        run(nki="beta")


def test_the_static_findings_of_kernels_are_for_the_versions_of_their_spec(kernel, tmp_path):
    manifest = Manifest.read(tmp_path / "kernel.toml")
    assert lint_kernels(manifest, ["halve"]) == []
    kernel("    pmax = nl.tile_size.pmax", "    pmax = nl.tile_size.pmax\n    if x is y: pass\n    i = nl.arange(4)")
    assert [each.rule for each in lint_kernels(manifest, ["halve"])] == ["NKI103"]
    (tmp_path / "nki_src" / "halve" / "spec.toml").write_text('nki = ["0.6", "0.7"]\n' + SPEC)
    assert [each.rule for each in lint_kernels(manifest, ["halve"])] == ["NKI201", "NKI103"]
