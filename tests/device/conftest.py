"""Fixtures of the device tests.

Registering the device changes a process for good, so the tests in emulated/ are collected only in a process that has
it: test_emulated.py runs them in one, and so does `KERNELS_NEURON_SIM=1 pytest tests/device/emulated`.
"""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

collect_ignore = [] if os.environ.get("KERNELS_NEURON_SIM") == "1" else ["emulated"]


@pytest.fixture(scope="session")
def python() -> Callable[..., subprocess.CompletedProcess]:
    """python(code, **variables): run code in a fresh interpreter with these environment variables."""

    def run(code: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess:
        unset = ("KERNELS_", "TORCH_DEVICE_BACKEND", "HF_", "LOCAL_KERNELS")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(unset)}
        argv = [sys.executable, "-W", "ignore", "-c", code]
        done = subprocess.run(
            argv, env={**environment, **variables}, capture_output=True, text=True, timeout=600, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    return run
