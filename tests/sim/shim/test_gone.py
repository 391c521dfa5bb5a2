"""Names that NKI no longer has say what replaced them."""

import numpy as np
import pytest

import kernels_neuron.sim.shim as shim
from kernels_neuron.errors import KernelError, UsageError
from kernels_neuron.sim.run import jit

shim.install()
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

X = np.zeros((2, 4), np.float32)


@pytest.mark.parametrize(
    ("use", "hint"),
    [
        (lambda: nl.arange(4), "use slices"),
        (lambda: nl.mgrid[0:4, 0:4], "use slices"),
        (lambda: nl.fp32.min, "write the number"),
        (lambda: nl.par_dim(128), "partition axis"),
        (lambda: nisa.tensor_copy_dynamic_src(X, X), "scalar_offset"),
    ],
)
def test_a_retired_name_inside_a_kernel_names_its_successor(use, hint):
    def kernel(x):
        use()
        return x

    with pytest.raises(KernelError, match="gone since NKI 0") as caught:
        jit(kernel)(X)
    assert caught.value.rule == "retired" and hint in caught.value.hint


@pytest.mark.parametrize("name", ["baremetal", "benchmark", "profile", "simulate_kernel", "trace"])
def test_a_retired_way_to_run_a_kernel_names_its_successor(name):
    with pytest.raises(UsageError, match=f"nki.{name} is gone since NKI"):
        getattr(nki, name)(X)
    assert name in repr(getattr(nki, name))


def test_a_retired_argument_names_its_successor(machine):
    bench = machine()
    tile = bench.tile(X, buffer="shared_hbm")
    with pytest.raises(KernelError) as caught:
        bench.issue("dma_copy", tile, tile, dst_rmw_op=nl.add)
    assert caught.value.rule == "call-signature" and "dma_compute" in caught.value.hint
