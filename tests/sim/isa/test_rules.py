"""Every rule as a pair: a legal call passes, its twin that breaks one rule is refused by name, before any effect."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kernels_neuron.sim.isa.enums import dge_mode, engine, matmul_perf_mode, oob_mode, reduce_cmd
from kernels_neuron.sim.isa.ops import OPS

ADD, SUB, MUL, MAX, EXP, RSQRT = (OPS[name] for name in ("add", "subtract", "multiply", "maximum", "exp", "rsqrt"))
AND, SHIFT, POWER, GE, LT = (OPS[name] for name in ("bitwise_and", "left_shift", "power", "greater_equal", "less"))


@dataclass(frozen=True)
class Pair:
    """One rule of one instruction: the words of its refusal, the legal arguments, what the broken call changes."""

    name: str
    rule: str
    words: str
    broken: Callable[[Any], dict[str, Any]]
    legal: Callable[[Any], dict[str, Any]] | None = None
    arch: str = "trn2"
    broken_arch: str | None = None

    def __str__(self) -> str:
        return f"{self.name}-{self.rule}-{self.words.replace(' ', '_')[:40]}"


def ones(*shape, dtype="float32", buffer="sbuf", start=0):
    return lambda bench: bench.tile(np.ones(shape), dtype, buffer, start)


def full(b, dtype="float32", buffer="sbuf"):
    return b.tile(np.ones((128, 16)), dtype, buffer)


def column(b, dtype="float32", buffer="sbuf", partitions=128):
    return b.tile(np.ones((partitions, 1)), dtype, buffer)


def hbm(b, shape=(128, 16), dtype="float32"):
    return b.tile(np.ones(shape), dtype, "shared_hbm")


LEGAL: dict[str, Callable[[Any], dict[str, Any]]] = {
    "tensor_copy": lambda b: {"dst": full(b), "src": full(b)},
    "tensor_tensor": lambda b: {"dst": full(b), "data1": full(b), "data2": full(b), "op": ADD},
    "tensor_scalar": lambda b: {"dst": full(b), "data": full(b), "op0": MUL, "operand0": column(b)},
    "scalar_tensor_tensor": lambda b: {
        "dst": full(b),
        "data": full(b),
        "op0": MUL,
        "operand0": 2.0,
        "op1": ADD,
        "operand1": full(b),
    },
    "reciprocal": lambda b: {"dst": full(b), "data": full(b)},
    "memset": lambda b: {"dst": full(b), "value": 1.0},
    "tensor_reduce": lambda b: {"dst": column(b), "op": ADD, "data": full(b), "axis": 1},
    "tensor_scalar_reduce": lambda b: {
        "dst": full(b),
        "data": full(b),
        "op0": MUL,
        "operand0": 2.0,
        "reduce_op": ADD,
        "reduce_res": column(b),
    },
    "tensor_tensor_scan": lambda b: {
        "dst": full(b),
        "data0": full(b),
        "data1": full(b),
        "initial": 0.0,
        "op0": MUL,
        "op1": ADD,
    },
    "tensor_scalar_cumulative": lambda b: {"dst": full(b), "src": full(b), "op0": MUL, "op1": ADD, "imm0": 1.0},
    "bn_stats": lambda b: {"dst": b.empty((128, 6)), "data": full(b)},
    "bn_aggr": lambda b: {"dst": b.empty((128, 2)), "data": b.tile(np.ones((128, 6)))},
    "tensor_copy_predicated": lambda b: {"dst": full(b), "src": full(b), "predicate": full(b, "uint8")},
    "select_reduce": lambda b: {"dst": full(b), "predicate": full(b, "uint8"), "on_true": full(b), "on_false": 0.0},
    "range_select": lambda b: {
        "dst": full(b),
        "on_true_tile": full(b),
        "comp_op0": GE,
        "comp_op1": LT,
        "bound0": column(b),
        "bound1": column(b),
    },
    "iota": lambda b: {"dst": full(b, "int32"), "pattern": [[1, 16]]},
    "affine_select": lambda b: {
        "dst": full(b),
        "pattern": [[1, 16]],
        "channel_multiplier": 1,
        "on_true_tile": full(b),
        "on_false_value": 0.0,
    },
    "nc_stream_shuffle": lambda b: {"dst": full(b), "src": full(b), "shuffle_mask": list(range(32))},
    "max8": lambda b: {"dst": b.empty((128, 8)), "src": full(b)},
    "nc_find_index8": lambda b: {
        "dst": b.empty((128, 8), "uint16"),
        "data": full(b),
        "vals": b.tile(np.ones((128, 8))),
    },
    "nc_match_replace8": lambda b: {"dst": full(b), "data": full(b), "vals": b.tile(np.ones((128, 8))), "imm": 0.0},
    "activation": lambda b: {"dst": full(b), "op": EXP, "data": full(b)},
    "activation_reduce": lambda b: {
        "dst": full(b),
        "op": EXP,
        "data": full(b),
        "reduce_op": ADD,
        "reduce_res": column(b),
    },
    "nc_matmul": lambda b: {
        "dst": b.empty((16, 16), buffer="psum"),
        "stationary": full(b, "bfloat16"),
        "moving": full(b, "bfloat16"),
    },
    "nc_transpose": lambda b: {"dst": b.empty((16, 128), buffer="psum"), "data": full(b)},
    "dma_copy": lambda b: {"dst": full(b), "src": hbm(b)},
    "dma_transpose": lambda b: {"dst": b.empty((64, 16), "bfloat16"), "src": hbm(b, (16, 64), "bfloat16")},
}


def broken(**changes):
    """Arguments that replace legal ones; callables are built on the machine."""
    return lambda b: {
        key: value(b) if callable(value) and not hasattr(value, "alu") else value for key, value in changes.items()
    }


PAIRS = [
    # rules that every instruction shares, on one of them
    Pair("tensor_copy", "operand-type", "takes a tensor as src, got 1.0", broken(src=1.0)),
    Pair("tensor_copy", "operand-buffer", "takes src in SBUF or PSUM, got shared_hbm float32", broken(src=hbm)),
    Pair("tensor_copy", "operand-extent", "operands of one extent", broken(src=ones(128, 15))),
    Pair(
        "tensor_copy", "partition-step", "contiguous partitions", broken(dst=lambda b: full(b)[::2], src=ones(64, 16))
    ),
    Pair(
        "tensor_copy",
        "start-partition",
        "16 partitions starting at 0, 32, 64, 96, got start 48",
        broken(dst=lambda b: full(b)[48:64], src=ones(16, 16)),
        lambda b: {"dst": full(b)[64:80], "src": b.tile(np.ones((16, 16)))},
    ),
    Pair(
        "tensor_copy",
        "start-partition",
        "64 partitions starting at 0, 64, got start 32",
        broken(dst=lambda b: full(b)[32:96], src=ones(64, 16)),
        lambda b: {"dst": full(b)[64:128], "src": b.tile(np.ones((64, 16)))},
    ),
    Pair("tensor_copy", "unwritten-read", "that nothing has written", broken(src=lambda b: b.empty((128, 16)))),
    Pair("tensor_copy", "call-signature", "unexpected keyword argument 'mask'", broken(mask=None)),
    Pair("tensor_copy", "enum-type", "takes a member of nisa.engine as engine, got 5", broken(engine=5)),
    Pair("tensor_copy", "engine", "runs on vector, scalar, gpsimd, got tensor", broken(engine=engine.tensor)),
    Pair(
        "tensor_copy",
        "gpsimd-psum",
        "cannot reach PSUM",
        broken(src=ones(128, 16, buffer="psum"), engine=engine.gpsimd),
        lambda b: {"dst": full(b), "src": full(b), "engine": engine.gpsimd},
    ),
    Pair(
        "tensor_copy",
        "chip-generation",
        "exists from trn2 on, this is trn1",
        broken(),
        lambda b: {"dst": full(b), "src": full(b), "engine": engine.scalar},
        broken_arch="trn1",
    ),
    # tensor_tensor
    Pair(
        "tensor_tensor",
        "two-psum-inputs",
        "data1 and data2",
        broken(data1=ones(128, 16, buffer="psum"), data2=ones(128, 16, buffer="psum")),
    ),
    Pair("tensor_tensor", "op-type", "takes an operator such as nl.add as op", broken(op="add")),
    Pair("tensor_tensor", "op-kind", "a binary ALU operator as op, got nl.abs", broken(op=OPS["abs"])),
    Pair("tensor_tensor", "op-kind", "a binary ALU operator as op, got nl.exp", broken(op=EXP)),
    Pair("tensor_tensor", "bitvec-dtype", "takes integer dtypes, dst is float32", broken(op=AND)),
    Pair(
        "tensor_tensor",
        "bitvec-dtype",
        "differ in width: dst int32, data1 int32, data2 int16",
        broken(data2=ones(128, 16, dtype="int16")),
        lambda b: {"dst": full(b, "int32"), "data1": full(b, "int32"), "data2": full(b, "int32"), "op": AND},
    ),
    Pair("tensor_tensor", "engine", "computes power on gpsimd", broken(op=POWER, engine=engine.vector)),
    Pair(
        "tensor_tensor",
        "engine",
        "nl.bitwise_and on vector",
        broken(engine=engine.gpsimd),
        lambda b: {"dst": full(b, "int32"), "data1": full(b, "int32"), "data2": full(b, "int32"), "op": AND},
    ),
    Pair(
        "tensor_tensor",
        "chip-generation",
        "exists from trn3 on, this is trn2",
        broken(),
        lambda b: LEGAL["tensor_tensor"](b) | {"op": OPS["abs_max"]},
        arch="trn3",
        broken_arch="trn2",
    ),
    # tensor_scalar
    Pair("tensor_scalar", "operand-extent", "takes operand0 of shape [128, 1]", broken(operand0=ones(128, 2))),
    Pair(
        "tensor_scalar",
        "operand-dtype",
        "takes operand0 of float32, got bfloat16",
        broken(operand0=lambda b: column(b, "bfloat16")),
    ),
    Pair("tensor_scalar", "operand-type", "a number or a [128, 1] tile as operand0", broken(operand0="2")),
    Pair("tensor_scalar", "op-kind", "op1 and operand1 together", broken(op1=ADD)),
    Pair("tensor_scalar", "op-kind", "two arithmetic or two bit operators", broken(op1=AND, operand1=1)),
    Pair("tensor_scalar", "op-kind", "which is unary, takes operand0 None or 0", broken(op0=OPS["abs"], operand0=2.0)),
    Pair("tensor_scalar", "bitvec-dtype", "takes integer dtypes", broken(op0=AND, operand0=1)),
    Pair(
        "tensor_scalar",
        "bitvec-dtype",
        "takes integers, operand0 is 1.0",
        broken(operand0=1.0),
        lambda b: {"dst": full(b, "int32"), "data": full(b, "int32"), "op0": AND, "operand0": 1},
    ),
    Pair("tensor_scalar", "engine", "computes nl.rsqrt alone", broken(engine=engine.gpsimd)),
    Pair(
        "tensor_scalar",
        "engine",
        "on vector does not compute nl.rsqrt",
        broken(op0=RSQRT, operand0=0, engine=engine.vector),
    ),
    Pair("tensor_scalar", "engine", "on vector does not compute nl.power", broken(op0=POWER)),
    Pair(
        "tensor_scalar",
        "engine",
        "multiply and add, multiply, or add",
        broken(op0=SUB),
        lambda b: LEGAL["tensor_scalar"](b) | {"engine": engine.scalar, "op1": ADD, "operand1": 1.0},
    ),
    Pair(
        "tensor_scalar",
        "engine",
        "computes nl.bitwise_and on vector",
        broken(engine=engine.scalar),
        lambda b: {"dst": full(b, "int32"), "data": full(b, "int32"), "op0": AND, "operand0": 1},
    ),
    Pair(
        "tensor_scalar",
        "chip-generation",
        "exists from trn3 on",
        broken(),
        lambda b: LEGAL["tensor_scalar"](b) | {"op0": OPS["square"], "operand0": None},
        arch="trn3",
        broken_arch="trn2",
    ),
    # scalar_tensor_tensor
    Pair(
        "scalar_tensor_tensor",
        "two-psum-inputs",
        "data and operand1",
        broken(data=ones(128, 16, buffer="psum"), operand1=ones(128, 16, buffer="psum")),
    ),
    Pair("scalar_tensor_tensor", "op-kind", "a binary arithmetic operator as op0", broken(op0=AND)),
    Pair("scalar_tensor_tensor", "engine", "which does not compute nl.power", broken(op1=POWER)),
    # memset
    Pair(
        "memset", "memset-value", "takes a whole number, got 1.5", broken(dst=ones(128, 16, dtype="int32"), value=1.5)
    ),
    Pair("memset", "memset-value", "from -128 to 127, got 128", broken(dst=ones(128, 16, dtype="int8"), value=128)),
    Pair(
        "memset", "memset-value", "takes 0 alone", broken(dst=lambda b: b.empty((128, 16), "float8_e5m2_x4"), value=1)
    ),
    Pair("memset", "operand-type", "takes a number as value", broken(value=full)),
    # reductions
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
    # selects
    Pair(
        "tensor_copy_predicated",
        "operand-dtype",
        "takes predicate of uint8, uint16, uint32, got float32",
        broken(predicate=full),
    ),
    Pair(
        "tensor_copy_predicated",
        "operand-dtype",
        "takes src of float32, got bfloat16",
        broken(src=lambda b: full(b, "bfloat16")),
    ),
    Pair(
        "tensor_copy_predicated",
        "two-psum-inputs",
        "src and predicate",
        broken(src=ones(128, 16, buffer="psum"), predicate=ones(128, 16, dtype="uint8", buffer="psum")),
    ),
    Pair("select_reduce", "operand-dtype", "takes predicate of", broken(predicate=lambda b: full(b, "uint32"))),
    Pair("select_reduce", "operand-dtype", "takes on_true of", broken(on_true=lambda b: full(b, "int32"))),
    Pair(
        "select_reduce",
        "two-psum-inputs",
        "on_true and predicate",
        broken(on_true=ones(128, 16, buffer="psum"), predicate=ones(128, 16, dtype="uint8", buffer="psum")),
    ),
    Pair("select_reduce", "op-kind", "reduces with nl.maximum alone", broken(reduce_op=ADD)),
    Pair("select_reduce", "reduce-idle", "has no result for reduce_res", broken(reduce_res=column)),
    Pair("select_reduce", "accumulator-undefined", "hold no defined value", broken(reduce_cmd=reduce_cmd.reduce)),
    Pair("range_select", "chip-generation", "exists from trn2 on, this is trn1", broken(), broken_arch="trn1"),
    Pair("range_select", "op-kind", "as comp_op0", broken(comp_op0=ADD)),
    Pair("range_select", "operand-dtype", "takes bound0 of float32", broken(bound0=lambda b: column(b, "int32"))),
    Pair("range_select", "operand-dtype", "takes on_true_tile of", broken(on_true_tile=lambda b: full(b, "int32"))),
    Pair(
        "range_select",
        "range-start",
        "within 2**24",
        broken(range_start=2**24 - 15),
        lambda b: LEGAL["range_select"](b) | {"range_start": 2**24 - 16},
    ),
    Pair("range_select", "on-false-value", "alone, got 0.0", broken(on_false_value=0.0)),
    Pair("range_select", "enum-value", "reset_reduce, reduce, got idle", broken(reduce_cmd=reduce_cmd.idle)),
    # patterns, shuffles, searches
    Pair("iota", "pattern", "over the 16 elements per partition", broken(pattern=[[1, 15]])),
    Pair("iota", "pattern", "1 to 4 pairs, got 5", broken(pattern=[[1, 1]] * 4 + [[1, 16]])),
    Pair("iota", "pattern", "integers known while tracing", broken(pattern=[[0.5, 16]])),
    Pair("iota", "pattern", "[[step, count], ...]", broken(pattern=[1, 16])),
    Pair("iota", "not-simulated", "offset is", broken(offset=lambda b: column(b, "int32"))),
    Pair("iota", "operand-buffer", "takes dst in SBUF", broken(dst=ones(128, 16, dtype="int32", buffer="psum"))),
    Pair(
        "affine_select",
        "operand-buffer",
        "takes on_true_tile in SBUF",
        broken(on_true_tile=ones(128, 16, buffer="psum")),
    ),
    Pair("affine_select", "op-kind", "a comparison as cmp_op", broken(cmp_op=ADD)),
    Pair("affine_select", "operand-type", "a number as on_false_value", broken(on_false_value=column)),
    Pair("nc_stream_shuffle", "shuffle-mask", "a mask of 32 entries", broken(shuffle_mask=[0] * 31)),
    Pair("nc_stream_shuffle", "shuffle-mask", "0 to 31 or 255", broken(shuffle_mask=[32] * 32)),
    Pair(
        "nc_stream_shuffle",
        "shuffle-mask",
        "partition 0 reads partition 1, src has 1",
        broken(shuffle_mask=[1] * 32),
        lambda b: {"dst": b.empty((32, 16)), "src": b.tile(np.ones((1, 16))), "shuffle_mask": [0] * 32},
    ),
    Pair("nc_stream_shuffle", "operand-extent", "equal elements per partition", broken(src=ones(128, 15))),
    Pair("nc_stream_shuffle", "operand-dtype", "takes src of float32", broken(src=lambda b: full(b, "bfloat16"))),
    Pair(
        "max8",
        "operand-extent",
        "8 to 16384",
        broken(src=ones(128, 7)),
        lambda b: {"dst": b.empty((128, 8)), "src": b.tile(np.ones((128, 8)))},
    ),
    Pair("max8", "operand-rank", "at most 3 dims", broken(src=ones(128, 2, 2, 4))),
    Pair("max8", "operand-extent", "takes dst of shape [128, 8]", broken(dst=ones(128, 7))),
    Pair(
        "nc_find_index8",
        "operand-dtype",
        "takes dst of uint16, uint32",
        broken(dst=lambda b: b.empty((128, 8), "int32")),
    ),
    Pair("nc_match_replace8", "operand-type", "a number as imm", broken(imm=column)),
    # ScalarE
    Pair("activation", "activation-function", "has no function nl.maximum", broken(op=MAX)),
    Pair(
        "activation",
        "operand-dtype",
        "takes scale in float32, got bfloat16",
        broken(scale=lambda b: column(b, "bfloat16")),
    ),
    Pair("activation", "operand-type", "takes scale as a number", broken(scale="2")),
    Pair("activation", "operand-dtype", "bias of any dtype but tfloat32", broken(bias=lambda b: column(b, "tfloat32"))),
    Pair("activation", "operand-type", "takes bias as a number", broken(bias="2")),
    Pair(
        "activation",
        "chip-generation",
        "a number as bias exists from trn2 on",
        broken(),
        lambda b: LEGAL["activation"](b) | {"bias": 1.0},
        broken_arch="trn1",
    ),
    Pair(
        "activation",
        "activation-bias",
        "takes no bias on trn1",
        broken(),
        lambda b: LEGAL["activation"](b) | {"op": OPS["reciprocal"], "bias": column(b)},
        broken_arch="trn1",
    ),
    Pair("activation", "reduce-command", "takes reduce_cmd idle", broken(reduce_cmd=reduce_cmd.load_reduce)),
    Pair("activation", "reduce-op", "reduces with nl.add", broken(reduce_op=MAX, reduce_cmd=reduce_cmd.reset_reduce)),
    Pair("activation", "reduce-op", "needs reduce_op", broken(reduce_cmd=reduce_cmd.reduce)),
    Pair("activation_reduce", "reduce-op", "reduces with nl.add", broken(reduce_op=MAX)),
    # TensorE
    Pair("nc_matmul", "operand-buffer", "takes dst in PSUM", broken(dst=lambda b: b.empty((16, 16)))),
    Pair(
        "nc_matmul",
        "operand-buffer",
        "takes moving in SBUF",
        broken(moving=ones(128, 16, dtype="bfloat16", buffer="psum")),
    ),
    Pair("nc_matmul", "operand-dtype", "takes stationary of", broken(stationary=lambda b: full(b, "int8"))),
    Pair("nc_matmul", "matmul-contraction", "contracts over partitions", broken(moving=ones(64, 16, dtype="bfloat16"))),
    Pair(
        "nc_matmul",
        "stationary-limit",
        "at most 128 stationary columns",
        broken(stationary=ones(128, 129, dtype="bfloat16")),
    ),
    Pair("nc_matmul", "matmul-extent", "gives [16, 16]", broken(dst=lambda b: b.empty((16, 15), buffer="psum"))),
    Pair(
        "nc_matmul",
        "moving-limit",
        "a moving free size of at most 512, got 513",
        broken(),
        lambda b: {
            "dst": b.empty((16, 513), buffer="psum"),
            "stationary": full(b, "bfloat16"),
            "moving": b.tile(np.ones((128, 513)), "bfloat16"),
        },
        arch="trn3",
        broken_arch="trn2",
    ),
    Pair(
        "nc_matmul",
        "psum-bank",
        "crosses one",
        broken(dst=lambda b: b.empty((16, 1024), buffer="psum")[:, 504:520]),
        lambda b: LEGAL["nc_matmul"](b) | {"dst": b.empty((16, 1024), buffer="psum")[:, 512:528]},
    ),
    Pair("nc_matmul", "matmul-dtypes", "only with each other", broken(moving=full)),
    Pair(
        "nc_matmul",
        "matmul-dtypes",
        "does not mix",
        broken(stationary=lambda b: full(b, "float8_e4m3fn"), moving=lambda b: full(b, "float8_e4m3")),
        arch="trn3",
    ),
    Pair(
        "nc_matmul",
        "chip-generation",
        "float8_e4m3fn exists from trn3 on",
        broken(stationary=lambda b: full(b, "float8_e4m3fn")),
    ),
    Pair(
        "nc_matmul",
        "operand-dtype",
        "takes dst of float32",
        broken(dst=lambda b: b.empty((16, 16), "bfloat16", "psum")),
    ),
    Pair("nc_matmul", "accumulate-unwritten", "which no matmul has written", broken(accumulate=True)),
    Pair(
        "nc_matmul",
        "accumulate-foreign",
        "undefined on trn2",
        broken(),
        lambda b: LEGAL["nc_matmul"](b) | {"dst": b.tile(np.ones((16, 16)), buffer="psum"), "accumulate": True},
        arch="trn3",
        broken_arch="trn2",
    ),
    Pair(
        "nc_matmul",
        "double-row",
        "takes [K, 2, M] and [K, 2, N]",
        broken(moving=lambda b: full(b, "float8_e5m2")),
        lambda b: {
            "dst": b.empty((16, 8), buffer="psum"),
            "stationary": b.tile(np.ones((128, 2, 16)), "float8_e5m2"),
            "moving": b.tile(np.ones((128, 2, 8)), "float8_e5m2"),
            "perf_mode": matmul_perf_mode.double_row,
        },
    ),
    Pair(
        "nc_matmul",
        "double-row",
        "takes fp8 operands",
        broken(perf_mode=matmul_perf_mode.double_row, dst=lambda b: b.empty((8, 4), buffer="psum")),
        lambda b: {
            "dst": b.empty((16, 8), buffer="psum"),
            "stationary": b.tile(np.ones((128, 2, 8)), "bfloat16"),
            "moving": b.tile(np.ones((128, 2, 4)), "bfloat16"),
        },
    ),
    Pair("nc_matmul", "pe-tile", "go together", broken(tile_position=(0, 0))),
    Pair("nc_matmul", "pe-tile", "starts at a multiple of it", broken(tile_position=(16, 0), tile_size=(128, 128))),
    Pair(
        "nc_matmul",
        "pe-tile",
        "does not hold 128",
        broken(tile_position=(0, 0), tile_size=(64, 128)),
        lambda b: LEGAL["nc_matmul"](b) | {"tile_position": (0, 0), "tile_size": (128, 32)},
    ),
    Pair("nc_transpose", "engine", "runs on tensor or vector", broken(engine=engine.scalar)),
    Pair(
        "nc_transpose", "transpose-extent", "gives [16, 128]", broken(dst=lambda b: b.empty((16, 127), buffer="psum"))
    ),
    Pair(
        "nc_transpose",
        "operand-dtype",
        "takes dst of float32",
        broken(dst=lambda b: b.empty((16, 128), "bfloat16", "psum")),
    ),
    Pair(
        "nc_transpose",
        "transpose-limit",
        "at most 32 by 32",
        broken(dst=lambda b: b.empty((33, 32)), data=ones(32, 33)),
        lambda b: {"dst": b.empty((32, 32)), "data": b.tile(np.ones((32, 32)))},
    ),
    # DMA
    Pair("dma_copy", "dma-size", "equal element counts", broken(src=lambda b: hbm(b, (128, 15)))),
    Pair("dma_copy", "operand-buffer", "takes src in HBM or SBUF", broken(src=ones(128, 16, buffer="psum"))),
    Pair(
        "dma_copy",
        "hwdge-cast",
        "moves raw bytes",
        broken(src=lambda b: hbm(b, dtype="bfloat16")),
        lambda b: LEGAL["dma_copy"](b) | {"dge_mode": dge_mode.hwdge},
    ),
    Pair(
        "dma_copy",
        "chip-generation",
        "hwdge exists from trn2 on",
        broken(),
        lambda b: LEGAL["dma_copy"](b) | {"dge_mode": dge_mode.hwdge},
        broken_arch="trn1",
    ),
    Pair(
        "dma_copy",
        "chip-generation",
        "priority exists from trn3 on",
        broken(),
        lambda b: LEGAL["dma_copy"](b) | {"priority": 1},
        arch="trn3",
        broken_arch="trn2",
    ),
    Pair(
        "dma_copy",
        "dma-engine",
        "takes engine sync or scalar",
        broken(engine=engine.vector),
        lambda b: LEGAL["dma_copy"](b) | {"engine": engine.sync},
    ),
    Pair(
        "dma_copy",
        "dma-engine",
        "only with hwdge",
        broken(dge_mode=dge_mode.swdge),
        lambda b: LEGAL["dma_copy"](b) | {"engine": engine.sync, "dge_mode": dge_mode.hwdge},
    ),
    Pair("dma_transpose", "chip-generation", "exists from trn2 on", broken(), broken_arch="trn1"),
    Pair(
        "dma_transpose",
        "dma-transpose",
        "one dtype of 2 or 4 bytes",
        broken(dst=lambda b: b.empty((64, 16), "uint8"), src=lambda b: hbm(b, (16, 64), "uint8")),
    ),
    Pair(
        "dma_transpose",
        "dma-transpose",
        "by hwdge takes 2-byte elements, [16, n]",
        broken(dst=lambda b: b.empty((64, 8), "bfloat16"), dge_mode=dge_mode.hwdge),
        lambda b: {"dst": b.empty((64, 8), "bfloat16"), "src": hbm(b, (8, 64), "bfloat16")},
    ),
    Pair(
        "dma_transpose",
        "dma-transpose",
        "by hwdge takes 2-byte elements, [16, n]",
        broken(dge_mode=dge_mode.hwdge),
        lambda b: {"dst": b.empty((64, 16)), "src": hbm(b, (16, 64))},
    ),
    Pair("dma_transpose", "dma-transpose", "permutes 2-D by (1, 0)", broken(axes=(0, 1))),
    Pair("dma_transpose", "dma-transpose", "gives [64, 16]", broken(dst=lambda b: b.empty((64, 17), "bfloat16"))),
    Pair("dma_transpose", "dma-transpose", "unknown or hwdge or none, got swdge", broken(dge_mode=dge_mode.swdge)),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_legal_call_passes_and_its_broken_twin_is_refused(machine, pair):
    build = pair.legal or LEGAL[pair.name]
    legal = machine(pair.arch)
    assert legal.issue(pair.name, **build(legal))

    twin = machine(pair.broken_arch or pair.arch)
    message = twin.refuses(pair.rule, pair.name, **(build(twin) | pair.broken(twin)))
    assert pair.words in message


@pytest.mark.parametrize("name", LEGAL)
def test_a_refused_call_leaves_its_destination_alone(machine, name):
    bench = machine()
    arguments = LEGAL[name](bench)
    dst = arguments["dst"]
    before = dst.array().copy()
    bench.refuses("call-signature", name, **arguments, no_such_argument=1)
    np.testing.assert_array_equal(before.view(np.uint8), dst.array().view(np.uint8))


@pytest.mark.parametrize("name", LEGAL)
def test_a_price_only_run_issues_the_same_records(machine, name):
    runs = []
    for execute in (True, False):
        bench = machine(execute=execute)
        records = bench.issue(name, **LEGAL[name](bench))
        runs.append([record._replace(where=0) for record in records])
    assert runs[0] == runs[1]


def test_oob_mode_is_accepted_where_nothing_is_dynamic(machine):
    bench = machine()
    bench.issue("dma_copy", **LEGAL["dma_copy"](bench), oob_mode=oob_mode.skip)
