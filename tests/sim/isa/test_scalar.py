import math

import numpy as np
import pytest
import torch

from kernels_neuron.sim.isa.enums import engine as Engine
from kernels_neuron.sim.isa.enums import reduce_cmd as ReduceCmd
from kernels_neuron.sim.isa.ops import OPS

sigmoid = torch.sigmoid
gelu = torch.nn.functional.gelu
# the function in float64; None: any input is in its valid range
FUNCTIONS = {
    "copy": lambda x: x,
    "square": torch.square,
    "sigmoid": sigmoid,
    "relu": torch.relu,
    "gelu": gelu,
    "gelu_apprx_tanh": lambda x: gelu(x, approximate="tanh"),
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "silu": torch.nn.functional.silu,
    "tanh": torch.tanh,
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "mish": torch.nn.functional.mish,
    "erf": torch.erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * torch.exp(-x * x),
    "exp": torch.exp,
    "log": torch.log,
    "sin": torch.sin,
    "arctan": torch.atan,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "sign": torch.sign,
    "abs": torch.abs,
}
DERIVATIVES = {"gelu_dx": "gelu", "silu_dx": "silu", "gelu_apprx_sigmoid_dx": "gelu_apprx_sigmoid"}
POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal")


def expected(name, values):
    exact = torch.tensor(values.astype(np.float64), requires_grad=True)
    if name in DERIVATIVES:
        FUNCTIONS[DERIVATIVES[name]](exact).sum().backward()
        return exact.grad.numpy()
    return FUNCTIONS[name](exact).detach().numpy()


@pytest.mark.parametrize("name", [*FUNCTIONS, *DERIVATIVES])
def test_activation_matches_numpy(machine, rng, name):
    bench = machine()
    values = rng.uniform(-3, 3, (17, 40)).astype(np.float32)
    if name in POSITIVE:
        values = np.abs(values) + np.float32(0.01)
    out = bench.empty((17, 40))
    bench.issue("activation", out, OPS[name], bench.tile(values))
    np.testing.assert_allclose(out.array(), expected(name, values), rtol=3e-6, atol=3e-6)


def test_every_function_of_the_table_is_tested():
    assert {name for name, op in OPS.items() if op.act is not None} == {*FUNCTIONS, *DERIVATIVES}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["copy", "relu", "exp", "square"])
def test_activation_applies_scale_and_bias_to_every_function(machine, rng, close, name, dtype):
    bench = machine()
    data = bench.tile(rng.standard_normal((128, 64)), dtype)
    scale, bias = bench.tile(np.full((128, 1), 2.0)), bench.tile(np.full((128, 1), 3.0), "bfloat16")
    out = bench.empty((128, 64), dtype)
    arguments = np.asarray(data.array().astype(np.float64) * 2 + 3)
    for kwargs in ({"scale": 2.0, "bias": bias}, {"scale": scale, "bias": 3.0}):
        bench.issue("activation", out, OPS[name], data, **kwargs)
        close(out, expected(name, arguments), slack=4)


def test_activation_passes_nan_and_infinity(machine):
    bench = machine()
    out = bench.empty((1, 3))
    bench.issue("activation", out, OPS["exp"], bench.tile(np.array([[np.nan, np.inf, -np.inf]])))
    np.testing.assert_array_equal(out.array(), [[np.nan, np.inf, 0.0]])


def test_activation_sine_outside_its_range_is_the_cubic_that_the_reference_quotes(machine):
    bench = machine()
    out = bench.empty((1, 1))
    bench.issue("activation", out, OPS["sin"], bench.tile(np.array([[9.0]])))
    assert out.array().item() == pytest.approx(27.65, abs=0.05)


def test_activation_accumulates_once_per_call(machine):
    bench = machine()
    ones, out, total = bench.tile(np.ones((4, 8))), bench.empty((4, 8)), bench.empty((4, 1))
    call = lambda command, **kwargs: bench.issue(  # noqa: E731
        "activation", out, OPS["copy"], ones, reduce_op=OPS["add"], reduce_cmd=command, **kwargs
    )
    call(ReduceCmd.reset_reduce)
    call(ReduceCmd.reduce, reduce_res=total)
    assert (total.array() == 16).all()
    call(ReduceCmd.reset, reduce_res=total)
    assert (total.array() == 0).all()
    bench.issue("activation_reduce", out, OPS["copy"], ones, OPS["add"], total)
    assert (total.array() == 8).all()


def test_activation_price(machine):
    bench = machine()
    for buffer, extra in (("sbuf", 123), ("psum", 81)):
        data = bench.tile(np.ones((128, 512)), buffer=buffer)
        (record,) = bench.issue("activation", bench.empty((128, 512)), OPS["exp"], data)
        assert record.engine == "scalar" and record.price.table == "exp"
        assert record.price.issue_ns == pytest.approx(512 / 1.2 + 62 + extra)
    (record,) = bench.issue("activation", bench.empty((128, 512)), OPS["copy"], data)
    assert record.price.issue_ns == pytest.approx(512 / 1.2 + 62)


