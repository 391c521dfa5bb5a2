"""torch.autocast("neuron"): which operators run in low precision, which in float32, which in their widest input dtype.

The lists are those torch uses for its other accelerators; everything else takes its inputs as they are.
"""

from collections.abc import Callable
from typing import Any

import torch

from .dispatch import NAME, Op

KEY = "AutocastPrivateUse1"

# fmt: off
LOW = (
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input",
    "convolution", "prelu", "linear", "matmul", "mm", "mv", "bmm", "addmm", "addmv", "addr", "addbmm", "baddbmm",
    "einsum", "chain_matmul", "linalg_multi_dot", "linalg_vecdot", "scaled_dot_product_attention", "lstm_cell",
    "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
)
# fmt: on

# fmt: off
FLOAT32 = (
    "acos", "asin", "cosh", "sinh", "tan", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal",
    "rsqrt", "softplus", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "layer_norm", "rms_norm",
    "group_norm", "norm.Scalar", "norm.ScalarOpt_dim", "cosine_similarity", "poisson_nll_loss",
    "cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss",
    "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss",
    "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits", "cross_entropy_loss", "dist",
    "pdist", "cdist", "renorm", "logsumexp", "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod",
    "cumsum", "sum", "sum.dim_IntList", "linalg_vector_norm", "linalg_matrix_norm",
)
# fmt: on

# fmt: off
WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add", "cat", "stack",
)
# fmt: on


def register(library: torch.library.Library, everything: torch.library.Library) -> None:
    """Give the dispatcher the three policies; operators of no list pass."""
    everything.fallback(torch.library.fallthrough_kernel, KEY)
    for names, dtype in ((LOW, _low), (FLOAT32, _float32), (WIDEST, _widest)):
        for name in names:
            packet, _, overload = name.partition(".")
            library.impl(name, _cast_first(getattr(getattr(torch.ops.aten, packet), overload or "default"), dtype), KEY)


_below = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, KEY))


def _cast_first(op: Op, dtype: Callable[[list[torch.dtype]], torch.dtype]) -> Callable[..., Any]:
    def cast(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_below):
            found = [tensor.dtype for tensor in _castable((*args, *kwargs.values()))]
            if found:
                to = dtype(found)
                args = tuple(_cast(value, to) for value in args)
                kwargs = {name: _cast(value, to) for name, value in kwargs.items()}
            return op(*args, **kwargs)

    return cast


def _low(found: list[torch.dtype]) -> torch.dtype:
    return torch.get_autocast_dtype(NAME)


def _float32(found: list[torch.dtype]) -> torch.dtype:
    return torch.float32


def _widest(found: list[torch.dtype]) -> torch.dtype:
    return torch.float32 if torch.float32 in found else found[0]


def _castable(values: Any) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            tensors.extend(_castable(value))
        elif isinstance(value, torch.Tensor) and _is_castable(value):
            tensors.append(value)
    return tensors


def _is_castable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dtype is not torch.float64 and tensor.device.type == NAME


def _cast(value: Any, to: torch.dtype) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, to) for item in value)
    return value.to(to) if isinstance(value, torch.Tensor) and _is_castable(value) else value
