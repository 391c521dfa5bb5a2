"""[tune] of spec.toml, and the table of tiles that ships."""

import ast
import subprocess
import sys

import pytest

from kernels_neuron.errors import FileProblems
from kernels_neuron.spec import Spec
from kernels_neuron.tables import Table
from kernels_neuron.tiles import Row, Tune, merged, read_rows, read_tune, render

TUNE = Tune({"tile_m": (128, 64), "tile_n": (512, 256)}, {"M": "B * M"}, ("tile_m * tile_n <= 32768", "tile_m <= M"))
WIDE = Row("trn2", 1, "bfloat16", {"M": (65, 128)}, {"tile_m": 64})
NARROW = Row("trn2", 1, "bfloat16", {"M": (100, 100)}, {"tile_m": 128, "tile_n": 256})


def problems_of(data):
    problems = []
    read_tune(Table(data, "tune", problems), ["B", "M"])
    return problems


def problems_in(path, text):
    path.write_text(text)
    with pytest.raises(FileProblems) as caught:
        read_rows(path, TUNE)
    return caught.value.problems


def test_a_candidate_is_any_combination_that_the_conditions_allow():
    assert TUNE.candidates({"B": 2, "M": 100}) == [
        {"tile_m": 128, "tile_n": 256},
        {"tile_m": 64, "tile_n": 512},
        {"tile_m": 64, "tile_n": 256},
    ]
    assert all(tiles["tile_m"] == 64 for tiles in TUNE.candidates({"B": 1, "M": 64}))


def test_everything_wrong_in_tune_is_told_at_once():
    data = {
        "tile_m": [64, 64],
        "tile_n": "512",
        "tile_k": [1.5],
        "sizes": {"M": "B * Q", "N": "B /"},
        "where": ["tile_m <= 3 * tile_o", "tile_m"],
    }
    found = "\n".join(problems_of(data))
    for part in (
        "tune.tile_m: has to be a list of different integers to try, got [64, 64]",
        "tune.tile_n: has to be a list",
        "tune.tile_k: has to be a list of different integers",
        "tune.sizes.M: no size is given for Q",
        "tune.sizes.N: 'B /' is not an expression",
        "tune.where[0]: unknown parameter or size 'tile_o', did you mean 'tile_",
        "tune.where[1]: 'tile_m' is no comparison",
    ):
        assert part in found


def test_sizes_and_parameters_are_both_needed():
    assert any("tune.sizes: is missing" in problem for problem in problems_of({"tile_m": [1]}))
    assert any("at least one tile parameter" in problem for problem in problems_of({"sizes": {"M": "M"}}))


def test_a_spec_without_tune_declares_nothing(tunable):
    assert Spec.read(tunable).tune.parameters == {"free": (512, 1024, 2048, 4096, 65536)}
    spec = tunable / "spec.toml"
    text = spec.read_text()
    spec.write_text(text[: text.index("[tune]")] + text[text.index("[inputs]") :])
    assert Spec.read(tunable).tune is None


def test_a_table_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "tuned.py"
    path.write_text(render("gemm", [NARROW, WIDE]))
    assert read_rows(path, TUNE) == [NARROW, WIDE]
    path.write_text(render("gemm", []))
    assert read_rows(path, TUNE) == []


def test_a_table_is_python_3_9_as_ruff_formats_it(tmp_path):
    path = tmp_path / "tuned.py"
    path.write_text(render("patch_embed", [NARROW, WIDE]))
    ast.parse(path.read_text(), feature_version=(3, 9))
    for command in (["check", "--select", "E,W,D"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--line-length", "120", str(path)],
            capture_output=True,
            text=True,
        )
        assert "D212" in done.stdout or done.returncode == 0, done.stdout + done.stderr


def test_narrow_rows_stand_before_wide_ones_and_new_ones_replace_what_served_their_sizes():
    assert merged([WIDE], [(NARROW, {"M": 100})]) == [NARROW, WIDE]
    better = Row("trn2", 1, "bfloat16", {"M": (65, 128)}, {"tile_m": 128})
    assert merged([NARROW, WIDE], [(better, {"M": 100})]) == [better]
    assert merged([NARROW], [(better, {"M": 90})]) == [NARROW, better]


def test_a_table_that_does_not_fit_the_spec_is_refused_row_by_row(tmp_path):
    path = tmp_path / "tuned.py"
    found = problems_in(
        path,
        """TUNED = [
            ("trn2", 1, "bfloat16", {"M": 5}, {"tile_m": 1}),
            ("trn2", 1, "bfloat16", {"L": (1, 2)}, {"tile_q": 1}),
        ]""",
    )
    assert found[0].startswith("row 0: has to be (chip, cores, dtype")
    assert found[1:] == [
        "row 0: unknown tile parameter 'tile_q', did you mean 'tile_n'",
        "row 0: unknown size 'L', there is M",
    ] or found[1:] == [
        "row 1: unknown tile parameter 'tile_q', did you mean 'tile_n'",
        "row 1: unknown size 'L', there is M",
    ]
    assert problems_in(path, "TUNED = [open('x')]")[0].startswith("TUNED: not a literal")
    assert problems_in(path, "ROWS = []") == ["TUNED: is missing, and has to be a list"]
