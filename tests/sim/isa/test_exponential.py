import numpy as np
import pytest

from kernels_neuron.sim.isa.enums import reduce_cmd as ReduceCmd


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("by_row", [False, True])
def test_exponential_matches_numpy(machine, rng, close, dtype, by_row):
    bench = machine("trn3")
    data = bench.tile(rng.standard_normal((9, 4, 8)), dtype)
    most = rng.standard_normal((9, 1)).astype(np.float32) if by_row else np.float32(0.5)
    out, total = bench.empty((9, 32), dtype), bench.empty((9, 1))
    bench.issue(
        "exponential",
        out,
        data,
        max_value=bench.tile(most) if by_row else 0.5,
        reduce_res=total,
        reduce_cmd=ReduceCmd.reset_reduce,
    )
    expected = np.exp(data.array().astype(np.float64).reshape(9, 32) - most)
    close(out, expected, slack=4)
    np.testing.assert_allclose(total.array(), expected.sum(axis=1, keepdims=True), rtol=1e-5)


def test_exponential_chains_go_on_or_start_where_they_are_told(machine):
    bench = machine("trn3")
    zeros, out, total = bench.tile(np.zeros((2, 4))), bench.empty((2, 4)), bench.empty((2, 1))
    bench.issue("exponential", out, zeros, reduce_cmd=ReduceCmd.load_reduce, reduce_init=10.0)
    bench.issue("exponential", out, zeros, reduce_cmd=ReduceCmd.reduce, reduce_res=total)
    assert total.array().tolist() == [[18.0], [18.0]]
    bench.issue("exponential", out, zeros)
    bench.refuses("accumulator-undefined", "exponential", out, zeros, reduce_cmd=ReduceCmd.reduce)


def test_exponential_price(machine):
    bench = machine("trn3")
    (record,) = bench.issue("exponential", bench.empty((128, 2048)), bench.tile(np.zeros((128, 2048))))
    assert record.engine == "vector"
    assert record.price.issue_ns == pytest.approx(512 / 1.2 + 70)


def test_exponential_refuses(machine):
    bench = machine("trn3")
    data, out, row = bench.tile(np.zeros((2, 4))), bench.empty((2, 4)), bench.empty((2, 1))
    bench.refuses("reduce-idle", "exponential", out, data, reduce_res=row)
    bench.refuses("reduce-init", "exponential", out, data, reduce_init=1.0)
    bench.refuses("operand-rank", "exponential", bench.empty((2, 1, 1, 2, 2)), data)
    bench.refuses("operand-dtype", "exponential", bench.empty((2, 4), "uint32"), data)
    bench.refuses("enum-value", "exponential", out, data, reduce_cmd=ReduceCmd.reset)
    old = machine()
    old.refuses("chip-generation", "exponential", old.empty((2, 4)), old.tile(np.zeros((2, 4))))
