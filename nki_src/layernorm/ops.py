"""layernorm for torch tensors: checks, views, and the kernel or its reference."""

from typing import Optional

import torch

from .._limits import DTYPES, LIMITS
from .._ops import add_op_namespace_prefix, define_op, get_backend, launch
from ..common.checks import (
    require_dtype,
    require_rank,
    require_same_device,
    require_shape,
    require_tensor,
    require_within,
)
from . import reference


def layernorm(
    x: torch.Tensor,
    weight: Optional[torch.Tensor] = None,
    bias: Optional[torch.Tensor] = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """y[..., h] = (x[..., h] - mean) / sqrt(variance + eps) * weight[h] + bias[h], moments over the last axis.

    x       [..., H]  float32, bfloat16 or float16; any leading axes and strides; H up to 16384
    weight  [H]       of any of these dtypes; None: ones
    bias    [H]       likewise; None: zeros
    eps     float     added to the variance, inside the root
    returns [..., H]  dtype of x, contiguous

    Rows that are contiguous are read in place when the leading axes are two evenly spaced ones after merging; other
    layouts are copied first. Raises Unsupported for another dtype, width or device.
    """
    _check(x, weight, bias, eps)
    if get_backend() == "cpu":
        return reference.layernorm(x, weight, bias, eps)
    if x.numel() == 0:
        return x.new_empty(x.shape)
    require_within("layernorm", "H", x.shape[-1], LIMITS)
    return _layernorm(x, weight, bias, float(eps))


def _check(x: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor], eps: float) -> None:
    require_tensor("layernorm", "x", x)
    require_rank("layernorm", "x", x, 1)
    require_dtype("layernorm", "x", x, DTYPES)
    for name, tensor in (("weight", weight), ("bias", bias)):
        require_tensor("layernorm", name, tensor, optional=True)
        require_dtype("layernorm", name, tensor, DTYPES)
        require_shape("layernorm", name, tensor, x.shape[-1:], "[H]")
    require_same_device("layernorm", x=x, weight=weight, bias=bias)
    if not eps >= 0:
        raise ValueError(f"layernorm: eps has to be at least 0, got {eps}")


def _impl(x: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor], eps: float) -> torch.Tensor:
    from . import kernel

    rows, spacing = _as_rows(x)
    gain, shift = (None if tensor is None else tensor.contiguous() for tensor in (weight, bias))
    return launch(kernel.layernorm, rows, gain, shift, eps, spacing).view(x.shape)


def _fake(x: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor], eps: float) -> torch.Tensor:
    return x.new_empty(x.shape)


def _as_rows(x: torch.Tensor) -> tuple[torch.Tensor, Optional[tuple[int, ...]]]:
    """x as the kernel takes it: [N, H] and None when dense, else the memory under x and how its rows are spaced."""
    width = x.shape[-1]
    if x.is_contiguous():
        return x.view(-1, width), None
    axes = _merged_leading_axes(x)
    if len(axes) > 2 or (width > 1 and x.stride(-1) != 1):
        return x.contiguous().view(-1, width), None
    (outer, outer_stride), (inner, inner_stride) = [(1, 0), (1, 0), *axes][-2:]
    span = (outer - 1) * outer_stride + (inner - 1) * inner_stride + width
    return x.as_strided((span,), (1,)), (outer, outer_stride, inner, inner_stride, width)


def _merged_leading_axes(x: torch.Tensor) -> list[tuple[int, int]]:
    """(size, stride) of the leading axes, each merged with the one before it where both are one even row of steps."""
    axes: list[tuple[int, int]] = []
    for size, stride in zip(x.shape[:-1], x.stride()[:-1]):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = (axes[-1][0] * size, stride)
        else:
            axes.append((size, stride))
    return axes


if get_backend() == "neuron":
    _layernorm = define_op(add_op_namespace_prefix("layernorm"), _impl, _fake)
