"""The parts of the conformance harness that need no clone: choosing cases, judging distances, outcomes, the page."""

import importlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

cases, commits, measured, neuron_dtypes, outcome, ranks, runs, summary, unpassable = (
    importlib.import_module(name)
    for name in ("cases", "commits", "measured", "neuron_dtypes", "outcome", "ranks", "runs", "summary", "unpassable")
)
MANY = [
    f"test/a/test_{kernel}.py::T::test[{i}]" for kernel, n in [("big", 90), ("mid", 9), ("small", 1)] for i in range(n)
]


# ---- choosing


def test_a_case_is_counted_under_its_test_file():
    assert cases.kernel_of("test/integration/core/test_rope_hf.py::TestX::test_y[a/b::c]") == "rope_hf"


def test_a_sample_is_stratified_complete_and_the_same_for_the_same_seed():
    chosen = cases.sample(MANY, 20, 0)
    counts = {kernel: sum(cases.kernel_of(case) == kernel for case in chosen) for kernel in ("big", "mid", "small")}
    assert counts == {"big": 18, "mid": 1, "small": 1}
    assert chosen == cases.sample(MANY, 20, 0) != cases.sample(MANY, 20, 1)
    assert cases.sample(MANY, 1000, 0) == MANY


def test_shards_cover_every_case_once():
    shards = [cases.shard(MANY, i, 3) for i in (1, 2, 3)]
    assert sorted(case for shard in shards for case in shard) == sorted(MANY)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    with pytest.raises(ValueError, match="4/3"):
        cases.shard(MANY, 4, 3)


