"""LayerNorm in PyTorch: what the kernel has to equal."""

import functools

import torch
import torch.nn.functional as F


def layernorm(x, weight=None, bias=None, eps=1e-5):
    """y[..., h] = (x[..., h] - mean) / sqrt(variance + eps) * weight[h] + bias[h], moments over the last axis.

    Tensors of several dtypes are computed in the one they promote to; the result has the dtype of x.
    """
    given = [tensor for tensor in (x, weight, bias) if tensor is not None]
    common = functools.reduce(torch.promote_types, [tensor.dtype for tensor in given])
    wide, gain, shift = (None if tensor is None else tensor.to(common) for tensor in (x, weight, bias))
    return F.layer_norm(wide, x.shape[-1:], gain, shift, eps).to(x.dtype)
