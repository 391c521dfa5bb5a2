import json

import pytest

from kernels_neuron.errors import UsageError
from kernels_neuron.measure.against import moves, read_rows
from kernels_neuron.measure.bench import BenchRow


def row(workload="a", **times):
    return BenchRow("gemm", workload, "bfloat16", "trn2", 1, ok=bool(times), **times)


def compared(tmp_path, before, now):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([each.to_json() for each in before]))
    return moves(now, read_rows(path))


def test_only_rows_beyond_one_percent_are_moves(tmp_path):
    before = [row("a", estimated_us=100.0), row("b", estimated_us=100.0), row("c", estimated_us=100.0)]
    now = [row("a", estimated_us=100.9), row("b", estimated_us=101.5), row("c", estimated_us=90.0)]
    found = compared(tmp_path, before, now)
    assert [(move.key[1], move.slower) for move in found] == [("b", True), ("c", False)]


def test_measured_times_may_grow_by_ten_percent(tmp_path):
    before = [row("a", measured_us=100.0), row("b", measured_us=100.0)]
    found = compared(tmp_path, before, [row("a", measured_us=109.0), row("b", measured_us=112.0)])
    assert [move.key[1] for move in found] == ["b"] and found[0].column == "measured_us"


def test_a_row_that_lost_its_time_counts_as_slower(tmp_path):
    (move,) = compared(tmp_path, [row(estimated_us=100.0)], [row()])
    assert move.slower and move.ratio is None


def test_a_new_row_is_no_move(tmp_path):
    assert compared(tmp_path, [], [row(estimated_us=1.0)]) == []


@pytest.mark.parametrize("text", ["{}", "[1]", "not json", '[{"kernel": "gemm"}]'])
def test_a_file_that_is_not_bench_rows_is_refused(tmp_path, text):
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"rows\.json"):
        read_rows(path)
    with pytest.raises(UsageError, match="there is no"):
        read_rows(tmp_path / "none.json")
