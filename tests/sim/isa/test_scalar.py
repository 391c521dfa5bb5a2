import math

import numpy as np
import pytest
import torch

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
