"""Layers for kernelize: a layer has no state of its own, its members come from the module it replaces."""

from typing import Optional

import torch
from torch import nn

from .._ops import get_backend
from .ops import gemm


class Linear(nn.Module):
    """nn.Linear: weight [N, K], bias [N] or None."""

    has_backward = get_backend() == "cpu"
    can_torch_compile = True
    weight: torch.Tensor
    bias: Optional[torch.Tensor]

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return gemm(input, self.weight, self.bias, transpose_weight=True)


class LinearGELU(nn.Module):
    """nn.Linear and the exact GELU after it."""

    has_backward = get_backend() == "cpu"
    can_torch_compile = True
    weight: torch.Tensor
    bias: Optional[torch.Tensor]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return gemm(hidden_states, self.weight, self.bias, epilogue="gelu", transpose_weight=True)


class LinearGELUTanh(nn.Module):
    """nn.Linear and the tanh form of GELU after it."""

    has_backward = get_backend() == "cpu"
    can_torch_compile = True
    weight: torch.Tensor
    bias: Optional[torch.Tensor]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return gemm(hidden_states, self.weight, self.bias, epilogue="gelu_tanh", transpose_weight=True)
