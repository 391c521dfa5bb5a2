import numpy as np
import pytest

import kernels_neuron.sim.shim as shim
from kernels_neuron.errors import KernelError
from kernels_neuron.sim.register import VirtualRegister

shim.install()
import nki.isa as nisa  # noqa: E402


@pytest.mark.parametrize(("dtype", "value"), [("int32", -7), ("uint32", 2**32 - 1), ("uint8", 200), ("float32", 1.5)])
def test_register_load_matches_numpy(machine, dtype, value):
    bench, register = machine(), VirtualRegister()
    bench.issue("register_load", register, bench.tile(np.array([[value]], dtype)))
    assert register.value == value


@pytest.mark.parametrize(("dtype", "value"), [("int32", -7), ("uint32", 2**32 - 1), ("int8", -3), ("float32", 1.5)])
def test_register_store_matches_numpy(machine, dtype, value):
    bench, out = machine(), None
    out = bench.empty((1,), dtype, "shared_hbm")
    bench.issue("register_store", out, VirtualRegister(value))
    assert out.array().item() == value


def test_register_move_matches_numpy(machine):
    bench, first, second = machine(), VirtualRegister(), VirtualRegister()
    bench.issue("register_move", first, 5)
    bench.issue("register_move", second, first)
    assert second.value == 5


def test_registers_hold_32_bits():
    assert VirtualRegister(-1).value == -1
    assert VirtualRegister(2**32 + 3).value == 3


def test_register_alloc_takes_nothing_a_number_or_an_element(machine):
    bench = machine()
    with bench.inside():
        assert nisa.register_alloc().value is None
        assert nisa.register_alloc(3).value == 3
        assert nisa.register_alloc(bench.tile(np.array([[4]], np.int32))).value == 4
    assert bench.core.dynamic


@pytest.mark.parametrize("name", ["register_load", "register_store"])
def test_access_to_memory_costs_what_a_dynamic_address_costs(machine, name):
    bench = machine()
    element, register = bench.tile(np.array([[1]], np.int32)), VirtualRegister(1)
    (record,) = bench.issue(name, *((register, element) if name == "register_load" else (element, register)))
    assert record.engine == "sync"
    assert record.price.issue_ns == pytest.approx(600 / 1.2 + 50)


def test_register_load_price(machine):
    bench = machine()
    (record,) = bench.issue("register_load", VirtualRegister(), bench.tile(np.array([[1]], np.int32)))
    assert len(record.reads) == 1 and not record.writes


def test_register_store_price(machine):
    bench = machine()
    (record,) = bench.issue("register_store", bench.empty((1, 1), "int32"), VirtualRegister(1))
    assert len(record.writes) == 1 and not record.reads


def test_register_move_price(machine):
    (record,) = machine().issue("register_move", VirtualRegister(), 1)
    assert record.price.issue_ns == pytest.approx(64 / 1.2)


def test_registers_take_registers_and_single_elements(machine):
    bench = machine()
    pair, element = bench.tile(np.ones((1, 2), np.int32)), bench.tile(np.ones((1, 1), np.int32))
    bench.refuses("register-operand", "register_load", VirtualRegister(), pair)
    bench.refuses("register-operand", "register_load", 3, element)
    bench.refuses("register-operand", "register_move", VirtualRegister(), 1.5)
    bench.refuses("operand-buffer", "register_load", VirtualRegister(), bench.tile(np.ones((1, 1)), buffer="psum"))
    bench.refuses("register-unset", "register_store", element, VirtualRegister())
    bench.refuses("register-frozen", "register_move", VirtualRegister(1, frozen=True), 2)
    bench.refuses("register-frozen", "register_load", VirtualRegister(1, frozen=True), element)
    with pytest.raises(KernelError, match="holds a 32-bit number") as caught:
        VirtualRegister("three")
    assert caught.value.rule == "register-value"


@pytest.mark.parametrize("use", [lambda r: r + 1, lambda r: 2 * r, lambda r: r < 3, int, range, lambda r: [0][r]])
def test_python_cannot_compute_with_a_register(machine, use):
    with machine().inside(), pytest.raises(KernelError) as caught:
        use(VirtualRegister(0))
    assert caught.value.rule == "register-in-python"


def test_a_branch_on_a_register_was_read_by_the_front_ends_before_0_7(machine):
    with machine(nki="0.6").inside():
        assert VirtualRegister(2) and not VirtualRegister(0)
    with machine().inside(), pytest.raises(KernelError, match="a branch or while condition") as caught:
        bool(VirtualRegister(2))
    assert caught.value.rule == "register-in-python"


def test_a_price_only_run_does_not_know_what_memory_holds(machine):
    bench, register = machine(execute=False, nki="0.6"), VirtualRegister(3)
    bench.issue("register_load", register, bench.tile(np.array([[1]], np.int32)))
    with bench.inside(), pytest.raises(KernelError, match="price-only run has none") as caught:
        bool(register)
    assert caught.value.rule == "register-unknown"


@pytest.mark.parametrize("name", ["iota", "affine_select"])
def test_an_offset_may_sit_in_a_register(machine, name):
    bench = machine()
    bench.core.dynamic = True
    out, register = bench.empty((2, 4), "int32"), VirtualRegister(10)
    if name == "iota":
        bench.issue("iota", out, [[1, 4]], register)
        np.testing.assert_array_equal(out.array(), [[10, 11, 12, 13]] * 2)
    else:
        bench.issue("affine_select", out, [[1, 4]], 0, bench.tile(np.ones((2, 4), np.int32)), 0.0, offset=register)
        assert not out.array().any()
