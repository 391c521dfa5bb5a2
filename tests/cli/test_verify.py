"""verify, bench and profile as a user calls them, on a project of one scaffolded kernel."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from kernels_neuron.cli.main import run

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def double(x, factor=2.0):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nl.store(y, tile)
    return y
"""
SUMMED = """
import nki
import nki.collectives as ncc
import nki.language as nl


@nki.jit
def summed(x, n=16):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    group = ncc.ReplicaGroup([list(range(n))])
    ncc.all_reduce(srcs=[x], dsts=[y], replica_group=group, op=nl.add)
    return y
"""
ONE_CASE = ["--dtype", "float32", "--arch", "trn2", "--lnc", "1", "--workers", "1"]


@pytest.fixture
def project(tmp_path, monkeypatch, capsys):
    """A folder with one kernel from `new`; its workloads are those of the scaffold."""
    monkeypatch.chdir(tmp_path)
    assert run(["new", "swish"]) == 0
    capsys.readouterr()
    return tmp_path


def break_the_kernel(project):
    reference = project / "nki_src" / "swish" / "reference.py"
    text = reference.read_text()
    assert "return " in text
    reference.write_text(text.replace("return ", "return 1 + "))


def first_workload(project) -> str:
    spec = tomllib.loads((project / "nki_src" / "swish" / "spec.toml").read_text())
    return spec["workload"][0]["name"]


def filters(project) -> list[str]:
    return ["--workload", first_workload(project), *ONE_CASE]


