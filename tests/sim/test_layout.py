"""What answers about operands are looked up by: equal for views that no rule and no price tells apart."""

import numpy as np
import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.sim import layout, shim
from kernels_neuron.sim.isa.rules import once_per_layout
from kernels_neuron.sim.run import simulate

shim.install()
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

A = np.ones((128, 64), np.float32)


def inside(body):
    """Run `body(core-less kernel code)` in a kernel over A."""

    def kernel(x):
        body(x)
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=y, src=x)
        return y

    return simulate(kernel, A)


def tile(shape=(128, 64), dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def test_views_that_lie_alike_share_a_layout_whatever_their_tile():
    def body(x):
        one, other = tile(), tile()
        assert one.layout is other.layout
        assert one[:, 8:16].layout is other[:, 8:16].layout
        assert x[0:32, 0:8].layout is x[64:96, 8:16].layout, "where a view of HBM starts changes nothing"

    inside(body)


@pytest.mark.parametrize(
    "other",
    [
        lambda: tile((128, 32)),
        lambda: tile(dtype=nl.bfloat16),
        lambda: tile(buffer=nl.psum),
        lambda: tile((128, 128))[:, 0:64],
        lambda: tile((128, 128))[:, 0:128:2],
    ],
    ids=["shape", "dtype", "memory", "partition stride", "stride"],
)
def test_what_a_rule_may_look_at_makes_another_layout(other):
    def body(x):
        assert tile().layout is not other().layout

    inside(body)


def test_the_start_of_a_tile_is_part_of_its_layout():
    def body(x):
        assert tile()[0:32].layout is not tile()[32:64].layout
        assert tile()[:, 0:8].layout is not tile()[:, 8:16].layout

    inside(body)


def test_a_layout_is_the_same_object_until_the_table_is_full():
    assert layout.layout(("a", 1)) is layout.layout(("a", 1))
    assert layout.layout(("a", 1)) is not layout.layout(("a", 2))


def test_a_check_runs_once_for_layouts_and_values_and_tells_one_from_true():
    calls = []

    @once_per_layout
    def check(core, operand, value):
        calls.append(value)
        return len(calls)

    def body(x):
        from kernels_neuron.sim.context import current_core

        core = current_core("test")
        assert [check(core, tile(), 1), check(core, tile(), 1), check(core, tile(), True)] == [1, 1, 2]
        assert [check(core, tile(), []), check(core, tile(), [])] == [3, 4], "what cannot be a key is not remembered"

    inside(body)


def test_what_is_refused_names_the_operands_of_its_own_call():
    for name in ("first", "second"):

        def body(x, name=name):
            wide = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, name=name)
            nisa.tensor_copy(dst=tile((128, 32)), src=wide)

        with pytest.raises(KernelError, match=f"src is {name}: sbuf"):
            inside(body)


def test_an_answer_for_one_chip_is_none_for_another():
    def kernel(x):
        moved = tile()
        nisa.dma_copy(dst=moved, src=x, dge_mode=nisa.dge_mode.hwdge)
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=y, src=moved)
        return y

    simulate(kernel, A, arch="trn2")
    with pytest.raises(KernelError, match="hwdge exists from trn2 on"):
        simulate(kernel, A, arch="trn1")