@pytest.mark.parametrize("partitions", [1, 17, 128])
def test_activation_reduce_matches_numpy(machine, rng, partitions):
    bench = machine()
    values = rng.standard_normal((partitions, 33)).astype(np.float32)
    out, total = bench.empty((partitions, 33), "bfloat16"), bench.empty((partitions, 1))
    bench.issue("activation_reduce", out, OPS["exp"], bench.tile(values), OPS["add"], total, scale=0.5)
    exact = np.exp(values.astype(np.float64) * 0.5)
    np.testing.assert_allclose(total.array()[:, 0], exact.sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(out.array().astype(np.float64), exact, rtol=2.0**-8)


def test_activation_reduce_result_may_lie_inside_its_destination(machine):
    bench = machine()
    out = bench.empty((4, 8))
    bench.issue("activation_reduce", out, OPS["copy"], bench.tile(np.ones((4, 8))), OPS["add"], out[:, :1])
    assert out.array()[0].tolist() == [8.0] + [1.0] * 7


def test_activation_reduce_price(machine):
    bench = machine()
    data = bench.tile(np.ones((128, 512)))
    main, readout = bench.issue(
        "activation_reduce", bench.empty((128, 512)), OPS["exp"], data, OPS["add"], bench.empty((128, 1))
    )
    assert main.price.issue_ns == pytest.approx(512 / 1.2 + 62 + 123)
    assert readout.price.issue_ns == pytest.approx(64 / 1.2 + 62)


# ---- activate2


@pytest.mark.parametrize(
    ("op0", "op1", "reverse"),
    [
        ("multiply", "add", False),
        ("multiply", "subtract", True),
        ("subtract", "bypass", True),
        ("bypass", "bypass", False),
    ],
)
def test_activate2_matches_numpy(machine, rng, close, op0, op1, reverse):
    bench = machine("trn3")
    data, row = bench.tile(rng.standard_normal((9, 16))), bench.tile(rng.standard_normal((9, 1)))
    out = bench.empty((9, 16))
    swaps = {"reverse0": reverse and op1 == "bypass", "reverse1": reverse and op1 != "bypass"}
    bench.issue("activate2", out, OPS["sigmoid"], data, row, 0.5, OPS[op0], OPS[op1], **swaps)
    values = data.array().astype(np.float64)
    for name, operand, swap in (
        (op0, row.array().astype(np.float64), swaps["reverse0"]),
        (op1, 0.5, swaps["reverse1"]),
    ):
        if name != "bypass":
            values = getattr(np, name)(*((operand, values) if swap else (values, operand)))
    close(out, 1 / (1 + np.exp(-values)), slack=8)


def test_activate2_prelu_takes_its_slope(machine):
    bench = machine("trn3")
    data, out = bench.tile(np.array([[-2.0, 3.0]])), bench.empty((1, 2))
    bench.issue("activate2", out, OPS["prelu"], data, 0.0, 0.0, OPS["bypass"], OPS["bypass"], relu_param=0.25)
    assert out.array().tolist() == [[-0.5, 3.0]]


@pytest.mark.parametrize(
    ("op", "expected"), [("add", 1.0), ("maximum", 4.0), ("minimum", -5.0), ("abs_max", -5.0), ("abs_min", 2.0)]
)
def test_activate2_reduces_each_row(machine, op, expected):
    bench = machine("trn3")
    data, out, result = bench.tile(np.array([[-5.0, 2.0, 4.0]])), bench.empty((1, 3)), bench.empty((1, 1))
    bench.issue(
        "activate2",
        out,
        OPS["copy"],
        data,
        0.0,
        0.0,
        OPS["bypass"],
        OPS["bypass"],
        reduce_op=OPS[op],
        reduce_res=result,
        reduce_cmd=ReduceCmd.reset_reduce,
    )
    assert result.array().item() == expected


def test_activate2_price(machine):
    bench = machine("trn3")
    tile = bench.tile(np.zeros((128, 512)))
    (record,) = bench.issue("activate2", tile, OPS["copy"], tile, 0.0, 0.0, OPS["bypass"], OPS["bypass"])
    assert record.price.issue_ns == pytest.approx(512 / 1.2 + 62)


def test_activate2_refuses(machine):
    bench = machine("trn3")
    tile, narrow, row = (
        bench.tile(np.zeros((4, 8))),
        bench.tile(np.zeros((4, 1)), "bfloat16"),
        bench.tile(np.zeros((4, 1))),
    )
    legal = {
        "dst": tile,
        "op": OPS["exp"],
        "data": tile,
        "imm0": 1.0,
        "imm1": 0.0,
        "op0": OPS["multiply"],
        "op1": OPS["add"],
    }
    refuses = lambda rule, **broken: bench.refuses(rule, "activate2", **(legal | broken))  # noqa: E731
    bench.issue("activate2", **legal)
    refuses("op-kind", op0=OPS["add"])
    refuses("reverse", op1=OPS["bypass"], reverse1=True)
    refuses("activation-function", op=OPS["maximum"])
    refuses("operand-dtype", imm0=row, imm1=narrow)
    refuses("reduce-op", reduce_cmd=ReduceCmd.reduce)
    refuses("reduce-op", reduce_op=OPS["multiply"])
    refuses("reduce-command", reduce_op=OPS["add"], reduce_cmd=ReduceCmd.load_reduce)
    machine().refuses("chip-generation", "activate2", **legal)


def test_every_partition_has_a_register_of_its_own(machine):
    bench = machine()
    first, second = bench.tile(np.full((32, 2), 1.0)), bench.tile(np.full((32, 2), 5.0), start=32)
    kept, other = bench.empty((32, 1)), bench.empty((32, 1), start=32)
    call = lambda tile, cmd, **kw: bench.issue(  # noqa: E731
        "activation", tile, OPS["copy"], tile, reduce_op=OPS["add"], reduce_cmd=cmd, **kw
    )
    call(first, ReduceCmd.reset_reduce)
    call(second, ReduceCmd.reset_reduce, reduce_res=other)
    call(first, ReduceCmd.reduce, reduce_res=kept)
    assert (kept.array() == 4).all() and (other.array() == 10).all()


def test_a_chain_starts_with_a_reset(machine):
    bench = machine()
    low, high = bench.tile(np.ones((32, 4))), bench.tile(np.ones((32, 4)), start=32)
    result = bench.empty((32, 1), start=32)
    chain = {"op": OPS["copy"], "reduce_op": OPS["add"]}
    command = {cmd.name: {**chain, "reduce_cmd": cmd} for cmd in ReduceCmd}
    bench.issue("activation", low, data=low, **command["reset_reduce"])
    message = bench.refuses("accumulator-undefined", "activation", high, data=high, **command["reduce"])
    assert "reduce_cmd reduce continues accumulator registers" in message
    message = bench.refuses(
        "accumulator-undefined", "activation", high, data=high, reduce_res=result, **command["idle"]
    )
    assert "reduce_cmd idle reads accumulator registers" in message
    bench.issue("activation", high, data=high, **command["reset"])
    bench.issue("activation", high, data=high, reduce_res=result, **command["reduce"])
    np.testing.assert_array_equal(result.array(), np.full((32, 1), 4))
    bench.issue("activation", low, data=low, **command["reduce"])
    bench.refuses("enum-type", "activation", low, data=low, op=OPS["copy"], reduce_op=OPS["add"], reduce_cmd=1)


def test_activate2_continues_only_a_chain_that_was_started(machine):
    bench = machine("trn3")
    tile = bench.tile(np.ones((4, 8)))
    call = {"op": OPS["copy"], "data": tile, "imm0": 0.0, "imm1": 0.0, "op0": OPS["bypass"], "op1": OPS["bypass"]}
    call |= {"reduce_op": OPS["maximum"]}
    bench.refuses("accumulator-undefined", "activate2", tile, reduce_cmd=ReduceCmd.reduce, **call)
    bench.issue("activate2", tile, reduce_cmd=ReduceCmd.reset_reduce, **call)
    bench.issue("activate2", tile, reduce_cmd=ReduceCmd.reduce, **call)


def test_gpsimd_runs_functions_on_trn3_without_registers(machine):
    bench = machine("trn3")
    tile, psum, out = bench.tile(np.ones((4, 8))), bench.tile(np.ones((4, 8)), buffer="psum"), bench.empty((4, 8))
    (record,) = bench.issue("activation", out, OPS["square"], tile, scale=3.0, engine=Engine.gpsimd)
    assert record.engine == "gpsimd" and record.price.issue_ns == pytest.approx((150 + 8) / 1.2)
    np.testing.assert_array_equal(out.array(), np.full((4, 8), 9))
    refuses = lambda rule, *args, bench=bench, **kw: bench.refuses(  # noqa: E731
        rule, "activation", out, OPS["square"], *args, engine=Engine.gpsimd, **kw
    )
    refuses("gpsimd-psum", psum)
    refuses("reduce-command", tile, reduce_op=OPS["add"], reduce_cmd=ReduceCmd.reset_reduce)
    refuses("chip-generation", tile, bench=machine("trn2"))
    refuses("call-signature", tile, bench=machine("trn3", nki="0.6"))
    bench.refuses("enum-value", "activation", out, OPS["square"], tile, engine=Engine.vector)
