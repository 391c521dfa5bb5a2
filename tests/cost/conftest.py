import importlib.util
from pathlib import Path

import numpy as np
import pytest

from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using


@pytest.fixture
def trace_of():
    """The trace of program 0 of a kernel on float32 zeros of these shapes, priced only."""

    def run(kernel, *shapes, arch="trn2", dtype=np.float32):
        with using(arch, Settings(execute=False)) as runs:
            kernel(*(np.zeros(shape, dtype) for shape in shapes))
        return runs[0].traces[0]

    return run


@pytest.fixture(scope="session")
def kernels():
    """The small kernels of kernels.py."""
    spec = importlib.util.spec_from_file_location("cost_kernels", Path(__file__).with_name("kernels.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
