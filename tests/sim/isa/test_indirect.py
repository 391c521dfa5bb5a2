"""Tensor indirection: gathers and scatters of columns against numpy, on every instruction that takes them."""

import ml_dtypes
import numpy as np
import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.sim import shim
from kernels_neuron.sim.isa.indirect import OPERANDS
from kernels_neuron.sim.run import simulate

shim.install()
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

P, F, COUNT = 32, 40, 20


def drawn(rng, partitions=P, group=16, count=COUNT, free=F):
    """An index tile [partitions, K], and the columns [partitions, count] that it names, each once in a partition."""
    width = -(-count // group)
    index = np.zeros((partitions, width), np.uint16)
    columns = np.empty((partitions, count), int)
    for first in range(0, partitions, group):
        chosen = rng.permutation(free)[:count]
        for i, column in enumerate(chosen):
            index[first + i % group, i // group] = column
        columns[first : first + group] = chosen
    return index, columns


def taken(values, columns):
    return np.take_along_axis(values.astype(np.float64), columns, 1)


@pytest.fixture
def made(machine, rng):
    """A bench, a tile of [P, F], its indirect view, its values and the columns of the view."""
    bench = machine("trn3")
    index, columns = drawn(rng)
    values = rng.standard_normal((P, F)).astype(np.float32)
    tile = bench.tile(values)
    with bench.inside():
        view = tile.indirect(bench.tile(index), COUNT)
    return bench, tile, view, values, columns


def test_a_gather_reads_the_columns_that_each_group_of_16_partitions_names(made):
    bench, _, view, values, columns = made
    out = bench.empty((P, COUNT))
    bench.issue("tensor_copy", out, view)
    np.testing.assert_array_equal(out.array(), taken(values, columns))


def test_a_scatter_writes_these_columns_and_leaves_the_others_as_they_were(made, rng):
    bench, tile, view, values, columns = made
    new = rng.standard_normal((P, COUNT)).astype(np.float32)
    bench.issue("tensor_copy", view, bench.tile(new))
    expected = values.copy()
    np.put_along_axis(expected, columns, new, 1)
    np.testing.assert_array_equal(tile.array(), expected)


def test_a_scatter_counts_as_written_what_it_wrote(machine, rng):
    bench = machine("trn3")
    index, columns = drawn(rng)
    tile = bench.empty((P, F))
    with bench.inside():
        bench.issue("tensor_copy", tile.indirect(bench.tile(index), COUNT), bench.tile(np.ones((P, COUNT))))
        view = tile.indirect(bench.tile(index), COUNT)
    written = np.zeros((P, F), bool)
    np.put_along_axis(written, columns, True, 1)
    found = tile.storage.written.table().reshape(128 if tile.storage.tile.partitions == 128 else P, F, 4).all(-1)
    np.testing.assert_array_equal(found[:P], written)
    assert view.is_indirect()


def summed(b):
    return {"reduce_op": nl.add, "reduce_res": b.empty((P, 1))}


WIDE, SCALE_AND_BIAS = (P, COUNT), {"op0": nl.multiply, "op1": nl.add}
CALLS = {
    "tensor_tensor": (
        lambda b, dst, src: {"dst": dst, "data1": src, "data2": b.tile(np.full(WIDE, 2.0)), "op": nl.multiply},
        lambda x: 2 * x,
    ),
    "tensor_scalar": (lambda b, dst, src: {"dst": dst, "data": src, "op0": nl.add, "operand0": 1.0}, lambda x: x + 1),
    "tensor_copy": (lambda b, dst, src: {"dst": dst, "src": src}, lambda x: x),
    "activation": (lambda b, dst, src: {"dst": dst, "data": src, "op": nl.square}, np.square),
    "activation_reduce": (
        lambda b, dst, src: {"dst": dst, "data": src, "op": nl.square} | summed(b),
        np.square,
    ),
    "activate2": (
        lambda b, dst, src: {"dst": dst, "data": src, "op": nl.square, "imm0": 2.0, "imm1": 1.0, **SCALE_AND_BIAS},
        lambda x: np.square(2 * x + 1),
    ),
    "exponential": (lambda b, dst, src: {"dst": dst, "src": src}, np.exp),
    "tensor_scalar_reduce": (
        lambda b, dst, src: {"dst": dst, "data": src, "op0": nl.multiply, "operand0": 3.0} | summed(b),
        lambda x: 3 * x,
    ),
    "tensor_scalar_cumulative": (
        lambda b, dst, src: {"dst": dst, "src": src, "op0": nl.multiply, "imm0": 1.0, "op1": nl.add},
        lambda x: np.cumsum(x, axis=1),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_instruction_gathers_and_scatters_as_numpy_does(made, close, rng, name):
    bench, tile, view, values, columns = made
    arguments, model = CALLS[name]
    out = bench.empty((P, COUNT))
    bench.issue(name, **arguments(bench, out, view))
    close(out, model(taken(values, columns)), slack=8, magnitude=10)
    plain = rng.standard_normal((P, COUNT)).astype(np.float32)
    call = arguments(bench, view, bench.tile(plain))
    bench.issue(name, **call)
    close(bench.tile(taken(tile.array(), columns)), model(plain.astype(np.float64)), slack=8, magnitude=10)
    if "reduce_res" in call:
        close(call["reduce_res"], model(plain.astype(np.float64)).sum(1, keepdims=True), slack=8, magnitude=100)


def test_tensor_reduce_sums_what_it_gathers(made, close):
    bench, _, view, values, columns = made
    out = bench.empty((P, 1))
    bench.issue("tensor_reduce", out, nl.add, view, 1)
    close(out, taken(values, columns).sum(1, keepdims=True), slack=8, magnitude=10)


def test_a_predicate_is_gathered(machine, rng):
    bench = machine("trn3")
    index, columns = drawn(rng)
    mask = rng.integers(0, 2, (P, F)).astype(np.uint8)
    out, source = bench.tile(np.zeros((P, COUNT))), bench.tile(np.ones((P, COUNT)))
    with bench.inside():
        bench.issue("tensor_copy_predicated", out, source, bench.tile(mask).indirect(bench.tile(index), COUNT))
    np.testing.assert_array_equal(out.array(), taken(mask, columns))


@pytest.mark.parametrize("operand", ["stationary", "moving"])
def test_nc_matmul_gathers_by_groups_of_32_partitions(machine, rng, close, operand):
    bench = machine("trn3")
    index, columns = drawn(rng, 64, 32)
    wide = rng.standard_normal((64, F)).astype(ml_dtypes.bfloat16)
    other = rng.standard_normal((64, 8)).astype(ml_dtypes.bfloat16)
    picked = taken(wide, columns)
    with bench.inside():
        view = bench.tile(wide).indirect(bench.tile(index), COUNT)
    if operand == "moving":
        dst = bench.empty((8, COUNT), buffer="psum")
        bench.issue("nc_matmul", dst, bench.tile(other), view)
        close(dst, other.astype(np.float64).T @ picked, slack=16, magnitude=10)
    else:
        dst = bench.empty((COUNT, 8), buffer="psum")
        bench.issue("nc_matmul", dst, view, bench.tile(other))
        close(dst, picked.T @ other.astype(np.float64), slack=16, magnitude=10)


def test_every_instruction_that_takes_indirect_operands_is_run():
    assert set(OPERANDS) == {*CALLS, "tensor_reduce", "tensor_copy_predicated", "nc_matmul"}


@nki.jit
def columns_of(x, index):
    """x[:, index], all partitions by one list of columns."""
    rows, count = x.shape[0], index.shape[0] * index.shape[1]
    out = nl.ndarray((rows, count), dtype=x.dtype, buffer=nl.shared_hbm)
    data, picks = nl.ndarray(x.shape, dtype=x.dtype), nl.ndarray((rows, index.shape[1]), dtype=nl.uint16)
    nisa.dma_copy(dst=data, src=x)
    for first in range(0, rows, 16):
        nisa.dma_copy(dst=picks[first : first + 16], src=index)
    result = nl.ndarray((rows, count), dtype=x.dtype)
    nisa.tensor_copy(dst=result, src=data.indirect(picks, num_elem=count), engine=nisa.engine.vector)
    nisa.dma_copy(dst=out, src=result)
    return out


def test_a_kernel_selects_columns_as_the_tutorial_does(rng):
    x, wanted = rng.standard_normal((128, 64)).astype(np.float32), rng.integers(0, 64, 48).astype(np.uint16)
    index = np.ascontiguousarray(wanted.reshape(3, 16).T)
    np.testing.assert_array_equal(simulate(columns_of, x, index, arch="trn3"), x[:, wanted])


def test_a_price_only_run_needs_no_indices(machine):
    bench = machine("trn3", execute=False, switches={"unwritten_read": "track"})
    tile, index, out = bench.empty((P, F)), bench.empty((P, 2), "uint16"), bench.empty((P, COUNT))
    for each in (tile, index):
        each.storage.written.add(each.region())
    with bench.inside():
        (record,) = bench.issue("tensor_copy", out, tile.indirect(index, COUNT))
    assert record.price.issue_ns > 0
    assert {region.tile for region in record.reads} == {tile.storage.tile.id, index.storage.tile.id}


def test_matmul_into_an_indirect_tile_is_refused_by_name(machine, rng):
    bench = machine("trn3")
    index, _ = drawn(rng, 32, 32)
    weights = bench.tile(np.ones((64, 32)), "bfloat16")
    with bench.inside(), pytest.raises(KernelError, match="nc_matmul with an indirect dst is not supported") as caught:
        bench.issue(
            "nc_matmul",
            bench.empty((32, F), buffer="psum").indirect(bench.tile(index), COUNT),
            weights,
            weights[:, :COUNT],
        )
    assert caught.value.rule == "not-simulated"