def test_rows_are_read_back_and_a_line_cut_short_is_not(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": "a", "ok": false}\n{"id": "a", "ok": true}\n{"id": "b", "o')
    assert cases.read_rows(file) == {"a": {"id": "a", "ok": True}}
    assert cases.read_rows(tmp_path / "none") == {}


def test_only_cases_without_a_row_or_of_the_asked_class_are_left():
    done = {
        "a": {"ok": True, "error": None},
        "b": {"ok": False, "error": "race"},
        "c": {"ok": False, "error": "timeout"},
    }
    assert cases.left_to_do("abcd", done) == ["d"]
    assert cases.left_to_do("abcd", done, again="race") == ["b", "d"]
    assert cases.left_to_do("abcd", done, again="all") == ["b", "c", "d"]


def test_kernels_that_were_cheap_go_first_and_unknown_ones_last():
    rows = [{"kernel": "big", "cpu_s": 1.0}, {"kernel": "big", "cpu_s": 90.0}, {"kernel": "big", "cpu_s": 2.0}]
    rows += [{"kernel": "mid", "cpu_s": 9.0}]
    ordered = [cases.kernel_of(case) for case in cases.cheapest_first(MANY[::-1], rows)]
    assert ordered == ["big"] * 90 + ["mid"] * 9 + ["small"]


def test_a_file_draws_alike_whatever_was_collected_before_it():
    plugin = importlib.import_module("suite").Suite(Path("clone"), lambda suite: None)
    file = pytest.Module.__new__(pytest.Module)
    states = random.getstate(), np.random.get_state()
    try:
        draws = []
        for earlier in (3, 5):
            [random.random() for _ in range(earlier)]
            plugin.pytest_collectstart(file)
            draws.append((random.random(), np.random.random()))
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    assert draws[0] == draws[1]


# ---- distances


def test_the_vendor_scales_by_the_largest_value_and_the_element_rule_does_not():
    found = measured.distances([100.0, 1.5], [100.0, 1.0], rtol=0.01, atol=0.0)
    assert found == {"vendor": 0.5, "element": 50.0, "beyond": 0.5}


def test_equal_infinities_agree_and_a_lone_nan_is_as_far_as_it_gets():
    assert measured.distances([np.inf, 0.0], [np.inf, 0.0], 0.01, 0.0) == {"vendor": 0.0, "element": 0.0, "beyond": 0.0}
    assert measured.distances([np.nan, 1.0], [0.0, 1.0], 0.01, 0.0)["vendor"] == 1e30
    assert measured.distances([1.0], [1.0, 2.0], 0.01, 0.0)["beyond"] == 1.0


def test_recording_leaves_the_comparison_alone():
    seen = []
    compare = measured.recording(lambda a, b, rtol, atol, verbose=0: (rtol, atol, verbose), seen.append)
    assert compare([1.0], [1.0], 0.5, atol=0.25, verbose=3) == (0.5, 0.25, 3)
    assert seen == [{"rtol": 0.5, "atol": 0.25, "vendor": 0.0, "element": 0.0, "beyond": 0.0}]


# ---- outcomes


def test_a_case_runs_in_a_process_of_its_own():
    def work(result, note):
        result.ok, result.message = True, str(os.getpid())

    found = outcome.in_own_process("x.py::t", "x", work, 30)
    assert found.ok and found.message != str(os.getpid())
    row = json.loads(found.row(ours="abc", theirs="def"))
    assert (row["kernel"], row["ours"], row["theirs"]) == ("x", "abc", "def")


def test_a_case_that_hangs_is_stopped_and_one_that_dies_is_told_apart():
    def spin(result, note):
        result.stage, result.input_bytes = "simulate", 64
        note(result)
        while True:
            pass

    found = outcome.in_own_process("x", "x", spin, 1)
    assert (found.error, found.stage, found.input_bytes) == ("timeout", "simulate", 64)
    assert outcome.in_own_process("x", "x", lambda result, note: time.sleep(60), 0.05).error == "timeout"
    assert outcome.in_own_process("x", "x", lambda result, note: os._exit(3), 30).error == "crashed"


def test_a_broken_rule_is_named():
    from kernels_neuron.errors import KernelError

    found = outcome.Outcome("x", "x")
    found.blame(KernelError("no", rule="partition-limit"), "simulate")
    assert (found.error, found.stage) == ("partition-limit", "simulate")


def test_a_lack_of_memory_is_told_whoever_reports_it():
    assert outcome.kind_of("_ArrayMemoryError", "") == "memory"
    assert outcome.kind_of("ValidationException", "Unable to allocate 2.68 GiB for an array") == "memory"
    assert outcome.kind_of("RuntimeError", "DefaultCPUAllocator: can't allocate memory: ...") == "memory"
    assert outcome.kind_of("RuntimeError", "The size of tensor a must match") == "RuntimeError"


def test_a_case_may_have_only_so_much_memory():
    def greedy(result, note):
        try:
            np.ones(1 << 29)
        except MemoryError as error:
            result.blame(error, "inputs")

    assert outcome.in_own_process("x", "x", greedy, 30, memory_bytes=2 << 30).error == "memory"


# ---- dtypes


@pytest.mark.parametrize("name", ["float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4"])
def test_packed_types_keep_values_they_can_hold(name):
    values = np.array([[1.0, -2.0, 0.5, 4.0, 0.0, 6.0, -0.5, 1.5]], np.float32)
    packed = neuron_dtypes.static_cast(values, name)
    assert packed.shape == (1, 2) and neuron_dtypes.is_float_type(packed.dtype)
    np.testing.assert_array_equal(neuron_dtypes.static_cast(packed, np.float32), values)


def test_a_cast_rounds_to_nearest_even():
    assert neuron_dtypes.static_cast([1 + 2.0**-8], "bfloat16") == ml_dtypes.bfloat16(1.0)
    assert neuron_dtypes.sizeinbytes("float8_e4m3") == 1
    assert not neuron_dtypes.is_float_type(np.int32)


def test_the_arguments_of_a_rank_come_in_the_order_of_the_kernel():
    def kernel(a, b=2, *, c=3):
        pass

    assert ranks.positional(kernel, {"a": 1}) == (1, 2)
    assert ranks.positional(lambda a, b: None, {"b": 5, "a": 4}) == (4, 5)
    with pytest.raises(TypeError, match="missing"):
        ranks.positional(kernel, {"b": 5})


# ---- commits


def test_a_commit_is_marked_when_the_code_differs_from_it(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("1")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *arguments], check=True)
    clean = commits.commit(tmp_path, "code")
    (tmp_path / "elsewhere").write_text("2")
    assert len(clean) == 12 and commits.commit(tmp_path, "code") == clean
    (tmp_path / "code" / "a.py").write_text("2")
    assert commits.commit(tmp_path, "code") == clean + "+"
    assert commits.commit(tmp_path) == clean


# ---- cases that pass nowhere


def test_the_columns_of_a_norm_over_heads_are_counted_as_the_kernel_tiles_them():
    config = SimpleNamespace(batch=64, S_tkg=1, q_heads=16, qk_norm_pre_rope=True, qk_norm_post_rope=False)
    assert unpassable.moving_columns(config) == 1024
    config.batch = 512
    assert unpassable.moving_columns(config) == 128 * 16
    config.qk_norm_pre_rope = False
    assert unpassable.moving_columns(config) == 0


# ---- the page


