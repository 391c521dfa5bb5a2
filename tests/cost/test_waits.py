import numpy as np

from kernels_neuron.cost.profile import profile
from kernels_neuron.cost.waits import PORT, QUEUE, wait_of


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


def test_an_instruction_that_waits_for_a_port_says_who_held_it():
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @nki.jit
    def side_by_side(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile, other, cleared = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(3))
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_copy(dst=other, src=tile, engine=nisa.engine.vector)
        nisa.tensor_copy(dst=cleared, src=tile, engine=nisa.engine.gpsimd)
        nisa.dma_copy(dst=y, src=other)
        return y

    # on trn1 VectorE and GpSimdE never reach SBUF at once
    found = profile(side_by_side, np.ones((128, 2048), np.float32), arch="trn1")
    assert PORT in {on for _, on in waits(found)}
