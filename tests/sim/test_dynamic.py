"""Dynamic addresses: what is gathered and scattered, what is left out, what is refused."""

import numpy as np
import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.sim.isa.enums import dge_mode, oob_mode
from kernels_neuron.sim.register import VirtualRegister


def table(bench, rows=10, columns=6, dtype="float32", buffer="shared_hbm"):
    return bench.tile(np.arange(rows * columns).reshape(rows, columns), dtype, buffer)


def indices(bench, *values, dtype="int32"):
    return bench.tile(np.array(values).reshape(-1, 1), dtype)


def refused(bench, rule, make):
    with bench.inside(), pytest.raises(KernelError) as caught:
        make()
    assert caught.value.rule == rule, str(caught.value)


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_a_gather_takes_the_rows_its_indices_name(machine, dtype):
    bench = machine()
    data, rows, out = table(bench), indices(bench, 7, 2, 2, 9, dtype=dtype), bench.empty((4, 6))
    with bench.inside():
        source = data.vector_select(0, rows)
        assert source.shape == (4, 6) and source.is_indirect()
    (record,) = bench.issue("dma_copy", out, source)
    np.testing.assert_array_equal(out.array(), data.array()[[7, 2, 2, 9]])
    assert record.engine == "gpsimd" and record.price.transfer.descriptors == 4
    read = [region for region in record.reads if region.tile == data.storage.tile.id]
    assert sorted(start // 24 for region in read for start in region.starts()) == [2, 2, 7, 9]


def test_ap_with_a_vector_offset_ignores_its_leading_step_and_takes_the_row_stride_of_the_view(machine):
    bench = machine()
    data, rows, out = table(bench), indices(bench, 3, 8), bench.empty((2, 2))
    with bench.inside():
        source = data.ap([[999, 2], [2, 2]], offset=1, vector_offset=rows)
        reshaped = data.reshape((20, 3)).ap([[1, 2], [1, 2]], vector_offset=rows)
    bench.issue("dma_copy", out, source)
    np.testing.assert_array_equal(out.array(), data.array()[[3, 8]][:, 1:5:2])
    bench.issue("dma_copy", out, reshaped)
    np.testing.assert_array_equal(out.array(), data.array().reshape(20, 3)[[3, 8]][:, :2])


def test_a_scatter_writes_the_rows_its_indices_name_and_no_other(machine):
    bench = machine()
    values, rows, out = (
        table(bench, 3, buffer="sbuf"),
        indices(bench, 5, 0, 2),
        bench.empty((7, 6), buffer="shared_hbm"),
    )
    with bench.inside():
        target = out.vector_select(0, rows)
    bench.issue("dma_copy", target, values)
    np.testing.assert_array_equal(out.array()[[5, 0, 2]], values.array())
    sink = bench.empty((1, 6))
    bench.issue("dma_copy", sink, out[2:3])
    bench.refuses("unwritten-read", "dma_copy", sink, out[1:2])


@pytest.mark.parametrize("missing", [-1, 10, 2**31 - 1])
def test_rows_out_of_bounds_are_an_error_or_are_left_out(machine, missing):
    bench = machine()
    data, rows = table(bench), indices(bench, 1, missing, 3)
    out = bench.tile(np.full((3, 6), -5.0))
    with bench.inside():
        source, target = data.vector_select(0, rows), data.vector_select(0, rows)
    assert "reaches row 1" in bench.refuses("out-of-bounds", "dma_copy", out, source)
    bench.issue("dma_copy", out, source, oob_mode=oob_mode.skip)
    np.testing.assert_array_equal(out.array()[[0, 2]], data.array()[[1, 3]])
    np.testing.assert_array_equal(out.array()[1], -5.0)
    before = data.array().copy()
    bench.issue("dma_copy", target, bench.tile(np.zeros((3, 6))), oob_mode=oob_mode.skip)
    before[[1, 3]] = 0
    np.testing.assert_array_equal(data.array(), before)


def test_a_skipped_row_stays_unwritten(machine):
    bench = machine()
    data, rows, out, sink = table(bench), indices(bench, 1, -1), bench.empty((2, 6)), bench.empty((1, 6))
    with bench.inside():
        source = data.vector_select(0, rows)
    bench.issue("dma_copy", out, source, oob_mode=oob_mode.skip)
    bench.issue("dma_copy", sink, out[0:1])
    bench.refuses("unwritten-read", "dma_copy", sink, out[1:2])


def test_a_scalar_offset_moves_the_whole_view_by_rows_of_the_indirect_dim(machine):
    bench = machine()
    data, at, out = table(bench), indices(bench, 4), bench.empty((2, 3))
    with bench.inside():
        by_row = data.ap([[6, 2], [1, 3]], offset=1, scalar_offset=at)
        by_element = data.ap([[6, 2], [1, 3]], scalar_offset=VirtualRegister(2), indirect_dim=1)
    (record,) = bench.issue("dma_copy", out, by_row)
    np.testing.assert_array_equal(out.array(), data.array()[4:6, 1:4])
    assert record.price.transfer.dge == "hw"
    bench.issue("dma_copy", out, by_element)
    np.testing.assert_array_equal(out.array(), data.array()[0:2, 2:5])


def test_a_scalar_offset_past_the_end_skips_the_rows_that_leave(machine):
    bench = machine()
    data, out = table(bench), bench.tile(np.full((2, 6), -5.0))
    with bench.inside():
        source = data.ap([[6, 2], [1, 6]], scalar_offset=VirtualRegister(9))
    bench.refuses("out-of-bounds", "dma_copy", out, source)
    bench.issue("dma_copy", out, source, oob_mode=oob_mode.skip)
    np.testing.assert_array_equal(out.array(), [data.array()[9], [-5.0] * 6])


def test_compute_instructions_take_one_dynamic_offset(machine):
    bench = machine()
    data, out, at = table(bench, buffer="sbuf"), bench.empty((10, 1)), indices(bench, 4)
    with bench.inside():
        column = data.reshape((10, 6, 1)).select(1, at)
        far = data.reshape((10, 6, 1)).select(1, VirtualRegister(6))
    (record,) = bench.issue("tensor_copy", out, column)
    np.testing.assert_array_equal(out.array()[:, 0], data.array()[:, 4])
    assert at.region() in record.reads
    bench.refuses("out-of-bounds", "tensor_copy", out, far)
    with bench.inside():
        shifted = column[:, 0:1]
    bench.issue("tensor_copy", out, shifted)


def test_an_index_per_row_is_for_dma_alone(machine):
    bench = machine()
    data, rows, out = table(bench), indices(bench, 1, 2), bench.empty((2, 6))
    with bench.inside():
        source = data.vector_select(0, rows)
    bench.refuses("dynamic-operand", "tensor_copy", out, source)
    with pytest.raises(KernelError, match="known only when an instruction runs"):
        source.array()


def test_descriptors_made_beforehand_know_no_dynamic_address(machine):
    bench = machine()
    data, rows, out = table(bench), indices(bench, 1, 2), bench.empty((2, 6))
    with bench.inside():
        indexed, moved = data.vector_select(0, rows), data.ap([[6, 2], [1, 6]], scalar_offset=VirtualRegister(1))
    bench.refuses("dge-dynamic", "dma_copy", out, indexed, dge_mode=dge_mode.hwdge)
    bench.refuses("dge-dynamic", "dma_copy", out, moved, dge_mode=dge_mode.none)
    bench.issue("dma_copy", out, moved, dge_mode=dge_mode.hwdge)
    bench.issue("dma_copy", out, indexed, dge_mode=dge_mode.swdge)


def test_dynamic_views_are_refused_where_they_cannot_be(machine):
    bench = machine()
    data, tile, rows, one = table(bench), table(bench, buffer="sbuf"), indices(bench, 1, 2), indices(bench, 1)
    refused(bench, "dynamic-dim", lambda: tile.vector_select(0, rows))
    refused(bench, "dynamic-dim", lambda: data.vector_select(1, rows))
    refused(bench, "dynamic-dim", lambda: data.vector_select(0, rows)[0:1])
    refused(bench, "dynamic-dim", lambda: data.ap([[6, 2], [1, 6]], vector_offset=rows, indirect_dim=1))
    refused(bench, "dynamic-offset", lambda: data.ap([[6, 2], [1, 6]], vector_offset=rows, scalar_offset=one))
    refused(bench, "dynamic-offset", lambda: data.ap([[6, 3], [1, 6]], vector_offset=rows))
    refused(bench, "dynamic-offset", lambda: data.ap([[6, 2], [1, 6]], scalar_offset=rows))
    refused(bench, "dynamic-offset", lambda: data.ap([[6, 2], [1, 6]], scalar_offset=bench.tile(np.ones((1, 1)))))
    refused(bench, "dynamic-offset", lambda: data.select(0, "three"))
    refused(bench, "dynamic-view", lambda: data.select(0, one).select(0, one))
    refused(bench, "dynamic-view", lambda: data.vector_select(0, rows).view("int16"))
    refused(bench, "view-dim", lambda: data.ap([[6, 2], [1, 6]], scalar_offset=one, indirect_dim=2))
    refused(bench, "ap-partition", lambda: tile.ap([[3, 2], [1, 2]], scalar_offset=one))
    with bench.inside():
        wide = data.ap([[6, 2], [1, 6]], vector_offset=bench.tile(np.ones((2, 2), np.int32)))
    bench.refuses("dynamic-offset", "dma_copy", bench.empty((2, 6)), wide)


def test_a_price_only_run_prices_what_it_cannot_place(machine):
    bench = machine(execute=False)
    data, rows, out = bench.tile(np.zeros((10, 6)), buffer="shared_hbm"), indices(bench, 1, 2), bench.empty((2, 6))
    with bench.inside():
        indexed, moved = data.vector_select(0, rows), data.ap([[6, 2], [1, 6]], scalar_offset=VirtualRegister())
    (first,) = bench.issue("dma_copy", out, indexed)
    (second,) = bench.issue("dma_copy", out, moved)
    assert first.price.transfer.descriptors == 2 and second.price.transfer.dge == "hw"


def test_dma_transpose_gathers_column_by_column_of_its_indices(machine, rng):
    bench = machine()
    data = bench.tile(rng.standard_normal((40, 24)), "bfloat16", "shared_hbm")
    rows = bench.tile(rng.integers(0, 40, (16, 1)).astype(np.uint32))
    out = bench.empty((24, 16), "bfloat16")
    with bench.inside():
        source = data.vector_select(0, rows)
        signed = data.vector_select(0, bench.tile(np.zeros((16, 1), np.int32)))
        odd = data.ap([[24, 8], [1, 24]], vector_offset=rows)
    bench.issue("dma_transpose", out, source)
    np.testing.assert_array_equal(out.array(), data.array()[rows.array()[:, 0]].T)
    bench.refuses("dma-transpose", "dma_transpose", out, signed)
    bench.refuses("dma-transpose", "dma_transpose", bench.empty((24, 8), "bfloat16"), odd)
    bench.refuses("dma-transpose", "dma_transpose", out, source, dge_mode=dge_mode.hwdge)
    bench.refuses("oob-mode", "dma_transpose", out, data[0:16], oob_mode=oob_mode.skip)