def test_verify_prints_one_row_a_case_and_the_fields_promised(project, capsys):
    assert run(["verify", *filters(project), "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert list(row) == [
        *("kernel", "workload", "dtype", "arch", "lnc", "ok", "error", "tolerance"),
        *("rel_l2", "max_abs", "loose", "instructions"),
    ]
    assert row["ok"] and row["error"] <= 1 == row["tolerance"] and row["instructions"] > 0


def test_verify_exits_1_when_a_kernel_misses_its_reference(project, capsys):
    break_the_kernel(project)
    assert run(["verify", *filters(project), "--json"]) == 1
    [row] = json.loads(capsys.readouterr().out)
    assert not row["ok"] and row["error"] > 1


def test_bench_gives_no_number_for_a_kernel_that_misses_its_reference(project, capsys):
    break_the_kernel(project)
    assert run(["bench", "swish", *ONE_CASE, "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert rows and all(not row["ok"] and row["estimated_us"] is None for row in rows)


def test_bench_against_its_own_rows_moves_nothing_and_exits_0(project, capsys):
    command = ["bench", "swish", *ONE_CASE]
    assert run([*command, "--json"]) == 0
    before = capsys.readouterr().out
    (project / "before.json").write_text(before)
    assert run([*command, "--against", "before.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_bench_against_faster_rows_prints_what_moved_and_exits_1(project, capsys):
    command = ["bench", "swish", *ONE_CASE]
    assert run([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    rows[0]["estimated_us"] *= 0.9
    (project / "before.json").write_text(json.dumps(rows))
    assert run([*command, "--against", "before.json", "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_an_unknown_workload_is_a_wrong_use_that_lists_those_there_are(project, capsys):
    assert run(["verify", "--workload", "nonsense"]) == 2
    assert first_workload(project) in capsys.readouterr().err


def test_profile_runs_anybodys_kernel(tmp_path, capsys):
    (tmp_path / "k.py").write_text(KERNEL)
    assert run(["profile", f"{tmp_path}/k.py:double", "--input", "x=64x32:bfloat16", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"estimated_us", "body_us", "launch_us", "bound_us", "engines", "critical_path", "instructions"} <= set(
        answer
    )
    assert answer["instructions"] == 3
    assert answer["estimated_us"] == pytest.approx(answer["body_us"] + answer["launch_us"])


def test_profile_writes_a_chrome_trace(tmp_path, capsys):
    (tmp_path / "k.py").write_text(KERNEL)
    trace = tmp_path / "trace.json"
    assert run(["profile", f"{tmp_path}/k.py:double", "--input", "x=64x32:float32", "--trace", str(trace)]) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert any(event.get("name") == "tensor_scalar" for event in events)


def test_profile_names_the_line_the_chip_would_refuse(tmp_path, capsys):
    (tmp_path / "k.py").write_text(KERNEL)
    assert run(["profile", f"{tmp_path}/k.py:double", "--input", "x=200x32:float32"]) == 1
    text = capsys.readouterr().err
    assert "error: k.py:10: a sbuf tile has at most 128 partitions, got [200, 32]\n" in text
    assert "\n\nhint: " in text


@pytest.mark.parametrize("bad", ["x=64x:float32", "x=64x32:float33", "z=64x32:float32"])
def test_profile_refuses_an_input_it_cannot_read(tmp_path, capsys, bad):
    (tmp_path / "k.py").write_text(KERNEL)
    assert run(["profile", f"{tmp_path}/k.py:double", "--input", bad, "--json"]) == 2
    assert set(json.loads(capsys.readouterr().out)) == {"error", "hint"}


LONG = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def convolve(x, w):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    taps = nl.load(w)
    for row in range(224 * 224):
        tile = nl.load(x)
        for _ in range(9):
            nisa.tensor_tensor(dst=tile, data1=tile, data2=taps, op=nl.multiply)
        nl.store(y, tile)
    return y
"""


def test_a_time_limit_stops_a_long_kernel_at_the_line_it_was_at_with_a_status_of_its_own(tmp_path, capsys):
    (tmp_path / "k.py").write_text(LONG)
    inputs = ["--input", "x=128x64:float32", "--input", "w=128x64:float32"]
    assert run(["profile", f"{tmp_path}/k.py:convolve", *inputs, "--limit", "1"]) == 124
    assert re.search(r"stopped after 1 s at k.py:\d+, before the kernel was done", capsys.readouterr().err)


def test_profile_says_what_is_estimated_and_what_was_measured(tmp_path, capsys):
    (tmp_path / "k.py").write_text(KERNEL)
    command = ["profile", f"{tmp_path}/k.py:double", "--input", "x=128x512:float32"]
    assert run(command) == 0
    text = capsys.readouterr().out
    assert "estimated" in text.splitlines()[0] and "simulated in" in text and "one launch" in text
    assert run([*command, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["measured_us"] is None and answer["sim_wall_s"] > 0


def test_profile_prints_dma_use_what_would_help_and_what_each_line_waits_for(tmp_path, capsys):
    (tmp_path / "k.py").write_text(KERNEL)
    assert run(["profile", f"{tmp_path}/k.py:double", "--input", "x=128x512:float32"]) == 0
    text = capsys.readouterr().out
    assert "DMA 524,288 bytes in 2 transfers" in text and "of them under 2048" in text
    helps = text.split("what would help most if it were free")[1].split("critical path")[0]
    assert "engine       dma" in helps
    assert "sbuf data of" in text.split("critical path")[1]


def test_profile_writes_a_page(tmp_path, capsys):
    (tmp_path / "k.py").write_text(KERNEL)
    page = tmp_path / "double.html"
    assert run(["profile", f"{tmp_path}/k.py:double", "--input", "x=128x512:float32", "--html", str(page)]) == 0
    assert "<title>double on trn2</title>" in page.read_text()


def test_bench_saves_its_rows_with_commit_date_and_settings_and_compares_with_them(project, capsys):
    command = ["bench", "swish", *ONE_CASE]
    assert run([*command, "--save", "kept.json"]) == 0
    kept = json.loads((project / "kept.json").read_text())
    assert set(kept) == {"commit", "dirty", "date", "versions", "machine", "settings", "lacking", "rows"}
    assert kept["lacking"] == {"trn1": ["swish"]}
    assert kept["settings"] == {"kernels": ["swish"], "dtype": ["float32"], "arch": ["trn2"], "lnc": [1]}
    assert run([*command, "--against", "kept.json", "--json"]) == 0
    capsys.readouterr()
    kept["rows"][0]["estimated_us"] /= 1.02
    (project / "kept.json").write_text(json.dumps(kept))
    assert run([*command, "--against", "kept.json"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "SLOWER" in lines[1] and lines[2].startswith("1 of ")


def test_bench_writes_a_page_with_its_rows_and_the_chips_that_are_missing(project, capsys):
    assert run(["bench", "swish", *ONE_CASE, "--html", "bench.html", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    page = (project / "bench.html").read_text()
    assert f"{len(rows)} of {len(rows)} rows equal their PyTorch reference" in page
    assert all(f"{row['speedup']:.2f}" in page for row in rows)
    assert "trn1 is missing for swish" in page and "Made from" in page


def test_the_validation_writes_a_page(monkeypatch, tmp_path, capsys):
    from kernels_neuron.measure import validation

    monkeypatch.chdir(Path(__file__).parents[2])

    def estimated(folder, measurements, **_):
        return [validation.ValidationRow(each, each.measured_us * 1.01) for each in measurements]

    monkeypatch.setattr(validation, "validate", estimated)
    assert run(["bench", "--suite", "validation", "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "The model against published measurements" in page and "GT-41" in page and "suite validation" in page
    assert "+1.0%" in capsys.readouterr().out


def test_a_chip_that_a_kernel_is_not_made_for_is_refused_by_name(project, capsys):
    for verb in ("bench", "verify"):
        assert run([verb, "swish", "--arch", "trn1"]) == 2
        assert "swish: made for trn2, trn3, not for trn1" in capsys.readouterr().err
    assert run(["verify", "swish", "--arch", "trn1", *filters(project)]) == 0
    assert "trn1: no rows of swish: not made for it" in capsys.readouterr().err


def test_two_cores_of_a_chip_that_has_one_are_refused_by_name(tmp_path, capsys):
    (tmp_path / "k.py").write_text(KERNEL)
    command = ["profile", f"{tmp_path}/k.py:double", "--input", "x=64x32:float32"]
    assert run([*command, "--arch", "trn1", "--lnc", "2"]) == 2
    assert "trn1 has no logical cores of two" in capsys.readouterr().err
    assert run(["bench", "--arch", "trn1", "--lnc", "2"]) == 2
    assert "trn1 has no logical cores of two" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path, capsys):
    (tmp_path / "k.py").write_text(KERNEL)
    for given, option in ((str(tmp_path / "no" / "p.html"), "there is no folder"), (str(tmp_path), "is a folder")):
        assert run(["profile", f"{tmp_path}/k.py:double", "--input", "x=64x32:float32", "--html", given]) == 2
        assert option in capsys.readouterr().err
        assert run(["bench", "--save", given]) == 2
        assert option in capsys.readouterr().err


def test_a_file_without_a_function_names_its_functions(tmp_path, capsys):
    (tmp_path / "k.py").write_text(KERNEL + "\n\ndef _hidden(x): ...\n")
    assert run(["profile", f"{tmp_path}/k.py"]) == 2
    assert f"its functions: {tmp_path}/k.py:double\n" in capsys.readouterr().err
    assert run(["profile", "layernorm"]) == 2
    assert "kernels-neuron bench KERNEL" in capsys.readouterr().err


def test_profile_of_several_ranks_says_where_they_meet(tmp_path, capsys):
    (tmp_path / "k.py").write_text(SUMMED)
    command = ["profile", f"{tmp_path}/k.py:summed", "--input", "x=128x64:float32"]
    assert run([*command, "--ranks", "2", "--arg", "n=2"]) == 0
    out = capsys.readouterr().out
    assert "summed on trn2, 2 ranks" in out and "where programs meet" in out and "rank 1" in out
    assert run([*command, "--ranks", "16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ranks"] == 16 and len(found["meetings"][0]["waited_us"]) == 16
    assert run([*command, "--ranks", "16"]) == 0
    assert "least" in capsys.readouterr().out


def test_profile_of_one_rank_says_how_to_run_several(tmp_path, capsys):
    (tmp_path / "k.py").write_text(SUMMED.replace("[list(range(n))]", "[[0, 1, 2]]"))
    assert run(["profile", f"{tmp_path}/k.py:summed", "--input", "x=128x64:float32"]) == 1
    assert "profile --ranks" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--ranks", "0"], ["--ranks", "65"], ["--ranks", "2", "--choices"], ["--lnc", "3"]])
def test_profile_refuses_numbers_of_ranks_and_cores_that_there_are_not(wrong, tmp_path, capsys):
    (tmp_path / "k.py").write_text(KERNEL)
    assert run(["profile", f"{tmp_path}/k.py:double", "--input", "x=64x32:float32", *wrong]) == 2
    assert wrong[0] in capsys.readouterr().err


def test_bench_model_takes_one_model_and_no_other_filters(capsys):
    assert run(["bench", "--model", "vit-b17"]) == 2
    assert "vit-b16" in capsys.readouterr().err
    assert run(["bench", "--model", "vit-b16", "--suite", "smoke"]) == 2
    assert run(["bench", "--model", "vit-b16", "--arch", "trn2", "--arch", "trn3"]) == 2
    assert "--model takes one arch, got 2" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_a_wrong_use(capsys):
    for verb in ("verify", "bench"):
        assert run([verb, "--runner", "device"]) == 2
        assert "there is no Neuron device" in capsys.readouterr().err
        assert run([verb, "--runner", "vendor"]) == 2
