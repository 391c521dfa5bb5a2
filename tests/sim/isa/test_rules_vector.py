"""Rules of elementwise instructions and of all operands, each as a pair of a legal call and its broken twin."""

import numpy as np
import pytest
from calls import ADD, AND, EXP, LEGAL, POWER, RSQRT, SUB, Pair, broken, column, full, hbm, ones

from kernels_neuron.sim.isa.enums import engine
from kernels_neuron.sim.isa.ops import OPS

PAIRS = [
    Pair("tensor_scalar", "flag", "takes True or False as reverse0, got 'x'", broken(reverse0="x")),
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
    Pair(
        "scalar_tensor_tensor",
        "two-psum-inputs",
        "data and operand1",
        broken(data=ones(128, 16, buffer="psum"), operand1=ones(128, 16, buffer="psum")),
    ),
    Pair("scalar_tensor_tensor", "op-kind", "a binary arithmetic operator as op0", broken(op0=AND)),
    Pair("scalar_tensor_tensor", "engine", "which does not compute nl.power", broken(op1=POWER)),
    Pair(
        "memset", "memset-value", "takes a whole number, got 1.5", broken(dst=ones(128, 16, dtype="int32"), value=1.5)
    ),
    Pair("memset", "memset-value", "from -128 to 127, got 128", broken(dst=ones(128, 16, dtype="int8"), value=128)),
    Pair(
        "memset", "memset-value", "takes 0 alone", broken(dst=lambda b: b.empty((128, 16), "float8_e5m2_x4"), value=1)
    ),
    Pair("memset", "operand-type", "takes a number as value", broken(value=full)),
    Pair(
        "tensor_tensor",
        "gpsimd-psum",
        "on gpsimd cannot reach PSUM",
        broken(data1=ones(128, 16, buffer="psum")),
        lambda b: LEGAL["tensor_tensor"](b) | {"op": POWER},
    ),
    Pair(
        "tensor_scalar",
        "gpsimd-psum",
        "on gpsimd cannot reach PSUM",
        broken(data=ones(128, 16, buffer="psum")),
        lambda b: LEGAL["tensor_scalar"](b) | {"op0": RSQRT, "operand0": None, "engine": engine.gpsimd},
    ),
    Pair(
        "tensor_scalar",
        "chip-generation",
        "tensor_scalar on scalar exists from trn2 on, this is trn1",
        broken(),
        lambda b: LEGAL["tensor_scalar"](b) | {"engine": engine.scalar},
        broken_arch="trn1",
    ),
    Pair(
        "tensor_scalar",
        "engine",
        "multiply and add, multiply, or add",
        broken(),
        lambda b: LEGAL["tensor_scalar"](b) | {"engine": engine.scalar, "op0": SUB},
        arch="trn3",
        broken_arch="trn2",
    ),
    Pair(
        "memset",
        "gpsimd-psum",
        "on gpsimd cannot reach PSUM",
        broken(dst=lambda b: b.empty((128, 16), buffer="psum")),
        lambda b: LEGAL["memset"](b) | {"engine": engine.gpsimd},
    ),
    Pair(
        "tensor_copy",
        "free-size",
        "at most 65536 elements per partition in SBUF",
        broken(dst=lambda b: b.empty((1, 65537), "int8"), src=ones(1, 65537, dtype="int8")),
        lambda b: {"dst": b.empty((1, 65536), "int8"), "src": b.tile(np.ones((1, 65536)), "int8")},
    ),
    Pair(
        "tensor_copy",
        "free-size",
        "at most 4096 elements per partition in PSUM",
        broken(dst=lambda b: b.empty((1, 4097), "int8"), src=ones(1, 4097, dtype="int8", buffer="psum")),
        lambda b: {"dst": b.empty((1, 4096), "int8"), "src": b.tile(np.ones((1, 4096)), "int8", "psum")},
    ),
    Pair(
        "tensor_copy",
        "free-stride",
        "steps of at most 32767 elements, got [32768]",
        broken(src=lambda b: b.tile(np.ones((1, 65536)), "int8").reshape((1, 2, 32768))[:, :, 0:1]),
        lambda b: {
            "dst": b.empty((1, 2), "int8"),
            "src": b.tile(np.ones((1, 65534)), "int8").reshape((1, 2, 32767))[:, :, 0:1],
        },
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_legal_call_passes_and_its_broken_twin_is_refused(machine, pair):
    pair.holds(machine)
