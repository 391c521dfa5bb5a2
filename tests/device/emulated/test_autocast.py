"""torch.autocast("neuron")."""

import copy

import pytest
import torch
from torch import nn

N = "neuron"


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (lambda x: nn.functional.linear(x, x), torch.bfloat16),
        (lambda x: x @ x, torch.bfloat16),
        (lambda x: torch.einsum("ij,jk", x, x), torch.bfloat16),
        (lambda x: x.bfloat16().softmax(-1), torch.float32),
        (lambda x: x.bfloat16().sum(), torch.float32),
        (lambda x: torch.cat((x, x.bfloat16())), torch.float32),
        (lambda x: x.bfloat16() + 1, torch.bfloat16),
        (lambda x: x.double() @ x.double(), torch.float64),
    ],
)
def test_each_operator_runs_in_its_precision(call, dtype):
    with torch.autocast(N, dtype=torch.bfloat16):
        assert call(torch.ones(2, 2, device=N)).dtype is dtype


def test_a_model_trains_close_to_the_cpus_autocast():
    torch.manual_seed(0)
    here = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    there = copy.deepcopy(here).to(N)
    x = torch.randn(3, 4)
    with torch.autocast(N, dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(there(x.to(N)), torch.tensor([0, 1, 1], device=N))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = nn.functional.cross_entropy(here(x), torch.tensor([0, 1, 1]))
    loss.backward()
    assert loss.dtype is torch.float32 and there[0].weight.grad.dtype is torch.float32
    torch.testing.assert_close(loss.cpu(), expected, rtol=1e-2, atol=1e-2)


def test_outside_nothing_is_cast():
    assert (torch.ones(2, 2, device=N) @ torch.ones(2, 2, device=N)).dtype is torch.float32
