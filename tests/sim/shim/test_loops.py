"""Dynamic loops and the order that a kernel asks for."""

import numpy as np
import pytest

import kernels_neuron.sim.shim as shim
from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using
from kernels_neuron.sim.run import jit

shim.install()
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

X = np.arange(32, dtype=np.float32).reshape(8, 4)
COUNT = np.array([[5]], np.int32)


def row_by_row(x, count, loop):
    """Twice the first `count` rows of x, one at a time; the others as they are."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    everything = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(everything, x)
    nisa.dma_copy(out, everything)
    limit = nisa.register_alloc()
    nisa.register_load(limit, count)

    def body(i):
        tile = nl.ndarray((1, 4), x.dtype)
        nisa.dma_copy(tile, x.ap([[4, 1], [1, 4]], scalar_offset=i))
        nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
        nisa.dma_copy(out.ap([[4, 1], [1, 4]], scalar_offset=i), tile)

    loop(limit, body)
    return out


def by_fori(limit, body):
    nl.fori_loop(0, limit, body)


def by_dynamic_range(limit, body):
    for i in nl.dynamic_range(limit):
        body(i)


def by_while(limit, body):
    left = nl.ndarray((1, 1), nl.int32)
    nisa.register_store(left, limit)

    def turn(register):
        nisa.tensor_scalar(left, left, nl.add, -1)
        nisa.register_load(register, left)
        body(register)
        return register

    nl.while_loop(limit, turn)


@pytest.mark.parametrize("loop", [by_fori, by_while, by_dynamic_range])
def test_a_device_loop_runs_as_often_as_its_register_says(loop):
    with using("trn2", Settings(nki="0.6")):
        out = jit(row_by_row)(X, COUNT, loop)
    np.testing.assert_array_equal(out, np.concatenate([2 * X[:5], X[5:]]))


def refused(kernel, *args, nki="0.7", execute=True):
    with using("trn2", Settings(nki=nki, execute=execute)), pytest.raises(KernelError) as caught:
        jit(kernel)(*args)
    return caught.value.rule


def test_dynamic_range_is_gone_since_0_7():
    assert refused(row_by_row, X, COUNT, by_dynamic_range) == "retired"


def test_a_price_only_run_refuses_a_bound_it_cannot_know():
    assert refused(row_by_row, X, COUNT, by_fori, execute=False) == "register-unknown"


@pytest.mark.parametrize(
    ("rule", "loop"),
    [
        ("loop-bound", lambda limit, body: nl.fori_loop(0, 1.5, body)),
        ("loop-bound", lambda limit, body: nl.fori_loop(0, limit, body, step=0)),
        ("loop-bound", lambda limit, body: list(nl.affine_range(limit))),
        ("loop-body", lambda limit, body: nl.fori_loop(0, limit, lambda i: i)),
        ("loop-body", lambda limit, body: nl.while_loop(limit, lambda r: None)),
        ("loop-body", lambda limit, body: nl.while_loop(3, lambda r: r)),
        ("register-unset", lambda limit, body: nl.fori_loop(0, nisa.register_alloc(), body)),
        ("register-frozen", lambda limit, body: nl.fori_loop(0, limit, lambda i: nisa.register_move(i, 3) and None)),
    ],
)
def test_loops_refuse_what_the_device_cannot_run(rule, loop):
    assert refused(row_by_row, X, COUNT, loop) == rule


def in_order(limit, body):
    with nl.no_reorder():
        nl.fori_loop(0, limit, body)


def test_no_reorder_holds_no_dynamic_loop_and_notes_its_instructions():
    assert refused(row_by_row, X, COUNT, in_order) == "no-reorder-loop"

    def kernel(x):
        tile = nl.ndarray((1, 4), nl.float32)
        nisa.memset(tile, 0.0)
        with nl.no_reorder():
            nisa.memset(tile, 1.0)
            nisa.memset(tile, 2.0)
        return x

    with using("trn2") as runs:
        jit(kernel)(X)
    assert runs[0].traces[0].in_order == [(1, 3)]


def chained(x, wait=True):
    tile, other = nl.ndarray((1, 4), nl.float32), nl.ndarray((1, 4), nl.float32)
    first = nisa.memset(tile, 0.0, name="first")
    second = nisa.memset(other, 1.0, name="second")
    if wait:
        assert second.depends_on(first) is second
    return x


def test_an_instruction_may_wait_for_another_one_by_its_handle_or_by_name():
    with using("trn2") as runs:
        jit(chained)(X)
        jit(chained).with_schedule([("second", ["first"])])(X, False)
    assert [run.traces[0].edges for run in runs] == [[(0, 1)], [(0, 1)]]
    with pytest.raises(KernelError, match="names 'third'") as caught:
        jit(chained).with_schedule([("third", "first")])(X)
    assert caught.value.rule == "schedule-name"


def test_nothing_waits_for_an_instruction_inside_another_loop():
    def kernel(x):
        tile, handles = nl.ndarray((1, 4), nl.float32), []
        before = nisa.memset(tile, 0.0)
        nl.fori_loop(0, 1, lambda i: handles.append(nisa.memset(tile, 1.0).depends_on(before)))
        nisa.memset(tile, 2.0).depends_on(handles[0])
        return x

    assert refused(kernel, X) == "depends-on"


def test_only_handles_can_be_waited_for():
    def kernel(x):
        nisa.memset(nl.ndarray((1, 4), nl.float32), 0.0).depends_on("first")
        return x

    assert refused(kernel, X) == "depends-on"


@pytest.mark.parametrize("loop", [by_fori, by_while])
def test_the_loops_of_0_6_are_not_in_0_5(loop):
    assert refused(row_by_row, X, COUNT, loop, nki="0.5") == "api-version"


def test_topk_is_not_in_0_5(machine):
    bench = machine(nki="0.5")
    tile = bench.tile(np.ones((16, 8)), nl.bfloat16)
    bench.refuses("api-version", "topk", tile, bench.empty((16, 8), "uint32"), tile, 8)
