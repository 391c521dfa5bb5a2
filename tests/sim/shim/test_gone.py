"""Names that NKI no longer has say what replaced them."""

import numpy as np
import pytest

import kernels_neuron.sim.shim as shim
from kernels_neuron.errors import KernelError, UsageError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using
from kernels_neuron.sim.isa import TABLE
from kernels_neuron.sim.run import jit
from kernels_neuron.sim.shim import gone

shim.install()
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

X = np.zeros((2, 4), np.float32)


def inside(use, **settings):
    """Use something inside a kernel."""

    def kernel(x):
        use()
        return x

    with using(settings=Settings(**settings)):
        jit(kernel)(X)


RETIRED = [
    (module, name, *entry) for module, table in ((nl, gone.LANGUAGE), (nisa, gone.ISA)) for name, entry in table.items()
]


@pytest.mark.parametrize(("module", "name", "since", "instead"), RETIRED, ids=[row[1] for row in RETIRED])
def test_every_retired_name_imports_and_names_its_successor_in_a_run(module, name, since, instead):
    retired = getattr(module, name)
    assert name in repr(retired)
    with pytest.raises(UsageError, match=f"{name} is gone since NKI {since}"):
        retired(X)
    with pytest.raises(KernelError, match=f"{name} is gone since NKI {since}") as caught:
        inside(lambda: retired(X))
    assert (caught.value.rule, caught.value.hint) == ("retired", instead)


def test_a_retired_name_is_refused_when_it_is_indexed_or_read_from_too():
    for use in (lambda: nl.mgrid[0:4, 0:4], lambda: nl.fp32.min):
        with pytest.raises(KernelError, match="gone since NKI 0"):
            inside(use)


@pytest.mark.parametrize("name", gone.STILL)
def test_a_retired_call_runs_in_a_version_that_has_it(name):
    def kernel(x):
        tile, copy = nl.load(x), nl.ndarray(x.shape, x.dtype)
        getattr(nisa, name)(dst=copy, src=tile)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, copy)
        return out

    with using(settings=Settings(nki="0.3")):
        np.testing.assert_array_equal(jit(kernel)(X + 3), X + 3)
    with using(settings=Settings(nki="0.4")), pytest.raises(KernelError, match=r"gone since NKI 0\.4"):
        jit(kernel)(X)


def test_dynamic_range_runs_until_0_6():
    turns = []

    def use():
        for i in nl.dynamic_range(3):
            turns.append(i)

    inside(use, nki="0.6")
    assert len(turns) == 3
    with pytest.raises(KernelError, match=r"dynamic_range is gone since NKI 0\.7") as caught:
        inside(use)
    assert "fori_loop" in caught.value.hint


@pytest.mark.parametrize(("call", "argument"), [key for key in gone.ARGUMENTS if key[0] in TABLE])
def test_every_retired_argument_names_its_successor(machine, call, argument):
    with pytest.raises(KernelError) as caught:
        machine().issue(call, **{argument: None})
    assert (caught.value.rule, caught.value.hint) == ("call-signature", gone.ARGUMENTS[call, argument])


@pytest.mark.parametrize("name", ["baremetal", "benchmark", "profile", "simulate_kernel", "trace"])
def test_a_retired_way_to_run_a_kernel_names_its_successor(name):
    with pytest.raises(UsageError, match=f"nki.{name} is gone since NKI"):
        getattr(nki, name)(X)
    assert name in repr(getattr(nki, name))
