"""NkiScalar: arithmetic that the kernel's Python never sees, and where scalars go."""

import numpy as np
import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings
from kernels_neuron.sim import shim
from kernels_neuron.sim.context import using
from kernels_neuron.sim.run import simulate

shim.install()
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

COUNT = np.array([[3]], np.int32)


def computed(compute, value=3, **settings):
    """What the kernel stores of compute(scalar)."""

    def kernel(count):
        out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
        nisa.scalar_store(out, compute(nisa.scalar_load(count)))
        return out

    return int(simulate(kernel, np.array([[value]], np.int32), settings=Settings(**settings))[0, 0])


@pytest.mark.parametrize(
    ("value", "compute", "expected"),
    [
        (3, lambda i: i * 4 + 1, 13),
        (3, lambda i: 10 - i, 7),
        (3, lambda i: i - 10, -7),
        (3, lambda i: -i * i, -9),
        (3, lambda i: 2 * i + i, 9),
        (100000, lambda i: i * 100000, 1410065408),
        (2**31 - 1, lambda i: i + 1, -(2**31)),
    ],
)
def test_scalars_add_subtract_and_multiply_and_wrap_at_32_bits(value, compute, expected):
    assert computed(compute, value) == expected


def test_a_scalar_is_an_offset_and_a_bound_of_a_loop():
    def kernel(x, count):
        out = nl.ndarray((3, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        last = nisa.scalar_load(count)

        def body(i):
            assert isinstance(i, nisa.NkiScalar)
            row = nl.ndarray((1, 4), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=row, src=x.ap([[4, 1], [1, 4]], scalar_offset=last - i))
            nisa.dma_copy(dst=out.ap([[4, 1], [1, 4]], scalar_offset=i), src=row)

        nl.fori_loop(0, last, body)
        return out

    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(simulate(kernel, x, COUNT), x[[3, 2, 1]])


def test_a_loop_gives_a_register_where_a_bound_is_one_and_before_0_7():
    kinds = []

    def kernel(x, bound):
        register = nisa.register_alloc(2)
        nl.fori_loop(0, register if bound else 2, lambda i: kinds.append(type(i)))
        return x

    simulate(kernel, COUNT, True)
    simulate(kernel, COUNT, False, settings=Settings(nki="0.6"))
    simulate(kernel, COUNT, False)
    assert kinds == [nisa.VirtualRegister] * 4 + [nisa.NkiScalar] * 2


def test_each_operation_is_an_instruction_of_the_sequencer():
    with using("trn2") as runs:
        assert computed(lambda i: i * 4 + 1) == 13
    records = runs[0].traces[0].records
    assert [record.name for record in records] == ["register_load", *["scalar_arithmetic"] * 2, "register_store"]
    assert records[1].price.issue_ns == pytest.approx(64 / 1.2)


def test_a_price_only_run_does_not_know_a_scalar():
    with using("trn2", Settings(execute=False)), pytest.raises(KernelError) as caught:
        simulate(lambda count: nl.fori_loop(0, nisa.scalar_load(count) + 1, lambda i: None), COUNT)
    assert caught.value.rule == "register-unknown"


@pytest.mark.parametrize(
    ("rule", "compute"),
    [
        ("register-operand", lambda i: i + 1.5),
        ("register-operand", lambda i: i * nisa.register_alloc(1)),
        ("register-operand", lambda i: 7),
        ("register-in-python", lambda i: i // 2),
        ("register-in-python", lambda i: i < 2),
        ("register-in-python", lambda i: i or i),
        ("register-in-python", lambda i: range(i)),
        ("register-frozen", lambda i: nisa.register_move(i, 1)),
        ("scalar-dtype", lambda i: nisa.NkiScalar(1, dtype=nl.int16)),
    ],
)
def test_a_scalar_refuses(rule, compute):
    with pytest.raises(KernelError) as caught:
        computed(compute)
    assert caught.value.rule == rule


def test_a_scalar_is_loaded_from_an_int32_and_from_0_7_on():
    with pytest.raises(KernelError) as caught:
        simulate(lambda x: nisa.scalar_load(x), np.zeros((1, 1), np.uint32))
    assert caught.value.rule == "operand-dtype"
    with pytest.raises(KernelError) as caught:
        computed(lambda i: i, nki="0.6")
    assert caught.value.rule == "api-version"
