"""Rules of ScalarE, each as a pair of a legal call and its broken twin."""

import pytest
from calls import ADD, LEGAL, MAX, MUL, Pair, broken, column, ones

from kernels_neuron.sim.isa.enums import reduce_cmd
from kernels_neuron.sim.isa.ops import OPS

PAIRS = [
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
    Pair("activation", "operand-extent", "takes bias of shape [128, 1]", broken(bias=ones(128, 2))),
    Pair("activation", "operand-extent", "takes scale of shape [128, 1]", broken(scale=ones(128, 2))),
    Pair("activation", "activation-function", "has no function nl.prelu", broken(op=OPS["prelu"])),
    Pair("activation", "operand-extent", "takes reduce_res of shape [128, 1]", broken(reduce_res=ones(128, 2))),
    Pair("activate2", "chip-generation", "exists from trn3 on, this is trn2", broken(), broken_arch="trn2"),
    Pair("activate2", "op-kind", "got ('add', 'multiply')", broken(op0=ADD, op1=MUL)),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_legal_call_passes_and_its_broken_twin_is_refused(machine, pair):
    pair.holds(machine)
