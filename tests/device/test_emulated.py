"""Runs the tests of emulated/ in a process that has the device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "emulated"


def run(marker: str) -> None:
    # one thread, as the test workers have: a second one only waits for the first
    environment = {**os.environ, "KERNELS_NEURON_SIM": "1", "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", marker, str(FOLDER)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif("KERNELS_NEURON_SIM" in os.environ, reason="emulated/ is collected here itself")
def test_everything_on_the_device():
    run("not slow")


@pytest.mark.slow
@pytest.mark.skipif("KERNELS_NEURON_SIM" in os.environ, reason="emulated/ is collected here itself")
def test_everything_slow_on_the_device():
    run("slow")
