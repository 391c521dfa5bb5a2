"""torch.compile on neuron tensors."""

import pytest
import torch
from torch import nn

N = "neuron"


@pytest.mark.parametrize("backend", ["eager", "neuron", "aot_eager"])
def test_a_compiled_model_is_one_graph_and_goes_backward(backend):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to(N)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    x = torch.randn(3, 4, device=N)
    y = compiled(x)
    assert y.device.type == N
    torch.testing.assert_close(y, model(x))
    y.sum().backward()
    assert model[0].weight.grad.device.type == N


def test_the_backend_is_listed():
    assert "neuron" in torch._dynamo.list_backends()
