"""Rules of dynamic addresses, registers, scalars, loops and waits, each with a legal twin."""

import numpy as np
import pytest
from twins import Launch, Twin, X

from kernels_neuron.sim import shim
from kernels_neuron.sim.register import VirtualRegister
from kernels_neuron.sim.run import jit

shim.install()
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


def tile(b):
    return b.tile(np.ones((8, 16)))


def hbm(b):
    return b.tile(np.ones((8, 16)), buffer="shared_hbm")


def rows(b, count=4, dtype="uint32"):
    """An index tile: row 1, `count` times."""
    return b.tile(np.ones((count, 1)), dtype)


def ap(tensor, **offsets):
    return tensor.ap([[16, 4], [1, 16]], **offsets)


def gathers(mode):
    return lambda b: nisa.dma_copy(b.empty((4, 16)), ap(hbm(b), vector_offset=rows(b)), dge_mode=mode)


def moved(mode):
    return lambda b: nisa.dma_copy(b.empty((4, 16)), ap(hbm(b), scalar_offset=VirtualRegister(2)), dge_mode=mode)


def modifies(*extra, **given):
    def act(b):
        table, new = hbm(b), b.tile(np.ones((4, 16)))
        target = ap(table, vector_offset=b.tile(np.arange(4)[:, None], "uint32"))
        nisa.dma_compute(target, [target, new, *(make(b) for make in extra)], nl.add, **given)

    return act


def skips(dynamic):
    def act(b):
        target = b.empty((4, 16))
        other = b.tile(np.ones((4, 16)))
        source = ap(hbm(b), vector_offset=rows(b)) if dynamic else hbm(b)[:4]
        nisa.memset(target, 0.0)
        srcs = [target, source] if dynamic else [other, source]
        nisa.dma_compute(target, srcs, nl.add, oob_mode=nisa.oob_mode.skip)

    return act


def reads(count):
    """Gathers rows 0, 1 and so on, `count` of them, of a tensor of 8."""
    return lambda b: nisa.dma_copy(
        b.empty((count, 16)), hbm(b).vector_select(0, b.tile(np.arange(count)[:, None], "int32"))
    )


def loaded(b, dtype="int32"):
    register = nisa.register_alloc()
    nisa.register_load(register, b.tile(np.ones((1, 1)), dtype))
    return register


def register_set(register):
    nisa.register_move(register, 3)


def nothing(i):
    return None


def pinned(b, loop):
    with nl.no_reorder():
        loop(b)


def waits(outside):
    def act(b):
        handles = []
        before = nisa.memset(tile(b), 0.0)
        nl.fori_loop(0, 1, lambda i: handles.append(nisa.memset(tile(b), 1.0)))
        nisa.memset(tile(b), 2.0).depends_on(handles[0] if outside else before)

    return act


