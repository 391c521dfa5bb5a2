import numpy as np

from kernels_neuron.arch import DEFAULT_ENGINE, chip
from kernels_neuron.cost.choices import OTHER, choices
from kernels_neuron.cost.profile import profile
from kernels_neuron.settings import Settings

PRICED = Settings(execute=False)


def tried(kernel, *args):
    found = profile(kernel, *args, arch="trn2", settings=PRICED)
    return found, {c.what: c for c in choices(kernel, *args, body_us=found.body_us, arch=found.arch, settings=PRICED)}


def test_every_line_of_the_table_has_another_engine_to_try():
    assert set(OTHER) == set(DEFAULT_ENGINE) and all(OTHER[what] != DEFAULT_ENGINE[what] for what in OTHER)


def test_only_lines_that_matter_are_listed(kernels):
    found, others = tried(kernels.chain, np.ones((128, 2048), np.float32))
    copied = others["tensor_copy"]
    assert (copied.engine, copied.other) == ("vector", "scalar")
    assert copied.change == copied.body_us / found.body_us - 1 != 0
    assert "tensor_scalar" not in others and "memset" not in others  # it has none


def test_the_table_is_the_same_afterwards(kernels):
    before = chip("trn2").default_engine.copy()
    first, _ = tried(kernels.chain, np.ones((128, 2048), np.float32))
    again, _ = tried(kernels.chain, np.ones((128, 2048), np.float32))
    assert first.body_us == again.body_us and chip("trn2").default_engine == before


def test_an_engine_that_cannot_reach_the_operands_is_refused(kernels):
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @nki.jit
    def from_psum(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile, bank = (nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer) for buffer in (nl.sbuf, nl.psum))
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_copy(dst=bank, src=tile, engine=nisa.engine.vector)
        nisa.tensor_tensor(dst=tile, data1=bank, data2=tile, op=nl.add)
        nisa.dma_copy(dst=y, src=tile)
        return y

    _, others = tried(from_psum, np.ones((128, 64), np.float32))
    assert others["tensor_tensor"].body_us is None and others["tensor_tensor"].change is None
