"""tune as a user calls it: the commands of docs/tuning.md, and what they print."""

import json

import pytest

from kernels_neuron.cli.main import run

ONE = ["--dtype", "bfloat16", "--arch", "trn2", "--lnc", "1", "--workers", "1"]


def test_tune_prints_a_line_a_case_and_writes_the_table(tunable, capsys):
    assert run(["tune", "swish", *ONE]) == 0
    captured = capsys.readouterr()
    heading, line, *_, last = captured.out.splitlines()
    assert heading.split()[:8] == ["workload", "dtype", "arch", "lnc", "priced", "illegal", "before_us", "after_us"]
    assert line.split()[:6] == ["large", "bfloat16", "trn2", "1", "5", "0"] and "free=" in line
    assert "estimated" in last and "not measured" in last
    assert captured.err == f"wrote {tunable / 'tuned.py'}\n"


def test_tune_prints_one_json_list_and_writes_nothing_on_a_dry_run(tunable, capsys):
    before = (tunable / "tuned.py").read_bytes()
    assert run(["tune", "swish", *ONE, "--dry-run", "--json"]) == 0
    captured = capsys.readouterr()
    [row] = json.loads(captured.out)
    assert row["verdict"] == "faster" and row["before_us"] > row["after_us"] and row["illegal"] == {}
    assert captured.err == "wrote nothing\n" and (tunable / "tuned.py").read_bytes() == before


def test_what_misses_its_reference_exits_with_1_and_says_why(tunable, capsys):
    kernel = tunable / "kernel.py"
    kernel.write_text(kernel.read_text().replace("operand0=scale)", "operand0=scale if free == 512 else 0.0)"))
    assert run(["tune", "swish", *ONE]) == 1
    captured = capsys.readouterr()
    assert "missed" in captured.out and "times what is allowed" in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "0"], "greater than or equal to 1"),
        (["--scheduler", "tcp://127.0.0.1:9", "--workers", "2"], "exclude each other"),
        (["--workload", "lagre"], "did you mean 'large'"),
    ],
)
def test_wrong_options_are_refused(tunable, capsys, words, message):
    assert run(["tune", "swish", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_commands_of_the_page_run(tunable, capsys):
    assert run(["tune", "swish", "--arch", "trn2"]) == 0
    assert run(["verify", "swish", "--arch", "trn2"]) == 0
    assert "cases match their reference" in capsys.readouterr().out
