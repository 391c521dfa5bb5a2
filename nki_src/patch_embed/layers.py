"""Layers that kernelize puts in the place of a model's own."""

from typing import Optional

import torch
from torch import nn

from .._ops import get_backend
from ..common.checks import Unsupported
from .ops import patch_embed


class PatchEmbedding(nn.Module):
    """The forward of a torch.nn.Conv2d whose stride is its kernel size; weight and bias are the host module's."""

    has_backward = get_backend() == "cpu"
    can_torch_compile = True

    weight: torch.Tensor
    bias: Optional[torch.Tensor]

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """The convolution of `pixel_values` [B, C, H, W], as [B, N, H // P, W // P]."""
        size = tuple(self.weight.shape[-2:])
        if tuple(self.stride) != size or self.groups != 1 or tuple(self.dilation) != (1, 1):
            kind = f"kernel {size}, stride {tuple(self.stride)}, dilation {tuple(self.dilation)}, groups {self.groups}"
            raise Unsupported("shape", f"PatchEmbedding: the stride has to be the kernel size, got {kind}")
        if self.padding not in ((0, 0), "valid"):
            raise Unsupported("shape", f"PatchEmbedding: padding has to be 0, got {self.padding}")
        height, width = (length // side for length, side in zip(pixel_values.shape[-2:], size))
        tokens = patch_embed(pixel_values, self.weight, self.bias)
        return tokens.transpose(1, 2).unflatten(2, (height, width))
