"""No Python file crashes the linter, and host code that knows nothing of nki has no findings."""

import ast
import random
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_neuron.lint import Target, lint, lint_file

STDLIB = Path(sysconfig.get_path("stdlib"))
HEADER = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\nimport neuronxcc.nki as old\n"
NAMES = ("nl", "nisa", "x", "y", "t", "range", "tile_size", "load", "ndarray", "affine_range", "nc_matmul", "dst")
WORDS = st.sampled_from([*NAMES, "nl.load", "nl.ndarray", "nisa.dma_copy", "nisa.nc_matmul", "nl.psum", "nl.float32",
                         "nl.tile_size.pmax", "x[0:4]", "t[:, 0]", "t > 0", "(4, 4)", "-1", "None", "'a'", "2 ** 70",
                         "*x", "**y", "dst=t", "buffer=nl.psum", "accumulate=True", "mask=t", "lambda: t"])  # fmt: skip
CALLS = st.builds(lambda f, args: f"{f}({', '.join(args)})", WORDS, st.lists(WORDS, max_size=4))
STATEMENTS = st.one_of(
    CALLS,
    st.builds("t = {}".format, CALLS),
    st.builds("t, y = {}".format, CALLS),
    st.builds("t[{}] += {}".format, WORDS, CALLS),
    st.builds("for t in {}: y = {}".format, CALLS, CALLS),
    st.builds("while {}: t = {}".format, CALLS, CALLS),
    st.builds("if {}: t = {}".format, CALLS, CALLS),
    st.builds("with {}: return {}".format, CALLS, WORDS),
    st.builds("def t(x=nl.load): return {}".format, WORDS),
    st.builds("class t(nl.NKIObject): x = {}".format, CALLS),
    st.builds("del {}".format, st.sampled_from(["t", "x[0]", "y.a"])),
    st.builds("global {}".format, st.sampled_from(["z", "nl"])),
)


def is_python(text):
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


@given(st.lists(STATEMENTS, max_size=8), st.sampled_from(["beta", "0.1", "0.3", "0.6", "0.7"]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_kernel_that_parses_can_be_linted(tmp_path, statements, nki):
    lines = [line for line in statements if is_python(f"def f():\n    {line}")]
    path = tmp_path / "kernel.py"
    path.write_text(
        HEADER + "@nki.jit\ndef kernel(x, *y, t=None):\n" + "".join(f"    {line}\n" for line in lines) + "    pass\n"
    )
    found = lint_file(path, Target.of(nki, "trn2"))
    assert all(each.rule != "NKI001" or not is_python(path.read_text()) for each in found)


@given(st.binary(max_size=200))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_can_be_linted(tmp_path, data):
    path = tmp_path / "bytes.py"
    path.write_bytes(data)
    lint_file(path, Target.of("0.3"))


def test_a_sample_of_the_standard_library_has_no_findings():
    files = sorted(STDLIB.glob("*.py"))
    assert lint(random.Random(0).sample(files, 12), Target.of("0.3", "trn2")) == []


@pytest.mark.slow
def test_the_standard_library_has_no_findings_but_in_its_python_2():
    left_out = {"site-packages", "test", "tests", "idle_test"}
    files = [path for path in sorted(STDLIB.rglob("*.py")) if not left_out & set(path.parts)]
    assert len(files) > 500
    found = lint(files, Target.of("0.3", "trn2"))
    assert [str(each) for each in found if each.rule != "NKI001" or "lib2to3" not in each.path] == []