def adds_one(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    part = nl.ndarray(x.shape, dtype=x.dtype)
    nisa.dma_copy(part, x, name="load")
    nisa.tensor_scalar(part, part, nl.add, 1.0, name="add")
    nisa.dma_copy(out, part, name="store")
    return out


def branches(x, count):
    register = nisa.register_alloc()
    nisa.register_load(register, count)
    nl.fori_loop(0, register, nothing)
    return adds_one(x)


ONE, FLOATS = VirtualRegister(1), lambda b: ap(hbm(b), scalar_offset=b.tile(np.ones((1, 1))))
TWINS = [
    Twin("dynamic-offset", "integers in SBUF", lambda b: ap(hbm(b), scalar_offset=rows(b, 1)), FLOATS),
    Twin(
        "dynamic-offset",
        "got both",
        lambda b: ap(hbm(b), vector_offset=rows(b)),
        lambda b: ap(hbm(b), vector_offset=rows(b), scalar_offset=ONE),
    ),
    Twin(
        "dynamic-offset",
        "as scalar offset",
        lambda b: ap(hbm(b), scalar_offset=rows(b, 1)),
        lambda b: ap(hbm(b), scalar_offset=rows(b, 4)),
    ),
    Twin(
        "dynamic-offset",
        "4 rows need as many indices",
        lambda b: ap(hbm(b), vector_offset=rows(b, 4)),
        lambda b: ap(hbm(b), vector_offset=rows(b, 3)),
    ),
    Twin(
        "dynamic-dim",
        "dim 0 of an HBM tensor",
        lambda b: hbm(b).vector_select(0, rows(b)),
        lambda b: tile(b).vector_select(0, rows(b)),
    ),
    Twin(
        "dynamic-dim",
        "cannot be cut",
        lambda b: hbm(b).vector_select(0, rows(b))[:, 0:2],
        lambda b: hbm(b).vector_select(0, rows(b))[0:2],
    ),
    Twin(
        "dynamic-view",
        "has a dynamic offset already",
        lambda b: hbm(b).select(0, ONE),
        lambda b: hbm(b).select(0, ONE).select(0, ONE),
    ),
    Twin(
        "dynamic-view",
        "cannot be read as another dtype",
        lambda b: hbm(b).view("int32").select(0, ONE),
        lambda b: hbm(b).select(0, ONE).view("int32"),
    ),
    Twin(
        "dynamic-operand",
        "no operand with an index per row",
        lambda b: nisa.dma_copy(b.empty((4, 16)), hbm(b).vector_select(0, rows(b))),
        lambda b: nisa.tensor_copy(b.empty((4, 16)), hbm(b).vector_select(0, rows(b))),
    ),
    Twin("dge-dynamic", "takes no index per row", gathers(nisa.dge_mode.swdge), gathers(nisa.dge_mode.hwdge)),
    Twin("dge-dynamic", "takes no dynamic address", moved(nisa.dge_mode.hwdge), moved(nisa.dge_mode.none)),
    Twin("dma-modify", "two srcs and unique_indices=True", modifies(), modifies(unique_indices=False)),
    Twin("dma-modify", "got 3 srcs", modifies(), modifies(lambda b: b.tile(np.ones((4, 16))))),
    Twin("oob-mode", "with an index per row, and only then", skips(True), skips(False)),
    Twin("out-of-bounds", "reaches row 8", reads(8), reads(9)),
    Twin(
        "register-operand",
        "register_move takes an integer or a register",
        lambda b: nisa.register_move(VirtualRegister(), 3),
        lambda b: nisa.register_move(VirtualRegister(), 3.5),
    ),
    Twin(
        "register-operand",
        "one element",
        lambda b: loaded(b),
        lambda b: nisa.register_load(VirtualRegister(), b.tile(np.ones((1, 2)), "int32")),
    ),
    Twin("register-value", "a 32-bit number", lambda b: nisa.register_alloc(7), lambda b: VirtualRegister("seven")),
    Twin(
        "register-frozen",
        "cannot be written",
        lambda b: nl.fori_loop(0, ONE, lambda i: register_set(VirtualRegister())),
        lambda b: nl.fori_loop(0, ONE, register_set),
    ),
    Twin(
        "register-unset",
        "that nothing has written",
        lambda b: nl.fori_loop(0, loaded(b), nothing),
        lambda b: nl.fori_loop(0, nisa.register_alloc(), nothing),
    ),
    Twin(
        "register-in-python",
        "known only on the device",
        lambda b: nl.fori_loop(0, loaded(b), nothing),
        lambda b: range(loaded(b)),
    ),
    Twin(
        "register-in-python",
        "a branch or while condition",
        lambda b: bool(loaded(b)),
        lambda b: bool(loaded(b)),
        settings={"nki": "0.6"},
        broken_settings={"nki": "0.7"},
    ),
    Twin("scalar-dtype", "got float32", lambda b: nisa.NkiScalar(3, nl.int32), lambda b: nisa.NkiScalar(3, nl.float32)),
    Twin(
        "loop-bound",
        "positive step",
        lambda b: nl.fori_loop(0, 4, nothing, 2),
        lambda b: nl.fori_loop(0, 4, nothing, -1),
    ),
    Twin("loop-bound", "got a register", lambda b: nl.static_range(4), lambda b: nl.static_range(ONE)),
    Twin(
        "loop-body", "returns nothing", lambda b: nl.fori_loop(0, 2, nothing), lambda b: nl.fori_loop(0, 2, lambda i: i)
    ),
    Twin(
        "loop-body",
        "returns a register",
        lambda b: nl.while_loop(ONE, lambda r: VirtualRegister(0)),
        lambda b: nl.while_loop(ONE, lambda r: 0),
    ),
    Twin(
        "no-reorder-loop",
        "cannot sit inside",
        lambda b: nl.fori_loop(0, 1, lambda i: pinned(b, nothing)),
        lambda b: pinned(b, lambda b: nl.fori_loop(0, 1, nothing)),
    ),
    Twin("depends-on", "of a dynamic loop", waits(False), waits(True)),
    Twin(
        "retired",
        "nl.dynamic_range is gone since NKI 0.7",
        lambda b: list(nl.dynamic_range(2)),
        lambda b: list(nl.dynamic_range(2)),
        settings={"nki": "0.6"},
        broken_settings={"nki": "0.7"},
    ),
    Launch(
        "register-unknown",
        "which a price-only run has none of",
        lambda launch: launch(branches, X, np.ones((1, 1), np.int32)),
        lambda launch: launch(branches, X, np.ones((1, 1), np.int32)),
        broken_settings={"execute": False},
    ),
    Launch(
        "schedule-name",
        "names 'multiply'",
        lambda launch: launch(jit(adds_one).with_schedule([("store", "add")]), X),
        lambda launch: launch(jit(adds_one).with_schedule([("store", "multiply")]), X),
    ),
]


def indexed(b, values=None, dtype="uint16", partitions=16, count=None, width=1):
    data = b.tile(np.ones((partitions, 32)))
    values = np.arange(partitions * width).reshape(partitions, width) % 16 if values is None else values
    return data.indirect(b.tile(values, dtype), count)


def copies(b, view):
    nisa.tensor_copy(b.empty(view.shape), view)


def scatters(b, view):
    nisa.tensor_copy(view, b.tile(np.ones(view.shape)))


INDIRECT = [
    Twin("chip-generation", "exists from trn3 on", lambda b: indexed(b), lambda b: indexed(b), "trn3", "trn2"),
    Twin("operand-dtype", "index of uint16", lambda b: indexed(b), lambda b: indexed(b, dtype="int32"), "trn3"),
    Twin(
        "indirect-index",
        "a multiple of 16",
        lambda b: indexed(b),
        lambda b: indexed(b, partitions=24),
        "trn3",
    ),
    Twin(
        "indirect-index",
        "num_elem from 1 to 16",
        lambda b: indexed(b, count=16),
        lambda b: indexed(b, count=17),
        "trn3",
    ),
    Twin(
        "indirect-index",
        "hold at most 16",
        lambda b: copies(b, indexed(b, partitions=32, count=16)),
        lambda b: copies(b, indexed(b, partitions=32)),
        "trn3",
    ),
    Twin(
        "indirect-index",
        "twice",
        lambda b: scatters(b, indexed(b)),
        lambda b: scatters(b, indexed(b, np.ones((16, 1)))),
        "trn3",
    ),
    Twin(
        "out-of-bounds",
        "reaches element 32",
        lambda b: copies(b, indexed(b, np.full((16, 1), 31))),
        lambda b: copies(b, indexed(b, np.full((16, 1), 32))),
        "trn3",
    ),
    Twin(
        "indirect-operand",
        "takes indirect dst, data1, got data2",
        lambda b: nisa.tensor_tensor(b.empty((16, 16)), indexed(b), b.tile(np.ones((16, 16))), nl.add),
        lambda b: nisa.tensor_tensor(b.empty((16, 16)), b.tile(np.ones((16, 16))), indexed(b), nl.add),
        "trn3",
    ),
    Twin(
        "indirect-operand",
        "takes indirect no operand",
        lambda b: copies(b, indexed(b)),
        lambda b: nisa.dma_copy(b.empty((16, 16)), indexed(b)),
        "trn3",
    ),
    Twin("indirect-operand", "no view is made", lambda b: indexed(b), lambda b: indexed(b)[:, :4], "trn3"),
]


@pytest.mark.parametrize("twin", [*TWINS, *INDIRECT], ids=str)
def test_a_legal_address_or_loop_passes_and_its_broken_twin_is_refused(machine, twin):
    twin.holds(machine)