def test_the_page_counts_per_kernel_and_explains_each_failing_class():
    rows = [
        {"id": "1", "kernel": "rope", "ok": True, "error": None, "wall_s": 1, "cpu_s": 1, "instructions": 1200,
         "errors": [{"vendor": 0.25, "element": 40.0}], "ours": "aaa"},
        {"id": "2", "kernel": "rope", "ok": False, "error": "timeout", "wall_s": 120, "cpu_s": 120,
         "message": "stopped after 120 s", "ours": "bbb+", "stage": "simulate", "input_bytes": 3_000_000},
        {"id": "4", "kernel": "topk", "ok": False, "error": "timeout", "wall_s": 20, "cpu_s": 20,
         "message": "stopped after 20 s", "ours": "aaa"},
        {"id": "3", "kernel": "topk", "ok": False, "error": "skipped", "wall_s": 0, "cpu_s": 0, "ours": "bbb+"},
    ]  # fmt: skip
    dates = {"aaa": "2026-01-02T10:00:00+00:00", "bbb+": "2026-01-01T10:00:00+00:00"}
    facts = {"theirs": "ccc", "date": "2026-01-03", "results": "r.jsonl", "seed": 0, "dates": dates, "one_go": "So."}
    text = summary.page(rows, {"rope": 58, "topk": 94}, ["1", "3"], facts, {"2": "moving-limit", "9": "row-scales"})
    assert "Sample of 2, stratified by kernel, seed 0:\n  **1 of 1 cases pass" in text
    assert "0 more were stopped early" in text and "(`--again timeout` runs them): topk 1." in text
    assert "**1 of 2 cases pass (50.0 %, 95 % interval 9.5 to 90.5 %)**,\n  of 152" in text
    assert "| rope | 58 | 2 | 1 | 50 % | timeout 1 | 0.25 | 40 | 1,200 | 60.5 | 120 |" in text
    explained = "stopped after the limit of time a case; e.g. `stopped after 120 s`"
    assert f"| timeout | 1 | rope 1 | simulate 1 | 3 to 3 MB | {explained} |" in text
    assert text.index("| bbb+ | 2026-01-01 10:00 | 2 | 0 |") < text.index("| aaa | 2026-01-02 10:00 | 2 | 1 |")
    assert "Without those that pass nowhere, 1 of 1 cases pass" in text and "| moving-limit | 1 |" in text
    assert "What can pass at all: 149 of 151, 98.7 % of the cases that do not skip" in text
    assert "None." in summary.page(rows[:1], {}, [], facts, {})


def test_a_sample_in_one_go_is_told_from_one_that_was_added_up(tmp_path):
    results = tmp_path / "rows.jsonl"
    assert "added up" in runs.in_one_go(runs.read_runs(results), 400, 0)
    run = {"date": "2026-01-01", "cases": 200, "wall_s": 1200, "sample": 400, "seed": 0, "again": None, "memory": 11.0}
    shards = [{**run, "shard": "1/2", "ours": "a"}, {**run, "shard": "2/2", "ours": "a", "wall_s": 1941}]
    others = [{**run, "ours": "b"}, {**run, "again": "memory", "ours": "a"}, {**run, "seed": 1, "ours": "a"}]
    for some in (others, shards[:1], shards[1:] + others):
        assert "added up" in runs.in_one_go(some, 400, 0)
    runs.runs_of(results).write_text("".join(json.dumps(each) + "\n" for each in shards + others))
    assert runs.in_one_go(runs.read_runs(results), 400, 0) == (
        "In one go, in 2 processes side by side with 11 GiB each, the sample took 32 minutes (2026-01-01, commit a)."
    )


@pytest.mark.parametrize("script", ["run", "summary", "unpassable"])
def test_a_folder_that_is_no_clone_is_one_clear_error(script, tmp_path):
    command = [sys.executable, f"bench/conformance/{script}.py", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 2 and "is no clone of aws-neuron/nki-library" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_time_of_a_case_is_told_apart():
    rows = [{"cpu_s": 10.0, "sim_cpu_s": 2.0, "inputs_cpu_s": 5.0}, {"cpu_s": 90.0}]
    assert summary.where_time_goes(rows).startswith("50 % in the library's generators of inputs, 20 % in the simulator")


def test_the_interval_is_wilsons():
    # Agresti and Coull 1998: 0 of 10 gives [0, 0.278]
    low, high = summary.wilson(0, 10)
    assert abs(low) < 1e-12 and abs(high - 0.2775) < 1e-3
    assert summary.wilson(390, 400)[0] > 0.95
