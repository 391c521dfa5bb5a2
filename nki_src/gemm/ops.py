"""The operator around the kernel: what it refuses, the 2-D views, the fake function."""

from typing import Optional

import torch

from .._limits import DTYPES
from .._ops import add_op_namespace_prefix, define_op, get_backend, launch
from ..common.checks import (
    Unsupported,
    describe,
    require_choice,
    require_dtype,
    require_rank,
    require_same_device,
    require_shape,
    require_tensor,
)
from ..common.weights import kept_weights
from . import reference

EPILOGUES = ("none", "gelu", "gelu_tanh", "silu")


def gemm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    residual: Optional[torch.Tensor] = None,
    epilogue: str = "none",
    transpose_weight: bool = False,
) -> torch.Tensor:
    """y = epilogue(x @ weight + bias) + residual.

    x                 [..., K]  float32, bfloat16 or float16; any leading axes and strides
    weight            [K, N], or [N, K] with transpose_weight; dtype of x, as have all the others
    bias              [N] or None
    residual          [..., N] or None
    epilogue          none, gelu (with erf), gelu_tanh or silu
    returns           [..., N]  dtype of x, contiguous

    The kernel runs fastest on [K, N] that is contiguous. A Parameter that lies otherwise is copied to that at its first
    call and kept, see common/weights.py; any other weight is turned inside each call.
    """
    _check(x, weight, bias, residual, epilogue, transpose_weight)
    cols = weight.shape[0] if transpose_weight else weight.shape[1]
    shape = [*x.shape[:-1], cols]
    if 0 in shape:
        return x.new_empty(shape)
    if get_backend() == "cpu" or x.shape[-1] == 0:
        return reference.gemm(x, weight, bias, residual, epilogue, transpose_weight)
    y = _op(
        x.reshape(-1, x.shape[-1]).contiguous(),
        weight,
        None if bias is None else bias.contiguous(),
        None if residual is None else residual.reshape(-1, cols).contiguous(),
        epilogue,
        transpose_weight,
    )
    return y.view(shape)


def _check(x, weight, bias, residual, epilogue, transpose_weight):
    require_tensor("gemm", "x", x)
    require_tensor("gemm", "weight", weight)
    require_tensor("gemm", "bias", bias, optional=True)
    require_tensor("gemm", "residual", residual, optional=True)
    require_choice("gemm", "epilogue", epilogue, EPILOGUES)
    require_rank("gemm", "x", x, least=1)
    require_rank("gemm", "weight", weight, least=2, most=2)
    depth, cols = (weight.shape[1], weight.shape[0]) if transpose_weight else tuple(weight.shape)
    if x.shape[-1] != depth:
        raise ValueError(f"gemm: the last axis of x has to be K = {depth} of weight, got {describe(x)}")
    require_shape("gemm", "bias", bias, (cols,), "[N]")
    require_shape("gemm", "residual", residual, (*x.shape[:-1], cols), "[..., N]")
    require_dtype("gemm", "x", x, DTYPES)
    for name, tensor in (("weight", weight), ("bias", bias), ("residual", residual)):
        if tensor is not None and tensor.dtype != x.dtype:
            raise Unsupported(
                "dtype", f"gemm: {name} has to have the dtype of x = {describe(x)}, got {describe(tensor)}"
            )
    require_same_device("gemm", x=x, weight=weight, bias=bias, residual=residual)


def _impl(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor],
    residual: Optional[torch.Tensor],
    epilogue: str,
    transpose_weight: bool,
) -> torch.Tensor:
    from .kernel import gemm as kernel

    weight, transpose_weight = _laid_out(weight, transpose_weight)
    return launch(kernel, x, weight, bias, residual, epilogue, transpose_weight)


def _laid_out(weight, transpose_weight):
    """weight and transpose_weight as the kernel takes them: contiguous, and [K, N] where that is at hand or kept."""
    matrix = weight.T if transpose_weight else weight
    if matrix.is_contiguous():
        return matrix, False
    kept = kept_weights.get(weight, ("[K, N]", transpose_weight), lambda own: _matrix(own, transpose_weight))
    if kept is not None:
        return kept, False
    if matrix.T.is_contiguous():
        return matrix.T, True
    return weight.contiguous(), transpose_weight


def _matrix(weight, transpose_weight):
    return (weight.T if transpose_weight else weight).contiguous()


def _fake(x, weight, bias, residual, epilogue, transpose_weight):
    cols = weight.shape[0] if transpose_weight else weight.shape[1]
    return x.new_empty((x.shape[0], cols))


if get_backend() == "neuron":
    _op = define_op(add_op_namespace_prefix("gemm"), _impl, _fake)
