"""Reductions, scans, statistics, searches and movement on any views."""

import numpy as np
import pytest
import test_properties
from hypothesis import strategies as st
from views import COLUMN, DTYPES, ON_SBUF, RESULT, SOURCE, Operand, Property

from kernels_neuron.sim.isa import TABLE
from kernels_neuron.sim.isa.ops import OPS

F32 = Operand(dtypes=("float32",))
SUMS = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}
SUM = st.sampled_from([OPS[name] for name in SUMS])
SBUF32 = Operand(dtypes=("float32",), buffers=("sbuf",))
DISTINCT = Operand(dtypes=("float32",), distinct=True)
EIGHT = Operand(lambda n: 8, ("float32",))
QUARTER = (32, 64, 128)


def folded(op, values):
    return SUMS[op.name].reduce(values, axis=1, keepdims=True)


def scanned(v):
    state, out = v["initial"], np.empty(v["data0"].shape)
    for i in range(out.shape[1]):
        state = v["data0"][:, i : i + 1] * state + v["data1"][:, i : i + 1]
        out[:, i : i + 1] = state
    return out


def statistics(values):
    halves = [values[:, half::2] for half in (0, 1)]
    parts = [(np.full(len(h), h.shape[1]), h.mean(axis=1), h.var(axis=1) * h.shape[1]) for h in halves]
    return np.stack([column for part in parts for column in part], axis=1)


def largest(values):
    return -np.sort(-values, axis=1)[:, :8]


def aggregated(v):
    count, mean, squares = (v["data"][:, part::3] for part in range(3))
    total = count.sum(axis=1, keepdims=True)
    middle = (count * mean).sum(axis=1, keepdims=True) / total
    return np.concatenate([middle, (squares + count * (mean - middle) ** 2).sum(axis=1, keepdims=True) / total], axis=1)


PROPERTIES = [
    Property(
        "tensor_reduce", {"dst": COLUMN, "data": SOURCE}, ("dst",),
        lambda v: {"dst": folded(v["op"], v["data"]) * (-1 if v["negate"] else 1)},
        {"op": SUM, "negate": st.booleans()}, reduces=True,
    ),
    Property(
        "tensor_scalar_reduce", {"dst": SOURCE, "data": SOURCE, "operand0": COLUMN, "reduce_res": COLUMN},
        ("dst", "reduce_res"),
        lambda v: {
            "dst": v["data"] * v["operand0"], "reduce_res": folded(v["reduce_op"], v["data"] * v["operand0"])
        },
        {"op0": st.just(OPS["multiply"]), "reduce_op": SUM},
    ),
    Property(
        "tensor_tensor_scan",
        {"dst": SOURCE, "data0": Operand(low=-1, high=1), "data1": ON_SBUF, "initial": COLUMN}, ("dst",),
        lambda v: {"dst": scanned(v)}, {"op0": st.just(OPS["multiply"]), "op1": st.just(OPS["add"])},
    ),
    Property(
        "tensor_scalar_cumulative", {"dst": SOURCE, "src": SOURCE, "imm0": COLUMN}, ("dst",),
        lambda v: {"dst": SUMS[v["op1"].name].accumulate(v["src"] * v["imm0"], axis=1)},
        {"op0": st.just(OPS["multiply"]), "op1": SUM},
    ),
    Property(
        "bn_stats", {"dst": Operand(lambda n: 6, ("float32",)), "data": SOURCE}, ("dst",),
        lambda v: {"dst": statistics(v["data"])}, counts=(2, 12),
    ),
    Property(
        "bn_aggr",
        {"dst": Operand(lambda n: 2, ("float32",)), "data": Operand(lambda n: 3 * n, ("float32",), low=1, high=4)},
        ("dst",), lambda v: {"dst": aggregated(v)},
    ),
    Property(
        "max8", {"dst": EIGHT, "src": Operand(dtypes=("float32", "int16", "uint8"))}, ("dst",),
        lambda v: {"dst": largest(v["src"])}, counts=(8, 14),
    ),
    Property(
        "nc_find_index8", {"dst": Operand(lambda n: 8, ("uint32",)), "data": DISTINCT, "vals": EIGHT}, ("dst",),
        lambda v: {"dst": np.where(
            (v["data"][:, None] == v["vals"][..., None]).any(axis=2),
            np.argmax(v["data"][:, None] == v["vals"][..., None], axis=2), 2.0**32 - 1,
        )},
        counts=(8, 14),
    ),
    Property(
        "nc_match_replace8",
        {"dst": F32, "data": DISTINCT, "vals": Operand(lambda n: 8, ("float32",), distinct=True)}, ("dst",),
        lambda v: {"dst": np.where(
            (v["data"][..., None] == v["vals"][:, None]).any(axis=2), v["imm"], v["data"]
        )},
        {"imm": st.just(-7.0)}, counts=(8, 14),
    ),
    Property(
        "nc_stream_shuffle", {"dst": F32, "src": F32}, ("dst",),
        lambda v: {"dst": v["src"].reshape(-1, 32, v["src"].shape[1])[:, v["shuffle_mask"]].reshape(v["src"].shape)},
        {"shuffle_mask": st.permutations(list(range(32)))}, partitions=QUARTER,
    ),
    Property(
        "nc_n_gather",
        {
            "dst": SBUF32, "data": SBUF32,
            "indices": Operand(dtypes=("uint32",), buffers=("sbuf",), low=0, high=3.99),
        },
        ("dst",), lambda v: {"dst": np.take_along_axis(v["data"], v["indices"].astype(int), axis=1)}, counts=(4, 12),
    ),
    Property(
        "dma_copy", {"dst": Operand(dtypes=DTYPES, buffers=("sbuf", "shared_hbm")), "src": Operand(buffers=("sbuf",))},
        ("dst",), lambda v: {"dst": v["src"]}, partitions=(128,),
    ),
    Property("tensor_copy", {"dst": RESULT, "src": Operand(dtypes=("int8", "uint8", "int16"))}, ("dst",),
             lambda v: {"dst": v["src"]}),
]  # fmt: skip


