import numpy as np
import pytest

from kernels_neuron.sim.isa.enums import reduce_cmd as ReduceCmd
from kernels_neuron.sim.isa.ops import OPS
from kernels_neuron.sim.isa.select import FP32_MIN


def wide(tile):
    return tile.array().astype(np.float64).reshape(tile.shape[0], -1)


# ---- tensor_copy_predicated


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("predicate_dtype", ["uint8", "uint16", "uint32"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_tensor_copy_predicated_matches_numpy(machine, rng, hostile, dtype, predicate_dtype, reverse):
    bench = machine()
    old, new = hostile((17, 4, 6), dtype), hostile((17, 24), dtype)
    take = rng.integers(0, 3, (17, 24)).astype(predicate_dtype)
    dst = bench.tile(old, dtype)
    bench.issue(
        "tensor_copy_predicated", dst=dst, src=bench.tile(new, dtype), predicate=bench.tile(take), reverse_pred=reverse
    )
    chosen = np.where((take != 0) != reverse, new, old.reshape(17, 24))
    np.testing.assert_array_equal(
        dst.array().reshape(17, 24).view(np.uint8), np.ascontiguousarray(chosen).view(np.uint8)
    )


def test_tensor_copy_predicated_takes_a_number(machine):
    bench = machine()
    dst = bench.tile(np.ones((1, 3)), "bfloat16")
    bench.issue("tensor_copy_predicated", dst=dst, src=-2.0, predicate=bench.tile(np.array([[0, 1, 0]], np.uint8)))
    assert dst.array().astype(np.float32).tolist() == [[1.0, -2.0, 1.0]]


def test_tensor_copy_predicated_pair_fills_a_new_tile_and_one_alone_does_not(machine):
    bench = machine()
    source, predicate = bench.tile(np.ones((4, 6))), bench.tile(np.tile(np.array([0, 1, 1], np.uint8), (4, 2)))
    dst, sink = bench.empty((4, 6)), bench.empty((4, 6))
    bench.issue("tensor_copy_predicated", dst=dst, src=source, predicate=predicate)
    message = bench.refuses("unwritten-read", "tensor_copy", dst=sink, src=dst)
    assert "nothing has written" in message
    bench.issue("tensor_copy", dst=sink[:, 1:3], src=dst[:, 1:3])
    bench.issue("tensor_copy_predicated", dst=dst, src=source, predicate=predicate, reverse_pred=True)
    bench.issue("tensor_copy", dst=sink, src=dst)


def test_tensor_copy_predicated_price(machine):
    bench = machine()
    dst, src = bench.tile(np.zeros((128, 512))), bench.tile(np.zeros((128, 512)))
    for buffer, cycles in (("sbuf", 1024), ("psum", 512)):
        predicate = bench.tile(np.zeros((128, 512), np.uint8), buffer=buffer)
        (record,) = bench.issue("tensor_copy_predicated", dst=dst, src=src, predicate=predicate)
        assert record.price.issue_ns == pytest.approx(cycles / 0.96 + 70)


# ---- select_reduce


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_select_reduce_matches_numpy(machine, rng, hostile, close, dtype, reverse):
    bench = machine()
    data = bench.tile(hostile((17, 33), dtype), dtype)
    take = rng.integers(-1, 2, (17, 33)).astype(np.int8)
    otherwise = bench.tile(rng.standard_normal((17, 1)).astype(np.float32))
    out, largest = bench.empty((17, 33)), bench.empty((17, 1))
    bench.issue(
        "select_reduce",
        dst=out,
        predicate=bench.tile(take),
        on_true=data,
        on_false=otherwise,
        reduce_res=largest,
        reduce_cmd=ReduceCmd.reset_reduce,
        reverse_pred=reverse,
    )
    expected = np.where((take != 0) != reverse, wide(data), wide(otherwise))
    close(out, expected)
    close(largest, expected.max(axis=1))


def test_select_reduce_goes_on_from_the_last_maximum(machine):
    bench = machine()
    yes, out, largest = bench.tile(np.ones((1, 4), np.uint8)), bench.empty((1, 4)), bench.empty((1, 1))
    high, low = bench.tile(np.full((1, 4), 9.0)), bench.tile(np.full((1, 4), 1.0))
    call = lambda tile, **kwargs: bench.issue("select_reduce", out, yes, tile, 0.0, **kwargs)  # noqa: E731
    call(high, reduce_cmd=ReduceCmd.reset_reduce)
    call(low, reduce_cmd=ReduceCmd.reduce, reduce_res=largest)
    assert largest.array().item() == 9.0


def test_select_reduce_price(machine):
    bench = machine()
    data, take = bench.tile(np.zeros((128, 512))), bench.tile(np.zeros((128, 512), np.uint8))
    (record,) = bench.issue("select_reduce", data, take, data, 0.0)
    assert record.price.issue_ns == pytest.approx(512 / 0.96 + 70)


# ---- range_select


@pytest.mark.parametrize("start", [0, 100])
@pytest.mark.parametrize(("low", "high"), [("greater_equal", "less"), ("greater", "less_equal"), ("equal", "less")])
def test_range_select_matches_numpy(machine, rng, hostile, close, low, high, start):
    bench = machine()
    data = bench.tile(hostile((17, 40)))
    first, last = (start + rng.integers(0, 40, (17, 1)).astype(np.float32) for _ in range(2))
    out, largest = bench.empty((17, 40)), bench.empty((17, 1))
    bench.issue(
        "range_select",
        dst=out,
        on_true_tile=data,
        comp_op0=OPS[low],
        comp_op1=OPS[high],
        bound0=bench.tile(first),
        bound1=bench.tile(last),
        reduce_res=largest,
        range_start=start,
    )
    index = start + np.arange(40)[None]
    keep = getattr(np, low)(index, first) & getattr(np, high)(index, last)
    expected = np.where(keep, wide(data), FP32_MIN)
    close(out, expected)
    close(largest, expected.max(axis=1))


def test_range_select_false_value_becomes_minus_infinity_in_a_narrow_dtype(machine):
    bench = machine()
    bound, out = bench.tile(np.zeros((1, 1))), bench.empty((1, 3), "bfloat16")
    data = bench.tile(np.ones((1, 3)))
    bench.issue("range_select", out, data, OPS["greater_equal"], OPS["less"], bound, bound)
    assert np.isneginf(out.array().astype(np.float32)).all()


def test_range_select_price(machine):
    bench = machine()
    data, bound = bench.tile(np.zeros((128, 512))), bench.tile(np.zeros((128, 1)))
    (record,) = bench.issue("range_select", data, data, OPS["greater_equal"], OPS["less"], bound, bound)
    assert record.price.issue_ns == pytest.approx(512 / 0.96 + 70)
