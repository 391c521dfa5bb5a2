"""Elementwise instructions, functions and selects on any views."""

import numpy as np
import pytest
from hypothesis import strategies as st
from views import COLUMN, DTYPES, ON_SBUF, RESULT, SOURCE, Operand, Property

from kernels_neuron.sim.isa.ops import OPS

ALU = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": lambda a, b: (a < b).astype(float),
    "greater_equal": lambda a, b: (a >= b).astype(float),
}
FUNCTIONS = {
    "copy": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "square": np.square,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "abs": np.abs,
}
OP, FUNCTION = st.sampled_from([OPS[name] for name in ALU]), st.sampled_from([OPS[name] for name in FUNCTIONS])
NUMBER, FLAG = st.sampled_from([-1.5, -1.0, 0.0, 0.25, 2.0, 3.0]), st.booleans()
PAIRED = st.sampled_from([OPS["multiply"], OPS["add"], OPS["subtract"]])
F32 = Operand(dtypes=("float32",))
MASK = Operand(dtypes=("uint8",), low=0, high=1.9)


def alu(op, left, right, swap=False):
    return ALU[op.name](right, left) if swap else ALU[op.name](left, right)


def scaled(v):
    return FUNCTIONS[v["op"].name](v["data"] * v["scale"] + v["bias"])


def selected(v):
    return np.where((v["predicate"] != 0) != v["reverse_pred"], v["on_true"], v["on_false"])


def ranged(v):
    index = np.arange(v["on_true_tile"].shape[1])
    keep = (index >= v["bound0"]) & (index < v["bound1"])
    return np.where(keep, v["on_true_tile"], -3.4028235e38)


PROPERTIES = [
    Property("tensor_copy", {"dst": RESULT, "src": RESULT}, ("dst",), lambda v: {"dst": v["src"]}),
    Property(
        "tensor_tensor", {"dst": RESULT, "data1": Operand(), "data2": ON_SBUF}, ("dst",),
        lambda v: {"dst": alu(v["op"], v["data1"], v["data2"])}, {"op": OP},
    ),
    Property(
        "tensor_scalar", {"dst": RESULT, "data": Operand(dtypes=DTYPES), "operand1": COLUMN}, ("dst",),
        lambda v: {"dst": alu(v["op1"], alu(v["op0"], v["data"], v["operand0"], v["reverse0"]), v["operand1"])},
        {"op0": OP, "op1": OP, "operand0": NUMBER, "reverse0": FLAG},
    ),
    Property(
        "scalar_tensor_tensor", {"dst": RESULT, "data": SOURCE, "operand0": COLUMN, "operand1": ON_SBUF}, ("dst",),
        lambda v: {"dst": alu(v["op1"], alu(v["op0"], v["data"], v["operand0"]), v["operand1"], v["reverse1"])},
        {"op0": OP, "op1": OP, "reverse1": FLAG},
    ),
    Property(
        "reciprocal", {"dst": RESULT, "data": Operand(low=0.5)}, ("dst",), lambda v: {"dst": 1 / v["data"]}
    ),
    Property(
        "memset", {"dst": RESULT}, ("dst",), lambda v: {"dst": np.full_like(v["dst"], v["value"])},
        {"value": st.sampled_from([0, 1, 7])},
    ),
    Property(
        "activation", {"dst": RESULT, "data": SOURCE, "bias": COLUMN}, ("dst",), lambda v: {"dst": scaled(v)},
        {"op": FUNCTION, "scale": NUMBER},
    ),
    Property(
        "activation_reduce", {"dst": SOURCE, "data": SOURCE, "bias": COLUMN, "reduce_res": COLUMN},
        ("dst", "reduce_res"),
        lambda v: {"dst": scaled(v), "reduce_res": scaled(v).sum(axis=1, keepdims=True)},
        {"op": FUNCTION, "scale": NUMBER, "reduce_op": st.just(OPS["add"])},
    ),
    Property(
        "activate2", {"dst": RESULT, "data": SOURCE, "imm0": COLUMN}, ("dst",),
        lambda v: {"dst": FUNCTIONS[v["op"].name](v["data"] * v["imm0"] + v["imm1"])},
        {"op": FUNCTION, "imm1": NUMBER, "op0": st.just(OPS["multiply"]), "op1": st.just(OPS["add"])}, "trn3",
    ),
    Property(
        "exponential", {"dst": SOURCE, "src": SOURCE, "max_value": COLUMN}, ("dst",),
        lambda v: {"dst": np.exp(v["src"] - v["max_value"])}, arch="trn3",
    ),
    Property(
        "tensor_copy_predicated",
        {"dst": F32, "src": Operand(dtypes=("float32",), buffers=("sbuf",)), "predicate": MASK},
        ("dst",), lambda v: {"dst": np.where((v["predicate"] != 0) != v["reverse_pred"], v["src"], v["dst"])},
        {"reverse_pred": FLAG},
    ),
    Property(
        "select_reduce", {"dst": RESULT, "predicate": MASK, "on_true": ON_SBUF, "on_false": COLUMN}, ("dst",),
        lambda v: {"dst": selected(v)}, {"reverse_pred": FLAG},
    ),
    Property(
        "range_select",
        {
            "dst": Operand(dtypes=("float32",)), "on_true_tile": SOURCE, "bound0": Operand(COLUMN.width, ("float32",)),
            "bound1": Operand(COLUMN.width, ("float32",), low=0, high=14),
        },
        ("dst",), lambda v: {"dst": ranged(v)},
        {"comp_op0": st.just(OPS["greater_equal"]), "comp_op1": st.just(OPS["less"])},
    ),
    Property(
        "affine_select",
        {"dst": Operand(dtypes=DTYPES, buffers=("sbuf",)), "on_true_tile": Operand(buffers=("sbuf",))}, ("dst",),
        lambda v: {"dst": np.where(
            np.arange(len(v["dst"]))[:, None] * v["channel_multiplier"] - np.arange(6) + v["offset"] == 0,
            v["on_true_tile"], v["on_false_value"],
        )},
        {
            "pattern": st.just([[-1, 6]]), "channel_multiplier": st.sampled_from([0, 1, 2]), "on_false_value": NUMBER,
            "offset": st.integers(-3, 3),
        },
        counts=(6, 6),
    ),
    Property(
        "iota", {"dst": Operand(dtypes=("int32", "float32", "int16"), buffers=("sbuf",))}, ("dst",),
        lambda v: {"dst": np.broadcast_to(
            v["offset"] + np.arange(len(v["dst"]))[:, None] * v["channel_multiplier"]
            + np.add.outer(5 * np.arange(2), -np.arange(4)).reshape(-1), v["dst"].shape,
        )},
        {"pattern": st.just([[5, 2], [-1, 4]]), "offset": st.integers(-9, 9), "channel_multiplier": st.integers(-2, 2)},
        counts=(8, 8),
    ),
    Property(
        "dropout", {"dst": Operand(dtypes=("float32",)), "data": Operand(dtypes=("float32",))}, ("dst",),
        lambda v: {"dst": v["data"] * (1 - v["prob"])}, {"prob": st.sampled_from([0.0, 1.0])},
    ),
]  # fmt: skip


@pytest.mark.parametrize("each", PROPERTIES, ids=str)
def test_any_views_equal_the_model_and_leave_the_rest(machine, each):
    each.holds(machine)
