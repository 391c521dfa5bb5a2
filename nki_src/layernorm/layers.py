"""Layers that kernelize puts in the place of a model's own."""

from typing import Optional

import torch
from torch import nn

from .._ops import get_backend
from ..common.checks import Unsupported
from .ops import layernorm


class LayerNorm(nn.Module):
    """The forward of torch.nn.LayerNorm; weight, bias and eps are the host module's."""

    has_backward = get_backend() == "cpu"
    can_torch_compile = True

    normalized_shape: tuple[int, ...]
    weight: Optional[torch.Tensor]
    bias: Optional[torch.Tensor]
    eps: float

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """LayerNorm over the last axis of `input`."""
        if tuple(self.normalized_shape) != tuple(input.shape[-1:]):
            shape = list(self.normalized_shape)
            raise Unsupported("shape", f"LayerNorm: normalized_shape has to be {list(input.shape[-1:])}, got {shape}")
        return layernorm(input, self.weight, self.bias, self.eps)
