"""The C allocator keeps the pages of freed temporaries; Python looks for cycles less often during a run."""

import gc
import subprocess
import sys

import pytest

from kernels_neuron.sim.allocator import fewer_collections

PROBE = """
import resource
import numpy as np
from kernels_neuron.sim.allocator import keep_freed_pages

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        np.ones(1 << 16, np.float32) + np.ones(1 << 16, np.float32)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

understood = keep_freed_pages()
faults()  # the first round takes the pages that later ones reuse
print(int(understood), faults())
"""


def test_temporaries_of_tile_size_reuse_their_pages():
    out = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout
    understood, faults = map(int, out.split())
    if not understood:
        pytest.skip("this C library has no mallopt")
    # 200 rounds of three 256 KiB arrays are 38,400 pages of 4 KiB
    assert faults < 2000


def test_cycles_are_looked_for_less_often_during_a_run_and_as_before_after_it():
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="inside"), fewer_collections():
        assert gc.get_threshold()[0] > before[0]
        raise ValueError("inside")
    assert gc.get_threshold() == before


def test_a_process_that_looks_for_cycles_itself_is_left_alone():
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with fewer_collections():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
