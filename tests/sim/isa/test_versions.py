"""Argument orders, arguments and defaults follow the NKI version of the run."""

import inspect

import numpy as np
import pytest

from kernels_neuron.sim.isa import COLLECTIVES, TABLE
from kernels_neuron.sim.isa.enums import dge_mode, oob_mode
from kernels_neuron.sim.isa.ops import OPS
from kernels_neuron.sim.isa.versions import ARGUMENTS, DEFAULTS, SINCE, newest, signature_in

BOTH = TABLE | COLLECTIVES
# positional arguments by version, from the API reference of each; those that never moved are not listed
ORDERS = {
    ("dma_copy", (0, 3)): "dst src oob_mode dge_mode engine name",
    ("dma_copy", (0, 4)): "dst src priority oob_mode dge_mode engine name",
    ("dma_transpose", (0, 3)): "dst src axes dge_mode oob_mode name",
    ("dma_transpose", (0, 4)): "dst src axes priority dge_mode oob_mode name",
    ("dma_compute", (0, 3)): "dst srcs reduce_op scales unique_indices name",
    ("tensor_scalar_reduce", (0, 3)): "dst data op0 operand0 reduce_op reduce_res reverse0 name",
    ("tensor_scalar_reduce", (0, 4)): (
        "dst data op0 operand0 reduce_op reduce_res reverse0 reduce_cmd reduce_init name"
    ),
    ("activation", (0, 6)): "dst op data bias scale reduce_op reduce_res reduce_cmd name",
    ("activation", (0, 7)): "dst op data bias scale reduce_op reduce_res reduce_cmd engine name",
    ("all_reduce", (0, 3)): "srcs dsts replica_group op",
    ("all_reduce", (0, 4)): "srcs dsts replica_group op priority",
    ("all_reduce", (0, 5)): "srcs dsts replica_group op priority name",
}


@pytest.mark.parametrize(("name", "version"), ORDERS, ids=lambda value: ".".join(map(str, value)) if value else value)
def test_arguments_stand_in_the_order_of_the_version(name, version):
    older = signature_in(name, version, BOTH[name].signature)
    assert " ".join(older.parameters) == ORDERS[name, version]


@pytest.mark.parametrize("name", sorted({*ARGUMENTS, *DEFAULTS, *SINCE}))
def test_the_tables_name_calls_and_arguments_that_exist(name):
    given = {*ARGUMENTS.get(name, ()), *DEFAULTS.get(name, ())}
    assert given <= set(BOTH[name].signature.parameters)
    assert BOTH[name].changed == newest(name)


def test_the_third_argument_of_a_dma_is_what_it_was(machine):
    bench = machine(nki="0.3")
    tile, data = bench.empty((4, 8)), bench.tile(np.ones((4, 8)), buffer="shared_hbm")
    (record,) = bench.issue("dma_copy", tile, data, oob_mode.error, dge_mode.swdge)
    assert record.price.transfer.dge == "sw"
    assert "priority 0 to 3" in machine("trn3").refuses("dma-priority", "dma_copy", tile, data, oob_mode.error)


@pytest.mark.parametrize(
    ("name", "version", "argument"),
    [
        (name, since, argument)
        for name, arguments in ARGUMENTS.items()
        for argument, since in arguments.items()
        if name in TABLE
    ],
)
def test_an_argument_that_came_later_is_refused_by_its_version(machine, name, version, argument):
    before = f"0.{version[1] - 1}"
    values = {"engine": None, "priority": 1, "oob_mode": oob_mode.error, "reduce_res_negate": True}
    count = len([p for p in TABLE[name].signature.parameters.values() if p.default is inspect.Parameter.empty])
    bench = machine("trn3", nki=before)
    with pytest.raises(Exception, match=f"unexpected keyword argument '{argument}'") as caught:
        bench.issue(name, *[None] * (count + (name == "tensor_scalar_reduce")), **{argument: values.get(argument)})
    assert caught.value.rule == "call-signature"
    assert caught.value.hint == f"{argument} came with NKI 0.{version[1]}"


def test_reduce_res_of_tensor_scalar_reduce_may_be_left_out_from_0_6_on(machine):
    call = {"op0": OPS["multiply"], "operand0": 2.0, "reduce_op": OPS["add"]}
    for version in ("0.5", "0.6"):
        bench = machine(nki=version)
        tile = bench.tile(np.ones((4, 8)))
        if version == "0.5":
            message = bench.refuses("call-signature", "tensor_scalar_reduce", tile, tile, **call)
            assert "missing a required argument: 'reduce_res'" in message
        else:
            bench.issue("tensor_scalar_reduce", tile, tile, **call)


def test_a_retired_argument_is_named_in_older_versions_too(machine):
    bench = machine(nki="0.3")
    tile = bench.tile(np.ones((4, 8)), buffer="shared_hbm")
    with pytest.raises(Exception, match="dst_rmw_op") as caught:
        bench.issue("dma_copy", tile, tile, dst_rmw_op=OPS["add"])
    assert "dma_compute" in caught.value.hint
