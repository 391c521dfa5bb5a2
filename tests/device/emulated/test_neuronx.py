"""Kernels on neuron tensors: called plainly, and as public code calls them through torch_neuronx."""

import importlib.util

import nki
import nki.isa as nisa
import nki.language as nl
import pytest
import torch
import torch_neuronx
from torch_neuronx import nki_op, wrap_nki

from kernels_neuron.errors import UsageError
from kernels_neuron.sim.context import using

N = "neuron"


@nki.jit
def double(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=y, src=tile)
    return y


@nki.jit
def double_into(x, out):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(4, 8).to(N)


CALLS = {
    "plain": double,
    "wrapped": wrap_nki(double),
    "one core": wrap_nki(double)[1],
    "one core in a tuple": wrap_nki(double)[(1,)],
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2])
def test_a_kernel_takes_neuron_tensors_and_gives_them(x, call, dtype):
    given = x.to(dtype)
    result = call(given)
    assert result.device == x.device and result.dtype is dtype
    assert result.float().equal((given.float() * 2).to(dtype).float())


def test_a_kernel_runs_in_the_simulator(x):
    with using(arch="trn2") as runs:
        double(x[:, ::2].t())
    assert [run.kernel for run in runs] == ["double"]


def test_a_kernel_writes_into_a_neuron_tensor(x):
    out = torch.zeros(5, 8, device=N)
    double_into(x, out[1:])
    assert out[1:].equal(x * 2) and out[0].eq(0).all()


def test_tensors_of_two_devices_are_refused(x):
    with pytest.raises(UsageError, match="out is on cpu and x on neuron:0, a kernel takes tensors of one device"):
        double_into(x, torch.zeros(4, 8))


def test_an_operator_is_defined_differentiated_and_compiled(x):
    @nki_op("kernels_neuron_tests::double", mutates_args={})
    def op(x: torch.Tensor) -> torch.Tensor:
        return wrap_nki(double)(x)

    op.register_fake(torch.empty_like)
    op.register_autograd(lambda ctx, grad: grad * 2)
    leaf = x.clone().requires_grad_()
    op(leaf).sum().backward()
    assert leaf.grad.eq(2).all()
    compiled = torch.compile(lambda a: op(a) + 1, backend="eager", fullgraph=True)
    assert compiled(x).equal(x * 2 + 1)


def test_libraries_find_the_stand_in(monkeypatch):
    assert importlib.util.find_spec("torch_neuronx") is not None
    torch_neuronx.synchronize()
    assert torch_neuronx.utils.get_logical_neuron_cores() == 1
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    from torch_neuronx.utils import get_logical_neuron_cores

    assert get_logical_neuron_cores() == 2
