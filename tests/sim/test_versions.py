"""Argument orders, arguments and defaults follow the NKI version of the run."""

import functools
import importlib
import inspect

import numpy as np
import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.sim.isa import COLLECTIVES, TABLE
from kernels_neuron.sim.isa.enums import dge_mode, oob_mode
from kernels_neuron.sim.isa.ops import OPS
from kernels_neuron.sim.shim import install
from kernels_neuron.sim.versions import ARGUMENTS, DEFAULTS, METHODS, SINCE, later_names, newest, signature_in, spell

install()
import nki.language as nl  # noqa: E402

BOTH = {entry.short: entry for entry in (TABLE | COLLECTIVES).values()}
# positional arguments by version, from the API reference of each; those that never moved are not listed
ORDERS = {
    ("nisa.dma_copy", (0, 3)): "dst src oob_mode dge_mode engine name",
    ("nisa.dma_copy", (0, 4)): "dst src priority oob_mode dge_mode engine name",
    ("nisa.dma_transpose", (0, 3)): "dst src axes dge_mode oob_mode name",
    ("nisa.dma_transpose", (0, 4)): "dst src axes priority dge_mode oob_mode name",
    ("nisa.dma_compute", (0, 3)): "dst srcs reduce_op scales unique_indices name",
    ("nisa.tensor_scalar_reduce", (0, 3)): "dst data op0 operand0 reduce_op reduce_res reverse0 name",
    ("nisa.tensor_scalar_reduce", (0, 4)): (
        "dst data op0 operand0 reduce_op reduce_res reverse0 reduce_cmd reduce_init name"
    ),
    ("nisa.activation", (0, 6)): "dst op data bias scale reduce_op reduce_res reduce_cmd name",
    ("nisa.activation", (0, 7)): "dst op data bias scale reduce_op reduce_res reduce_cmd engine name",
    ("ncc.all_reduce", (0, 3)): "srcs dsts replica_group op",
    ("ncc.all_reduce", (0, 4)): "srcs dsts replica_group op priority",
    ("ncc.all_reduce", (0, 5)): "srcs dsts replica_group op priority name",
}


@pytest.mark.parametrize(("name", "version"), ORDERS, ids=lambda value: ".".join(map(str, value)) if value else value)
def test_arguments_stand_in_the_order_of_the_version(name, version):
    older = signature_in(name, version, BOTH[name].signature)
    assert " ".join(older.parameters) == ORDERS[name, version]


@pytest.mark.parametrize("name", sorted({*ARGUMENTS, *DEFAULTS} & {*BOTH}))
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
        (entry.name, since, argument)
        for entry in TABLE.values()
        for argument, since in ARGUMENTS.get(entry.short, {}).items()
        if since > (0, 3)
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


# ---- names


@pytest.mark.parametrize("name", [name for name, since in SINCE.items() if since > (0, 3)])
def test_a_name_is_refused_by_versions_before_it_and_found_by_its_own(machine, name):
    module, *rest = name.split(".")
    path = f"nki.{ {'nl': 'language', 'nisa': 'isa', 'ncc': 'collectives'}[module] }"
    holder = functools.reduce(getattr, rest[:-1], importlib.import_module(path))
    assert rest[-1] in dir(holder) or "tile_size" in rest
    since = SINCE[name]
    with machine(nki=spell(since)).inside():
        assert getattr(holder, rest[-1]) is not None
    with machine(nki=f"0.{since[1] - 1}").inside():
        assert not hasattr(holder, rest[-1])
        with pytest.raises(
            KernelError, match=rf"{name} exists from NKI {spell(since)} on, the run is set to"
        ) as caught:
            getattr(holder, rest[-1])
    assert caught.value.rule == "api-version"
    assert spell(since) in caught.value.hint
    assert getattr(holder, rest[-1]) is not None  # no run, no version


def test_later_names_are_those_a_run_may_be_too_old_for():
    assert {"abs_max", "fori_loop", "tiles"} <= later_names("nl")
    assert not {"float8_e4m3fn", "no_reorder", "load"} & later_names("nl")


@pytest.mark.parametrize("op", ["abs_max", "abs_min", "relu", "square"])
def test_an_operator_that_became_an_alu_operation_is_refused_before(machine, op):
    for version, legal in (("0.3", False), ("0.4", True)):
        bench = machine("trn3", nki=version)
        tile = bench.tile(np.ones((4, 8)))
        call = {"dst": tile, "data": tile, "op0": OPS[op], "operand0": 2.0 if op.startswith("abs") else None}
        if legal:
            bench.issue("tensor_scalar", **call)
        else:
            assert f"nl.{op} exists from NKI 0.4 on" in bench.refuses("api-version", "tensor_scalar", **call)


VIEWS = {
    "slice": (0, 0, 2), "select": (1, 0), "permute": ((0, 2, 1),), "broadcast": (2, 4), "expand_dim": (1,),
    "squeeze_dim": (2,), "reshape_dim": (1, (2, 4)), "flatten_dims": (1, 2),
    "rearrange": (("p", "a", "b"), ("p", "b", "a")), "is_contiguous": (), "is_indirect": (),
}  # fmt: skip


@pytest.mark.parametrize("method", VIEWS)
def test_a_method_of_tensors_is_refused_by_versions_before_it(machine, method):
    since = METHODS[method]
    for version, legal in ((f"0.{since[1] - 1}", False), (spell(since), True)):
        bench = machine(nki=version)
        tile = bench.empty((4, 8, 1))
        with bench.inside():
            if legal:
                getattr(tile, method)(*VIEWS[method])
            else:
                with pytest.raises(KernelError, match=rf"\.{method} exists from NKI 0\.5 on") as caught:
                    getattr(tile, method)(*VIEWS[method])
                assert caught.value.rule == "api-version"


def test_the_simulator_makes_views_of_its_own_in_any_version(machine):
    bench = machine(nki="0.3")
    with bench.inside():
        assert nl.broadcast_to(bench.tile(np.ones((4, 1))), (4, 8)).shape == (4, 8)
