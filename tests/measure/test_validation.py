"""The validation suite: its file, its rows, and that what is within its bound stays there."""

from pathlib import Path

import pytest

from kernels_neuron.errors import FileProblems
from kernels_neuron.measure.validation import (
    Measurement,
    ValidationRow,
    is_validation,
    read_measurements,
    summary,
    validate_one,
)

FOLDER = Path(__file__).parents[2] / "bench" / "validation"
MEASUREMENTS = read_measurements(FOLDER) if is_validation(FOLDER) else []
# instructions priced or simulated for a row decide how long it takes here
LONG = ("GT-24", "GT-26", "GT-42", "GT-67", "GT-34-2048", "GT-34-3072", "GT-34-4096")
LONG += ("GT-34-5120", "GT-34-6144", "GT-34-7168", "GT-34-8192")

pytestmark = pytest.mark.skipif(not MEASUREMENTS, reason="bench/validation is not there")


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
