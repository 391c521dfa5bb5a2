from dataclasses import replace

import pytest

from kernels_neuron.arch import chip
from kernels_neuron.cost.plan import plan
from kernels_neuron.cost.ports import Port, ports_of, reserve
from kernels_neuron.cost.timeline import replay
from kernels_neuron.sim.trace import Place, Price, Record, Region, Tile, Trace

TRN1, TRN2 = chip("trn1"), chip("trn2")
FAST = Price(100, 150, fast=True)


def steps(*given):
    """A trace of (engine, memory, tile, price) steps, each writing 1 KiB of a tile of its own."""
    trace = Trace("trn1", 0, lines=[("k.py", 1)])
    for number, (engine, memory, byte, price) in enumerate(given):
        trace.tiles[number] = Tile(number, "", memory, "float32", (128, 256), 128, 1024, 0)
        trace.places[number] = Place(memory, 0, byte)
        trace.records.append(Record("step", engine, price, (), (Region(number, 0, 128, 0, 1024),), number, 0))
    return trace


def starts(trace, arch):
    return list(replay(plan(trace, arch)).start)


def test_vector_and_gpsimd_take_turns_at_sbuf_on_trn1():
    trace = steps(("vector", "sbuf", 0, Price(1000, 1100)), ("gpsimd", "sbuf", 1024, Price(500, 600)))
    free = replace(TRN1, gpsimd_begins_ns=0.0, scalar_begins_ns=0.0)
    assert starts(trace, free) == [0, 1000] or starts(trace, free) == [500, 0]
    assert starts(trace, replace(free, sbuf_port="mode")) == [0, 0]


def test_vector_and_scalar_take_turns_at_psum_on_trn1_and_at_one_bank_on_trn2():
    same_bank, other_bank = 1024, 2048
    for arch, byte, apart in ((TRN1, other_bank, True), (TRN2, other_bank, False), (TRN2, same_bank, True)):
        arch = replace(arch, scalar_begins_ns=0.0)
        trace = steps(("vector", "psum", 0, Price(1000, 1100)), ("scalar", "psum", byte, Price(1000, 1100)))
        assert (sorted(starts(trace, arch)) == [0, 1000]) is apart


def test_only_performance_modes_keep_gpsimd_off_sbuf_on_trn2():
    arch = replace(TRN2, gpsimd_begins_ns=0.0)
    for price, apart in ((Price(100, 150), False), (FAST, True)):
        trace = steps(("vector", "sbuf", 0, price), ("gpsimd", "sbuf", 1024, Price(100, 150)))
        assert (sorted(starts(trace, arch)) == [0, 100]) is apart


def test_vector_in_sbuf_and_scalar_in_psum_do_not_meet():
    trace = steps(("vector", "sbuf", 0, Price(100, 150)), ("scalar", "psum", 0, Price(100, 150)))
    assert ports_of(trace, TRN1) == {}


def test_a_port_is_given_in_the_first_gap():
    port = Port()
    port.hold(100.0, 50.0, 7)
    port.hold(300.0, 50.0, 8)
    assert port.gap(0.0, 100.0) == (0.0, -1)
    assert port.gap(0.0, 101.0) == (150.0, 7)
    assert port.gap(120.0, 200.0) == (350.0, 8)
    other = Port()
    other.hold(160.0, 100.0, 9)
    assert reserve([port, other], 0.0, 120.0, 10) == (350.0, 8)
    assert port.gap(350.0, 1.0) == (pytest.approx(470.0), 10)


def test_performance_modes_are_marked_where_they_are_priced():
    from kernels_neuron.sim.isa.prices import PRICES, Facts

    halves, singles = Facts("vector", 512, ("bfloat16",) * 2, ("sbuf",) * 2, True), ("float32",) * 2
    assert PRICES["tensor_copy"](TRN2, halves).fast
    assert not PRICES["tensor_copy"](TRN2, halves._replace(dtypes=singles)).fast
    assert PRICES["tensor_scalar"](TRN2, halves._replace(dtypes=singles)).fast
    assert not PRICES["tensor_copy"](TRN1, halves).fast
    three = Facts("vector", 512, ("bfloat16",) * 3, ("sbuf",) * 3, True)
    assert PRICES["tensor_tensor"](TRN2, three).fast and not PRICES["tensor_tensor"](TRN1, three).fast
