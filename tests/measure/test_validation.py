"""The validation suite: its file, its rows, and that what is within its bound stays there."""

from pathlib import Path

import pytest

from kernels_neuron.errors import FileProblems
from kernels_neuron.measure.validation import (
    Ladder,
    Measurement,
    ValidationRow,
    misordered,
    read_ladders,
    read_measurements,
    summary,
    validate_one,
)

FOLDER = Path(__file__).parents[2] / "bench" / "validation"
MEASUREMENTS = read_measurements(FOLDER)
# instructions priced or simulated for a row decide how long it takes here
LONG = ("GT-24", "GT-26", "GT-42", "GT-67", "GT-34-2048", "GT-34-3072", "GT-34-4096")
LONG += ("GT-34-5120", "GT-34-6144", "GT-34-7168", "GT-34-8192")


def row(**change):
    given = {"id": "X", "what": "w", "shape": "s", "arch": "trn2", "quantity": "body", "measured_us": 10.0}
    return Measurement(**given | change)


@pytest.mark.parametrize(
    "measurement",
    [
        pytest.param(each, id=each.id, marks=[pytest.mark.slow] if each.id in LONG else [])
        for each in MEASUREMENTS
        if each.within is not None
    ],
)
def test_an_estimate_keeps_its_bound(measurement):
    found = validate_one(FOLDER, measurement)
    if found.problem:
        pytest.skip(found.problem)
    assert found.verdict == "ok", f"{found.error:+.1%} of {measurement.measured_us} us"


def test_rows_without_a_bound_say_why():
    assert all(each.note for each in MEASUREMENTS if each.within is None)


def test_a_verdict_follows_from_error_and_bound():
    bounded, free = row(within=0.05), row()
    assert ValidationRow(bounded, 10.4).verdict == "ok"
    assert ValidationRow(bounded, 9.4).verdict == "MISS"
    assert ValidationRow(free, 20.0).verdict == "reported"
    assert ValidationRow(bounded, problem="no trace").verdict == "skipped"


def test_the_summary_counts_verdicts_and_averages_bounded_errors():
    rows = [ValidationRow(row(within=0.05), 10.4), ValidationRow(row(within=0.05), 9.0), ValidationRow(row(), 50.0)]
    found = summary(rows)
    assert (found.held, found.missed, found.reported, found.skipped) == (1, 1, 1, 0)
    assert found.mean_absolute_error == pytest.approx(0.07)
    assert str(found).startswith("1 of 2 measurements within their bound, mean absolute error 7.0%")


def test_a_trace_that_is_not_there_is_skipped_with_a_reason(monkeypatch):
    monkeypatch.delenv("KERNELS_NEURON_TRN2_TRACES", raising=False)
    found = validate_one(FOLDER, row(quantity="replay", trace="absent.json.gz"))
    assert found.verdict == "skipped" and "absent.json.gz" in found.to_json()["note"]


def ladder_rows(*pairs):
    return [ValidationRow(row(id=str(i), measured_us=float(m)), float(e)) for i, (m, e) in enumerate(pairs)]


def test_steps_of_a_ladder_in_the_wrong_order_are_found_and_ties_are_not():
    ladder = Ladder("l", ("0", "1", "2"), {})
    assert misordered(ladder, ladder_rows((100, 90), (50, 60), (20, 25))) == []
    assert misordered(ladder, ladder_rows((100, 50), (50, 60), (20, 25))) == [("1", "0")]
    assert misordered(ladder, ladder_rows((105, 50), (100, 60), (20, 25))) == []  # 5 % is no step
    assert misordered(ladder, ladder_rows((200, 99.5), (100, 100), (20, 25))) == []  # a tie
    excepted = Ladder("l", ("0", "1", "2"), {("1", "0"): "its compiler left work out"})
    assert misordered(excepted, ladder_rows((100, 50), (50, 60), (20, 25))) == []


def test_a_ladder_names_measurements_and_causes(tmp_path):
    (tmp_path / "measurements.toml").write_text(
        '[[measurement]]\nid = "A"\nwhat = "w"\nshape = "s"\narch = "trn2"\nquantity = "body"\nmeasured_us = 1\n'
        'kernel = "k.py:f"\n[[ladder]]\nname = "l"\nrows = ["A", "B"]\nexcepted = [["A", "B"]]\n'
    )
    with pytest.raises(FileProblems) as error:
        read_ladders(tmp_path)
    assert "'B', which is no measurement" in str(error.value) and "slower row, cause" in str(error.value)


def test_every_exception_of_a_ladder_has_a_cause():
    for ladder in read_ladders(FOLDER):
        assert all(len(cause) > 20 for cause in ladder.excepted.values()), ladder.name


def test_own_traces_need_no_environment(monkeypatch):
    monkeypatch.delenv("KERNELS_NEURON_TRN2_TRACES", raising=False)
    blind = [each for each in MEASUREMENTS if each.quantity == "replay" and each.first_us]
    assert len(blind) == 4
    assert all(validate_one(FOLDER, each).estimated_us for each in blind[:1])


def test_every_problem_of_the_file_is_named(tmp_path):
    (tmp_path / "measurements.toml").write_text(
        '[[measurement]]\nid = "A"\nwhat = "w"\nshape = "s"\narch = "trn9"\nquantity = "speed"\nmeasured_us = 1\n'
        'kernel = "k.py:f"\n'
        '[[measurement]]\nid = "A"\nwhat = "w"\nshape = "s"\narch = "trn2"\nquantity = "body"\nwithin = "few"\n'
    )
    with pytest.raises(FileProblems) as error:
        read_measurements(tmp_path)
    text = str(error.value)
    for part in ("trn9", "speed", "measured_us: is missing", "within", "needs one of them", "appears twice"):
        assert part in text
