"""Rules of selects, patterns and counts, each as a pair of a legal call and its broken twin."""

import pytest
from calls import ADD, LEGAL, Pair, broken, column, full, ones

from kernels_neuron.sim.isa.enums import reduce_cmd

PAIRS = [
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
    Pair("dropout", "random-range", "a probability from 0 to 1, got 1.5", broken(prob=1.5)),
    Pair(
        "dropout",
        "operand-dtype",
        "takes prob of float32, got bfloat16",
        broken(prob=lambda b: column(b, "bfloat16")),
        lambda b: {"dst": full(b, "int32"), "data": full(b, "int32"), "prob": column(b)},
    ),
    Pair("dropout", "operand-dtype", "takes dst of float32", broken(dst=lambda b: full(b, "bfloat16"))),
    Pair("sequence_bounds", "operand-buffer", "takes dst in SBUF", broken(dst=ones(1, 2, 16, buffer="psum"))),
    Pair("nonzero_with_count", "chip-generation", "exists from trn2 on", broken(), broken_arch="trn1"),
    Pair("nonzero_with_count", "operand-buffer", "takes src in SBUF", broken(src=ones(128, 16, buffer="psum"))),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_legal_call_passes_and_its_broken_twin_is_refused(machine, pair):
    pair.holds(machine)
