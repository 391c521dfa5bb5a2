import numpy as np

from kernels_neuron.cost.profile import profile
from kernels_neuron.cost.waits import QUEUE, wait_of


def waits(found):
    """(instruction, what it waited for) of every record that waited."""
    trace, timeline = found.trace, found.timeline
    each = [(record.name, wait_of(trace, i, timeline.cause[i])) for i, record in enumerate(trace.records)]
    return [(name, wait.on) for name, wait in each if wait]


def test_an_instruction_waits_for_the_data_of_the_load_before_it(kernels):
    found = profile(kernels.copy, np.ones((128, 64), np.float32))
    assert waits(found) == [("dma_copy", "sbuf data")]


def test_a_reader_of_psum_waits_for_its_data(kernels):
    a = np.ones((128, 512), np.float32)
    found = profile(kernels.matmuls, a, a)
    assert ("tensor_copy", "psum data") in waits(found)
    assert ("nc_matmul", QUEUE) in waits(found)


def test_a_load_into_a_half_that_is_still_read_waits_for_space(kernels):
    found = profile(kernels.halves, np.ones((128, 16384), np.float32))
    assert "sbuf space" in {on for _, on in waits(found)}


def test_the_path_says_in_words_what_each_line_waits_for(kernels):
    found = profile(kernels.functions, np.ones((128, 512), np.float32))
    [line] = [text for text in found.critical_path if "scalar activation at" in text]
    assert "waiting for sbuf data of" in line and "kernels.py:" in line.rpartition(" at ")[2]
