"""The committed results of the validation suite: complete, in order, and what the documents say."""

import json
from pathlib import Path

import pytest

from kernels_neuron.measure.validation import ValidationRow, misordered, read_ladders, read_measurements, validate_one

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "bench" / "validation"
RESULTS = json.loads((ROOT / "bench" / "results" / "validation.json").read_text())
SENSITIVITY = json.loads((ROOT / "bench" / "results" / "sensitivity.json").read_text())
MEASUREMENTS = read_measurements(FOLDER)
# rows that are priced in a moment, of every kind
QUICK = (
    "GT-41",
    "trn1-matmul",
    "GT-37",
    "GT-38",
    "GT-39c",
    "attention-one-512-bfloat16",
    "mlp-gelu-256x512x1024-float32",
)
QUICK += ("replay-S1024-fused-fp32", "GT-28")


@pytest.fixture(scope="module")
def page(page_script):
    return page_script("performance")


def test_the_results_hold_every_measurement_in_order():
    assert [row["id"] for row in RESULTS] == [each.id for each in MEASUREMENTS]
    for row, each in zip(RESULTS, MEASUREMENTS, strict=True):
        assert (
            row["measured_us"] == each.measured_us and row["within"] == each.within and row["first_us"] == each.first_us
        )
        assert row["estimated_us"] is not None, f"{each.id} was skipped"


def test_every_bounded_measurement_keeps_its_bound():
    assert [row["id"] for row in RESULTS if row["verdict"] == "MISS"] == []


def test_the_documents_say_what_the_results_say(page):
    for path in page.PAGES:
        filled = page.filled(path.read_text(), RESULTS, SENSITIVITY)
        assert filled == path.read_text(), f"run docs/performance.py for {path.name}"
    assert page.summary(RESULTS) in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("ladder", read_ladders(FOLDER), ids=lambda ladder: ladder.name)
def test_steps_of_published_ladders_come_in_order(ladder):
    rows = [ValidationRow(each, row["estimated_us"]) for each, row in zip(MEASUREMENTS, RESULTS, strict=True)]
    assert misordered(ladder, rows) == []
    text = " ".join((ROOT / "docs" / "performance.md").read_text().split())
    for one, other in ladder.excepted:
        assert one in text and other in text


@pytest.mark.parametrize("name", QUICK)
def test_the_model_still_says_what_the_results_say(name):
    [measurement] = [each for each in MEASUREMENTS if each.id == name]
    [row] = [row for row in RESULTS if row["id"] == name]
    assert validate_one(FOLDER, measurement).estimated_us == pytest.approx(row["estimated_us"], rel=1e-6)
