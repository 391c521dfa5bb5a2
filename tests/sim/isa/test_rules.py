"""What holds for every instruction: refusals come first, prices need no data, and no call ends in anything else."""

import numpy as np
import pytest
from calls import ARCH, LEGAL, MEETINGS

from kernels_neuron.sim.isa import TABLE
from kernels_neuron.sim.isa.enums import oob_mode


def test_every_instruction_has_a_legal_call():
    assert set(TABLE) == {*LEGAL, *MEETINGS}


@pytest.mark.parametrize("name", LEGAL)
def test_a_refused_call_leaves_its_destination_alone(machine, name):
    bench = machine(ARCH.get(name, "trn2"))
    arguments = LEGAL[name](bench)
    tiles = [value for value in arguments.values() if hasattr(value, "storage")]
    before = [tile.storage.table().copy() for tile in tiles]
    bench.refuses("call-signature", name, **arguments, no_such_argument=1)
    for tile, data in zip(tiles, before, strict=True):
        np.testing.assert_array_equal(tile.storage.table(), data)


@pytest.mark.parametrize("name", LEGAL)
def test_a_price_only_run_issues_the_same_records(machine, name):
    runs = []
    for execute in (True, False):
        bench = machine(ARCH.get(name, "trn2"), execute=execute)
        records = bench.issue(name, **LEGAL[name](bench))
        runs.append([record._replace(where=0) for record in records])
    assert runs[0] == runs[1]


def test_oob_mode_is_accepted_where_nothing_is_dynamic(machine):
    bench = machine()
    bench.issue("dma_copy", **LEGAL["dma_copy"](bench), oob_mode=oob_mode.skip)
