"""How the estimates move with the constants of the model: every constant has its turn, and the kept changes hold."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from kernels_neuron.arch import UNCERTAINTY, EngineTiming, chip, moved

ROOT = Path(__file__).parents[2]
KEPT = json.loads((ROOT / "bench" / "results" / "sensitivity.json").read_text())
TRN2 = chip("trn2")
ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
# documented counts, widths and limits, clocks among them, and flags; bounds have no part in a timeline
EXACT = {"ghz", "generation", "partitions", "dma_engines", "pe_min_cycles", "fp32_passes", "fp32_cycles_per_row"}
EXACT |= {"stationary_fmax", "moving_fmax", "bn_stats_fmax", "psum_banks", "dma_first_packet_descriptors"}
EXACT |= {"dma_max_descriptor_bytes", "dma_efficient_descriptor_bytes", "dma_small_load_bytes", "dma_large_load_bytes"}
EXACT |= {field.name for field in dataclasses.fields(TRN2) if field.name.startswith(("sbuf_", "psum_"))}


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import sensitivity
    finally:
        sys.path.remove(str(ROOT / "bench"))
    return sensitivity


def numbers(value, prefix=""):
    return {
        prefix + field.name
        for field in dataclasses.fields(value)
        if type(getattr(value, field.name)) in (int, float) and field.name not in EXACT
    }


def test_every_constant_that_is_not_exact_says_how_far_it_may_be_off():
    timed = set().union(*(numbers(TRN2.engine(engine), f"{engine}.") for engine in ENGINES))
    assert all(isinstance(TRN2.engine(engine), EngineTiming) for engine in ENGINES)
    assert set(UNCERTAINTY) == numbers(TRN2) | timed
    assert all(by > 0 for by in UNCERTAINTY.values())


def test_a_constant_moves_alone():
    assert moved(TRN2, "vector.issue_ns", 5.0).vector.issue_ns == TRN2.vector.issue_ns + 5.0
    assert moved(TRN2, "vector.issue_ns", 5.0).scalar == TRN2.scalar
    assert moved(TRN2, "launch_us", -0.5) == dataclasses.replace(TRN2, launch_us=TRN2.launch_us - 0.5)


def test_the_kept_result_has_every_constant_and_every_row(script):
    assert list(KEPT["changes"]) == list(UNCERTAINTY)
    assert all(set(rows) == set(script.ROWS) for rows in KEPT["changes"].values())


@pytest.mark.parametrize(
    ("name", "row"), [("dma_completion_ns", "attention-one-512-bfloat16"), ("launch_us", "vector-add-2")]
)
def test_a_kept_change_is_what_the_model_still_says(script, name, row):
    [measurement] = [each for each in script.read_measurements(script.FOLDER) if each.id == row]
    assert script.changes([measurement], name)[row] == pytest.approx(KEPT["changes"][name][row], rel=1e-6)
