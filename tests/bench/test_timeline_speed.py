"""The benchmark of the timeline: what it prices, and that its memory grows with the records and no faster."""

import importlib.util
import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from kernels_neuron.arch import chip
from kernels_neuron.cost.timeline import plan_launch, replays
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using

SCRIPT = Path(__file__).parents[2] / "bench" / "timeline_speed.py"


@pytest.fixture(scope="module")
def speed():
    spec = importlib.util.spec_from_file_location("timeline_speed", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def peak_bytes(speed, count):
    """The most that records, plan and timelines took together, what the run itself needed for a moment left out."""
    tracemalloc.start()
    with using("trn2", Settings(execute=False)) as runs:
        speed.turns(np.zeros((128, 128), np.float16), np.zeros((128, 512), np.float16), count=count)
    tracemalloc.reset_peak()
    bodies, line = replays(plan_launch(runs[0].traces, chip("trn2")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(line.start) == speed.EACH * count and min(bodies) > 0
    return peak


@pytest.mark.slow
def test_a_million_records_fit_a_gibibyte(speed):
    """What every further record adds: no more in a longer kernel, and below 1 GiB for a million."""
    peaks = [peak_bytes(speed, count) for count in (200, 400, 600)]
    added = [(after - before) / (200 * speed.EACH) for before, after in itertools.pairwise(peaks)]
    assert added[1] < 1.2 * added[0]
    assert max(added) * 1_000_000 < speed.TARGET_BYTES
