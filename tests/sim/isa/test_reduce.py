import numpy as np
import pytest

from kernels_neuron.sim.isa.enums import reduce_cmd as ReduceCmd
from kernels_neuron.sim.isa.ops import OPS


def wide(tile):
    return tile.array().astype(np.float64).reshape(tile.shape[0], -1)


# ---- tensor_reduce


@pytest.mark.parametrize("partitions", [1, 17, 128])
@pytest.mark.parametrize(("op", "function"), [("add", np.sum), ("maximum", np.max), ("minimum", np.min)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_tensor_reduce_matches_numpy(machine, hostile, close, op, function, dtype, partitions):
    bench = machine()
    data, out = bench.tile(hostile((partitions, 45), dtype), dtype), bench.empty((partitions, 1))
    bench.issue("tensor_reduce", dst=out, op=OPS[op], data=data, axis=1)
    with np.errstate(all="ignore"):
        close(out, function(wide(data), axis=1), slack=20, magnitude=3e4)


@pytest.mark.parametrize(("axis", "kept"), [((3,), (2, 3)), ((2, 3), (2,)), ((1, 2, 3), ()), (-1, (2, 3))])
def test_tensor_reduce_folds_trailing_dims_into_any_shape(machine, rng, close, axis, kept):
    bench = machine()
    values = rng.standard_normal((8, 2, 3, 4)).astype(np.float32)
    out = bench.empty((8, *kept) if kept else (8, 1))
    bench.issue("tensor_reduce", dst=out, op=OPS["add"], data=bench.tile(values), axis=axis)
    close(out, values.astype(np.float64).sum(axis=axis), slack=4)


def test_tensor_reduce_negates_at_no_cost(machine, rng, close):
    bench = machine()
    data, out = bench.tile(rng.standard_normal((8, 64)).astype(np.float32)), bench.empty((8, 1))
    (plain,) = bench.issue("tensor_reduce", dst=out, op=OPS["maximum"], data=data, axis=1)
    (negated,) = bench.issue("tensor_reduce", dst=out, op=OPS["maximum"], data=data, axis=1, negate=True)
    close(out, -wide(data).max(axis=1))
    assert plain.price == negated.price


def test_tensor_reduce_reads_a_permuted_view(machine, rng, close):
    bench = machine()
    values = rng.standard_normal((8, 5, 7)).astype(np.float32)
    out = bench.empty((8, 7))
    bench.issue("tensor_reduce", dst=out, op=OPS["add"], data=bench.tile(values).permute((0, 2, 1)), axis=2)
    close(out, values.astype(np.float64).sum(axis=1), slack=4)


@pytest.mark.parametrize(("op", "expected"), [("bitwise_or", 7), ("bitwise_and", 0), ("bitwise_xor", 7)])
def test_tensor_reduce_bit_operations_work_on_bits(machine, op, expected):
    bench = machine()
    out = bench.empty((1, 1), "uint8")
    bench.issue("tensor_reduce", dst=out, op=OPS[op], data=bench.tile(np.array([[1, 2, 4]], np.uint8)), axis=1)
    assert out.array().item() == expected


@pytest.mark.parametrize(
    ("op", "expected"), [("logical_and", 0), ("logical_or", 1), ("logical_xor", 0), ("subtract", -5)]
)
def test_tensor_reduce_knows_the_other_legal_reductions(machine, op, expected):
    bench = machine()
    out = bench.empty((1, 1))
    bench.issue("tensor_reduce", dst=out, op=OPS[op], data=bench.tile(np.array([[2.0, 0.0, 7.0]], np.float32)), axis=1)
    assert out.array().item() == expected


def test_tensor_reduce_price(machine):
    bench = machine()

    def issue_ns(dtype, op):
        data, out = bench.tile(np.zeros((128, 512)), dtype), bench.empty((128, 1), dtype)
        return bench.issue("tensor_reduce", dst=out, op=OPS[op], data=data, axis=1)[0].price.issue_ns

    assert issue_ns("float32", "add") == pytest.approx(512 / 0.96 + 70)
    assert issue_ns("bfloat16", "add") == pytest.approx(256 / 0.96 + 70)
    assert issue_ns("bfloat16", "minimum") == pytest.approx(512 / 0.96 + 70)


# ---- tensor_scalar_reduce


@pytest.mark.parametrize(
    ("op", "function"), [("add", np.sum), ("multiply", np.prod), ("maximum", np.max), ("minimum", np.min)]
)
def test_tensor_scalar_reduce_matches_numpy(machine, hostile, close, op, function):
    bench = machine()
    data, out, result = bench.tile(hostile((17, 30))), bench.empty((17, 30)), bench.empty((17, 1))
    bench.issue(
        "tensor_scalar_reduce",
        dst=out,
        data=data,
        op0=OPS["multiply"],
        operand0=1.5,
        reduce_op=OPS[op],
        reduce_res=result,
    )
    with np.errstate(all="ignore"):
        expected = (wide(data) * 1.5).astype(np.float32).astype(np.float64)
        close(out, expected)
        close(result, function(expected, axis=1), slack=20, magnitude=3e4)


def test_tensor_scalar_reduce_carries_its_registers_from_call_to_call(machine, close):
    bench = machine()
    ones, result = bench.tile(np.ones((4, 8))), bench.empty((4, 1))
    call = lambda **kwargs: bench.issue(  # noqa: E731
        "tensor_scalar_reduce", dst=ones, data=ones, op0=OPS["multiply"], operand0=1.0, reduce_op=OPS["add"], **kwargs
    )
    call()
    call(reduce_cmd=ReduceCmd.reduce, reduce_res=result)
    close(result, np.full((4, 1), 16.0))
    call(reduce_cmd=ReduceCmd.load_reduce, reduce_init=100.0, reduce_res=result, reduce_res_negate=True)
    close(result, np.full((4, 1), -108.0))
    call(reduce_cmd=ReduceCmd.reduce, reduce_res=result)
    close(result, np.full((4, 1), 116.0))


@pytest.mark.parametrize(("value", "expected"), [("float32", 8.01), ("rounded", 8.0)])
def test_tensor_scalar_reduce_accumulates_what_the_switch_says(machine, value, expected):
    bench = machine(switches={"accumulated_value": value})
    data, out, result = bench.tile(np.full((1, 8), 1.00125)), bench.empty((1, 8), "bfloat16"), bench.empty((1, 1))
    bench.issue(
        "tensor_scalar_reduce",
        dst=out,
        data=data,
        op0=OPS["multiply"],
        operand0=1.0,
        reduce_op=OPS["add"],
        reduce_res=result,
    )
    assert result.array().item() == pytest.approx(expected, rel=1e-5)


def test_tensor_scalar_reduce_price(machine):
    bench = machine()
    tile, result = bench.tile(np.zeros((128, 512))), bench.empty((128, 1))
    arguments = {"dst": tile, "data": tile, "op0": OPS["add"], "operand0": 0.0, "reduce_op": OPS["add"]}
    (alone,) = bench.issue("tensor_scalar_reduce", **arguments)
    main, readout = bench.issue("tensor_scalar_reduce", **arguments, reduce_res=result)
    assert alone.price == main.price
    assert main.price.issue_ns == pytest.approx(512 / 0.96 + 70)
    assert readout.price.issue_ns == pytest.approx(64 / 0.96 + 70)
    assert readout.writes == (result.region(),)


# ---- scans


def test_tensor_tensor_scan_matches_numpy(machine, rng, close):
    bench = machine()
    first, second = (rng.standard_normal((17, 25)).astype(np.float32) for _ in range(2))
    initial = rng.standard_normal((17, 1)).astype(np.float32)
    out = bench.empty((17, 25))
    bench.issue(
        "tensor_tensor_scan",
        dst=out,
        data0=bench.tile(first),
        data1=bench.tile(second),
        initial=bench.tile(initial),
        op0=OPS["multiply"],
        op1=OPS["add"],
    )
    state, expected = initial[:, 0].astype(np.float64), []
    for i in range(25):
        state = first[:, i] * state + second[:, i]
        expected.append(state)
    np.testing.assert_allclose(out.array(), np.stack(expected, axis=1), rtol=1e-4, atol=1e-5)


def test_tensor_tensor_scan_keeps_its_state_in_float32(machine):
    bench = machine()
    ones, small = bench.tile(np.ones((1, 64))), bench.tile(np.full((1, 64), 2.0**-9))
    out = bench.empty((1, 64), "bfloat16")
    bench.issue(
        "tensor_tensor_scan", dst=out, data0=ones, data1=small, initial=1.0, op0=OPS["multiply"], op1=OPS["add"]
    )
    assert out.array()[0, -1] == 1.125


@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
def test_tensor_tensor_scan_reverses_each_operator(machine, reverse0, reverse1):
    bench = machine()
    first, second, out = bench.tile(np.array([[5.0, 1.0]])), bench.tile(np.array([[-1.0, 1.0]])), bench.empty((1, 2))
    bench.issue(
        "tensor_tensor_scan",
        dst=out,
        data0=first,
        data1=second,
        initial=2.0,
        op0=OPS["subtract"],
        op1=OPS["subtract"],
        reverse0=reverse0,
        reverse1=reverse1,
    )
    state, steps = 2.0, []
    for a, b in ((5.0, -1.0), (1.0, 1.0)):
        inner = state - a if reverse0 else a - state
        state = b - inner if reverse1 else inner - b
        steps.append(state)
    assert out.array().tolist() == [steps]


def test_tensor_tensor_scan_price(machine):
    bench = machine()
    tile = bench.tile(np.zeros((128, 512)))
    (record,) = bench.issue(
        "tensor_tensor_scan", dst=tile, data0=tile, data1=tile, initial=0.0, op0=OPS["multiply"], op1=OPS["add"]
    )
    assert record.price.issue_ns == pytest.approx(1024 / 0.96 + 70)


@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum"])
def test_tensor_scalar_cumulative_matches_numpy(machine, rng, close, op):
    bench = machine()
    values = rng.standard_normal((17, 12)).astype(np.float32)
    out = bench.empty((17, 12))
    bench.issue("tensor_scalar_cumulative", dst=out, src=bench.tile(values), op0=OPS["add"], op1=OPS[op], imm0=0.5)
    accumulate = getattr(np, op).accumulate((values + np.float32(0.5)).astype(np.float64), axis=1)
    close(out, accumulate, slack=20)


def test_tensor_scalar_cumulative_puts_the_new_value_on_the_left(machine):
    bench = machine()
    data, out = bench.tile(np.array([[5.0, 1.0, 4.0]])), bench.empty((1, 3))
    arguments = {"dst": out, "src": data, "op0": OPS["multiply"], "op1": OPS["subtract"], "imm0": 1.0}
    bench.issue("tensor_scalar_cumulative", **arguments)
    assert out.array().tolist() == [[5.0, -4.0, 8.0]]
    bench.issue("tensor_scalar_cumulative", **arguments, reduce_cmd=ReduceCmd.reduce)
    assert out.array().tolist() == [[-3.0, 4.0, 0.0]]
    bench.issue("tensor_scalar_cumulative", **arguments, reduce_cmd=ReduceCmd.load_reduce, imm1=1.0)
    assert out.array().tolist() == [[4.0, -3.0, 7.0]]


def test_tensor_scalar_cumulative_price(machine):
    bench = machine()
    tile = bench.tile(np.zeros((128, 512)))
    (record,) = bench.issue("tensor_scalar_cumulative", dst=tile, src=tile, op0=OPS["add"], op1=OPS["add"], imm0=0.0)
    assert record.price.issue_ns == pytest.approx(1024 / 0.96 + 70)


# ---- batch-norm statistics


@pytest.mark.parametrize("count", [1, 2, 7, 512])
@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_bn_stats_matches_numpy(machine, rng, count, mean):
    bench = machine()
    values = (rng.standard_normal((17, count)) + mean).astype(np.float32)
    out = bench.empty((17, 6))
    bench.issue("bn_stats", dst=out, data=bench.tile(values))
    for column, half in ((0, values[:, 0::2]), (3, values[:, 1::2])):
        half = half.astype(np.float64)
        size = half.shape[1]
        expected = [np.full(17, size), half.mean(axis=1), half.var(axis=1) * size] if size else np.zeros((3, 17))
        np.testing.assert_allclose(
            out.array()[:, column : column + 3].T, expected, rtol=2e-6, atol=1e-3 if mean else 1e-5
        )


def test_bn_stats_price(machine):
    bench = machine()
    (record,) = bench.issue("bn_stats", dst=bench.empty((128, 6)), data=bench.tile(np.zeros((128, 512))))
    assert record.price.issue_ns == pytest.approx(512 / 0.96 + 70)


@pytest.mark.parametrize("mean", [0.0, 1e4])
@pytest.mark.parametrize("widths", [(1,), (512,), (512, 512, 77), (3, 2)])
def test_bn_aggr_matches_numpy(machine, rng, widths, mean):
    bench = machine()
    values = (rng.standard_normal((17, sum(widths))) + mean).astype(np.float32)
    stats, out, start = bench.empty((17, len(widths), 6)), bench.empty((17, 2)), 0
    for i, width in enumerate(widths):
        bench.issue("bn_stats", dst=stats[:, i], data=bench.tile(values[:, start : start + width]))
        start += width
    bench.issue("bn_aggr", dst=out, data=stats)
    exact = values.astype(np.float64)
    np.testing.assert_allclose(out.array()[:, 0], exact.mean(axis=1), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(out.array()[:, 1], exact.var(axis=1), rtol=1e-3 if mean else 1e-5, atol=1e-6)


def test_bn_aggr_price(machine):
    bench = machine()
    (record,) = bench.issue("bn_aggr", dst=bench.empty((128, 2)), data=bench.tile(np.ones((128, 96))))
    assert record.price.issue_ns == pytest.approx(13 * 32 / 0.96 + 70)
