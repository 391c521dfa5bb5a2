"""Rules of reductions, scans and statistics, each as a pair of a legal call and its broken twin."""

import numpy as np
import pytest
from calls import ADD, AND, GE, LEGAL, POWER, RSQRT, SUB, Pair, broken, column, ones

from kernels_neuron.sim.isa.enums import reduce_cmd
from kernels_neuron.sim.isa.ops import OPS

PAIRS = [
    Pair("tensor_reduce", "op-kind", "a legal reduction", broken(op=POWER)),
    Pair(
        "tensor_reduce",
        "op-kind",
        "negates arithmetic results only",
        broken(op=AND, data=ones(128, 16, dtype="int32"), dst=ones(128, 1, dtype="int32"), negate=True),
    ),
    Pair("tensor_reduce", "reduce-axis", "trailing free dims", broken(axis=0)),
    Pair(
        "tensor_reduce",
        "reduce-axis",
        "trailing free dims",
        broken(axis=(1,)),
        lambda b: {"dst": column(b), "op": ADD, "data": b.tile(np.ones((128, 4, 4))), "axis": (1, 2)},
    ),
    Pair("tensor_reduce", "operand-extent", "gives 1 elements on 128 partitions", broken(dst=ones(128, 2))),
    Pair("tensor_scalar_reduce", "reverse", "does not take reverse0", broken(reverse0=True)),
    Pair("tensor_scalar_reduce", "reduce-init", "with load_reduce and only then", broken(reduce_init=1.0)),
    Pair(
        "tensor_scalar_reduce",
        "reduce-init",
        "with load_reduce and only then",
        broken(reduce_cmd=reduce_cmd.load_reduce),
    ),
    Pair(
        "tensor_scalar_reduce",
        "enum-value",
        "reset_reduce, reduce, load_reduce, got idle",
        broken(reduce_cmd=reduce_cmd.idle),
    ),
    Pair("tensor_scalar_reduce", "op-kind", "takes reduce_op add", broken(reduce_op=SUB)),
    Pair("tensor_scalar_reduce", "engine", "does not compute nl.rsqrt", broken(op0=RSQRT, operand0=None)),
    Pair(
        "tensor_scalar_reduce", "accumulator-undefined", "hold no defined value", broken(reduce_cmd=reduce_cmd.reduce)
    ),
    Pair(
        "tensor_scalar_reduce",
        "operand-dtype",
        "takes reduce_res of float32",
        broken(reduce_res=lambda b: column(b, "int32")),
    ),
    Pair("tensor_tensor_scan", "engine", "does not compute nl.power", broken(op0=POWER)),
    Pair(
        "tensor_tensor_scan",
        "two-psum-inputs",
        "data0 and data1",
        broken(data0=ones(128, 16, buffer="psum"), data1=ones(128, 16, buffer="psum")),
    ),
    Pair("tensor_scalar_cumulative", "operand-dtype", "takes src of", broken(src=ones(128, 16, dtype="int32"))),
    Pair("tensor_scalar_cumulative", "op-kind", "takes op1 add", broken(op1=GE)),
    Pair("tensor_scalar_cumulative", "reduce-init", "takes imm1 with load_reduce", broken(imm1=1.0)),
    Pair(
        "tensor_scalar_cumulative",
        "accumulator-undefined",
        "hold no defined value",
        broken(reduce_cmd=reduce_cmd.reduce),
    ),
    Pair(
        "bn_stats",
        "bn-stats-limit",
        "at most 512 elements per partition, data has 513",
        broken(data=ones(128, 513)),
        lambda b: {"dst": b.empty((128, 6)), "data": b.tile(np.ones((128, 512)))},
    ),
    Pair("bn_stats", "operand-extent", "gives 6 elements on 128 partitions", broken(dst=ones(128, 5))),
    Pair("bn_aggr", "bn-aggr-triples", "data has 7 elements", broken(data=ones(128, 7))),
    Pair("bn_aggr", "operand-extent", "gives 2 elements on 128 partitions", broken(dst=ones(128, 3))),
    Pair(
        "tensor_tensor_scan",
        "operand-extent",
        "takes initial of shape [128, 1]",
        broken(initial=ones(128, 2)),
        lambda b: LEGAL["tensor_tensor_scan"](b) | {"initial": column(b)},
    ),
    Pair("tensor_tensor_scan", "op-kind", "a binary arithmetic operator as op1", broken(op1=AND)),
    Pair("tensor_scalar_reduce", "op-kind", "an arithmetic operator as op0", broken(op0=AND)),
    Pair(
        "tensor_scalar_reduce",
        "chip-generation",
        "exists from trn3 on",
        broken(),
        lambda b: LEGAL["tensor_scalar_reduce"](b) | {"op0": OPS["square"], "operand0": None},
        arch="trn3",
        broken_arch="trn2",
    ),
    Pair("tensor_partition_reduce", "operand-buffer", "takes data in SBUF", broken(data=ones(128, 16, buffer="psum"))),
    Pair("exponential", "chip-generation", "exists from trn3 on, this is trn2", broken(), broken_arch="trn2"),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_legal_call_passes_and_its_broken_twin_is_refused(machine, pair):
    pair.holds(machine)
