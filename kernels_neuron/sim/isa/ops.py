"""Operators: the tokens passed as `op=`, with what the ALU, the ScalarE function table and reductions do for them.

`nl.add` is one object: a token here, a tile function when called inside a kernel (see shim/elementwise.py).
Source: NKI reference, operator tables.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_neuron.sim import array

Function = Callable[..., np.ndarray]


@dataclass(frozen=True, eq=False)
class Op:
    """One operator.

    alu       float32 arrays in, float32 out (integers for bitvec ops); None where the ALU has no such operation
    unary     the ALU form takes one operand
    bitvec    works on raw integer bits, no casts
    reduce    numpy ufunc to reduce with, None where it is not a legal reduction
    identity  start value of a reduction
    act       float32 in, float32 out on ScalarE; None where the function table has no entry
    min_generation  first chip generation that has the ALU form
    engines   engines that run the ALU form
    """

    name: str
    alu: Function | None = None
    unary: bool = False
    bitvec: bool = False
    reduce: np.ufunc | None = None
    identity: float | None = None
    act: Function | None = None
    min_generation: int = 2
    engines: tuple[str, ...] = ("vector",)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply to tiles: a new SBUF tile, through the instruction that has this operator."""
        from kernels_neuron.sim.shim import elementwise

        return elementwise.apply(self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"nl.{self.name}"


def _bool(function: Callable[..., Any]) -> Function:
    return lambda a, b: function(a, b).astype(np.float32)


def _logical(function: Callable[..., Any]) -> Function:
    return lambda a, b: function(a != 0, b != 0).astype(np.float32)


def _pick(first: Callable[..., Any]) -> Function:
    """The signed operand of larger or smaller magnitude; a tie gives the second."""

    def call(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(first(np.abs(a), np.abs(b)), a, b)

    return call


def _shift(function: Callable[..., Any]) -> Function:
    # right_shift is logical on signed types too, so both shift the unsigned bits
    def call(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        unsigned = np.dtype(f"uint{a.dtype.itemsize * 8}")
        return function(a.view(unsigned), b.astype(unsigned)).view(a.dtype)

    return call


_exp, _tanh, _erf, _log = (array.torch_unary(name) for name in ("exp", "tanh", "erf", "log"))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return (1.0 / (1.0 + _exp(-x))).astype(np.float32)


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return (
        0.5 * x * (1.0 + _tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)))
    ).astype(np.float32)


def _gelu(x: np.ndarray) -> np.ndarray:
    return (0.5 * x * (1.0 + _erf(x * np.float32(math.sqrt(0.5))))).astype(np.float32)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, np.float32(0)).astype(np.float32)


def _sin(x: np.ndarray) -> np.ndarray:
    """sin on [-pi, pi]; outside, the table extrapolates a cubic (sin(9.0) is about 27.65)."""
    inside = np.abs(x) <= math.pi
    away = np.abs(x) - math.pi
    cubic = -np.sign(x) * (away - away**3 / 6)
    return np.where(inside, np.sin(x), cubic).astype(np.float32)


def _gelu_dx(x: np.ndarray) -> np.ndarray:
    return (
        0.5 * (1.0 + _erf(x * np.float32(math.sqrt(0.5)))) + x * _exp(-0.5 * x * x) / np.float32(math.sqrt(2 * math.pi))
    ).astype(np.float32)


def _silu_dx(x: np.ndarray) -> np.ndarray:
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


def _gelu_sigmoid_dx(x: np.ndarray) -> np.ndarray:
    s = _sigmoid(np.float32(1.702) * x)
    return s * (1 + np.float32(1.702) * x * (1 - s))


_ANY = ("vector", "scalar", "gpsimd")
_TABLE = [
    # arithmetic
    Op("add", np.add, reduce=np.add, identity=0.0, engines=_ANY),
    Op("subtract", np.subtract, reduce=np.subtract, identity=0.0),
    Op("multiply", np.multiply, reduce=np.multiply, identity=1.0, engines=_ANY),
    Op("maximum", np.maximum, reduce=np.maximum, identity=-math.inf),
    Op("minimum", np.minimum, reduce=np.minimum, identity=math.inf),
    Op("equal", _bool(np.equal)),
    Op("not_equal", _bool(np.not_equal)),
    Op("greater", _bool(np.greater)),
    Op("greater_equal", _bool(np.greater_equal)),
    Op("less", _bool(np.less)),
    Op("less_equal", _bool(np.less_equal)),
    Op("logical_and", _logical(np.logical_and), reduce=np.logical_and, identity=1.0),
    Op("logical_or", _logical(np.logical_or), reduce=np.logical_or, identity=0.0),
    Op("logical_xor", _logical(np.logical_xor), reduce=np.logical_xor, identity=0.0),
    Op("power", np.power, engines=("gpsimd",)),
    Op("abs_max", _pick(np.greater), min_generation=4),
    Op("abs_min", _pick(np.less), min_generation=4),
    # unary arithmetic; square and relu are ALU operations from trn3 on, activation functions everywhere
    Op("abs", np.abs, unary=True, act=np.abs),
    Op("square", np.square, unary=True, act=np.square, min_generation=4),
    Op("relu", lambda x: np.maximum(x, 0), unary=True, act=lambda x: np.maximum(x, 0), min_generation=4),
    Op("rsqrt", lambda x: 1 / np.sqrt(x), unary=True, act=lambda x: 1 / np.sqrt(x), engines=("gpsimd", "scalar")),
    Op("reciprocal", np.reciprocal, unary=True, act=np.reciprocal, engines=("vector", "scalar")),
    # bitvec
    Op("invert", np.invert, unary=True, bitvec=True),
    Op("bitwise_and", np.bitwise_and, bitvec=True, reduce=np.bitwise_and, identity=-1),
    Op("bitwise_or", np.bitwise_or, bitvec=True, reduce=np.bitwise_or, identity=0),
    Op("bitwise_xor", np.bitwise_xor, bitvec=True, reduce=np.bitwise_xor, identity=0),
    Op("left_shift", _shift(np.left_shift), bitvec=True),
    Op("right_shift", _shift(np.right_shift), bitvec=True),
    # ScalarE functions; formulas from the SDK 2.26 documentation and from the functions they are named after
    Op("copy", act=lambda x: x),
    Op("sigmoid", act=_sigmoid),
    Op("gelu", act=_gelu),
    Op("gelu_dx", act=_gelu_dx),
    Op("gelu_apprx_tanh", act=_gelu_tanh),
    Op("gelu_apprx_sigmoid", act=lambda x: x * _sigmoid(np.float32(1.702) * x)),
    Op("gelu_apprx_sigmoid_dx", act=_gelu_sigmoid_dx),
    Op("silu", act=lambda x: x * _sigmoid(x)),
    Op("silu_dx", act=_silu_dx),
    Op("tanh", act=_tanh),
    Op("softplus", act=_softplus),
    Op("mish", act=lambda x: x * _tanh(_softplus(x))),
    Op("erf", act=_erf),
    Op("erf_dx", act=lambda x: np.float32(2 / math.sqrt(math.pi)) * _exp(-x * x)),
    Op("exp", act=_exp),
    Op("log", act=_log),
    Op("sin", act=_sin),
    Op("arctan", act=np.arctan),
    Op("sqrt", act=np.sqrt),
    Op("sign", act=np.sign),
    # tokens without a function form
    Op("prelu"),
    Op("bypass"),
    Op("average"),
]
OPS: dict[str, Op] = {op.name: op for op in _TABLE}