@pytest.mark.parametrize("each", PROPERTIES, ids=str)
def test_any_views_equal_the_model_and_leave_the_rest(machine, each):
    each.holds(machine)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_nc_matmul_of_any_views_equals_the_model(machine, rng, dtype):
    for k, m, n, start, step in ((128, 16, 40, 0, 1), (32, 7, 33, 64, 2), (64, 128, 512, 64, 1), (1, 1, 1, 96, 3)):
        bench = machine()
        left, right = (
            bench.tile(rng.standard_normal((128, width * step + 2)), dtype)[start : start + k, 2::step][:, :width]
            for width in (m, n)
        )
        out = bench.empty((m, n), buffer="psum")
        bench.issue("nc_matmul", out, left, right)
        exact = left.array().astype(np.float64).T @ right.array().astype(np.float64)
        np.testing.assert_allclose(out.array(), exact, rtol=1e-5, atol=1e-4)


# compared with numpy by tests of their own, over shapes, dtypes and starts
ELSEWHERE = {
    "the shape of the result is tied to the partitions": (
        "nc_transpose", "dma_transpose", "tensor_partition_reduce", "sequence_bounds", "nonzero_with_count",
    ),
    "cores of 16 partitions share indices or results": ("local_gather", "topk"),
    "groups of 8 partitions share a scale": ("quantize_mx", "nc_matmul_mx"),
    "a list of operands": ("dma_compute",),
    "the test above": ("nc_matmul",),
    "random bits": ("rng", "rand2", "set_rng_seed", "rand_set_state", "rand_get_state"),
    "registers hold one number": ("register_move", "register_load", "register_store"),
    "two cores": ("core_barrier", "sendrecv"),
}  # fmt: skip


def test_every_instruction_has_a_property_or_a_reason():
    mine = {each.name for each in (*PROPERTIES, *test_properties.PROPERTIES)}
    assert set(TABLE) == mine | {name for names in ELSEWHERE.values() for name in names}
