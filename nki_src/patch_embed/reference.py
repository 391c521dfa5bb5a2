"""Patch embedding in PyTorch: what the kernel has to equal."""

import torch
import torch.nn.functional as F


def patch_embed(image, weight, bias=None, class_token=None, position=None):
    """Tokens [B, T, N]: the convolution whose stride is its kernel, a class token before them, positions added."""
    tokens = F.conv2d(image, weight, bias, stride=weight.shape[-1]).flatten(2).transpose(1, 2)
    if class_token is not None:
        tokens = torch.cat([class_token.expand(len(tokens), 1, -1), tokens], dim=1)
    return tokens if position is None else tokens + position
