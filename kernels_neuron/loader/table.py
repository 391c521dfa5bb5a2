"""Which classes are served by which kernel: exact types, by qualified name, so that no model library is imported.

A subclass may compute something else under the same name, so it is never served by its parent's row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

SERVED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Refusal:
    """Why a module or a call keeps the original: a reason code of the report and one sentence."""

    reason: str
    detail: str = ""


def serve_any(module: nn.Module, *args: Any, **kwargs: Any) -> Refusal | None:
    """Leave every refusal of a call to the kernel."""
    return None


@dataclass(frozen=True)
class LayerRow:
    """One class whose forward a kernel's layer replaces.

    kernel      folder in nki_src
    layer       class in the artifact's `layers`
    parameters  of the layer's forward, self left out
    refuse      what this row does not serve of the class, seen from the module alone
    flops       useful operations of one call, from the module, its input and its output
    refuse_call what the class takes and the layer does not, seen from the arguments
    """

    kind: str
    kernel: str
    layer: str
    parameters: tuple[str, ...]
    refuse: Callable[[nn.Module], Refusal | None]
    flops: Callable[[nn.Module, torch.Tensor, torch.Tensor], int]
    refuse_call: Callable[..., Refusal | None] = serve_any


@dataclass(frozen=True)
class MlpRow:
    """One class that computes last(activation(first(x))): names of the three children."""

    first: str
    activation: str
    last: str


def qualified_name(cls: type) -> str:
    """The name a row of the tables goes by."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _dtype_refusal(module: nn.Module) -> Refusal | None:
    weight = getattr(module, "weight", None)
    if weight is not None and weight.dtype not in SERVED_DTYPES:
        return Refusal("dtype", f"weight is {weight.dtype}".replace("torch.", ""))
    return None


def _refuse_norm(module: nn.Module) -> Refusal | None:
    if len(module.normalized_shape) != 1:  # type: ignore[arg-type]
        return Refusal("shape", f"normalizes over {len(module.normalized_shape)} axes")  # type: ignore[arg-type]
    return _dtype_refusal(module)


def _refuse_convolution(module: nn.Module) -> Refusal | None:
    kernel = module.kernel_size
    height, width = kernel  # type: ignore[misc]
    if module.stride != kernel:
        return Refusal("class-not-listed", f"no patch embedding: stride {module.stride}, kernel {kernel}")
    if height != width:
        return Refusal("shape", f"patch {height}x{width} is not square")
    if module.padding not in ((0, 0), 0, "valid"):
        return Refusal("class-not-listed", f"no patch embedding: padding {module.padding}")
    if module.dilation != (1, 1) or module.groups != 1:
        return Refusal("class-not-listed", f"no patch embedding: dilation {module.dilation}, groups {module.groups}")
    return _dtype_refusal(module)


def _refuse_one_image(module: nn.Module, x: torch.Tensor) -> Refusal | None:
    return None if x.dim() == 4 else Refusal("shape", "an image without a batch axis")


def _no_flops(module: nn.Module, x: torch.Tensor, out: torch.Tensor) -> int:
    return 0


def linear_flops(module: nn.Module, x: torch.Tensor, out: torch.Tensor) -> int:
    """2 M N K of a matrix product with M rows."""
    return 2 * x.numel() * out.shape[-1]


def convolution_flops(module: nn.Module, x: torch.Tensor, out: torch.Tensor) -> int:
    """Two operations for each weight that meets each output position."""
    return 2 * out.numel() * module.weight[0].numel()  # type: ignore[index]


LAYERS = {
    "torch.nn.modules.normalization.LayerNorm": LayerRow(
        "layernorm", "layernorm", "LayerNorm", ("input",), _refuse_norm, _no_flops
    ),
    "torch.nn.modules.linear.Linear": LayerRow("linear", "gemm", "Linear", ("input",), _dtype_refusal, linear_flops),
    "torch.nn.modules.conv.Conv2d": LayerRow(
        "patch-embedding",
        "patch_embed",
        "PatchEmbedding",
        ("pixel_values",),
        _refuse_convolution,
        convolution_flops,
        _refuse_one_image,
    ),
}

# attention classes that call transformers' attention interface, bidirectional, q, k and v of one head count
ATTENTION = ("transformers.models.vit.modeling_vit.ViTAttention",)

MLPS = {"transformers.models.vit.modeling_vit.ViTMLP": MlpRow("fc1", "activation_fn", "fc2")}

# activation class -> layer of gemm that computes it behind the first product
EPILOGUES = {
    "transformers.activations.GELUActivation": "LinearGELU",
    "transformers.activations.GELUTanh": "LinearGELUTanh",
    "transformers.activations.NewGELUActivation": "LinearGELUTanh",
    "transformers.activations.FastGELUActivation": "LinearGELUTanh",
}

# they compute nothing at inference, so a report does not list them
SILENT = ("torch.nn.modules.dropout.Dropout", "torch.nn.modules.linear.Identity")


def listed_parent(module: nn.Module) -> LayerRow | None:
    """The row of the nearest base class, for a module whose own class has none."""
    for base in type(module).__mro__[1:]:
        if row := LAYERS.get(qualified_name(base)):
            return row
    return None


def epilogue_of(activation: nn.Module) -> str | None:
    """The layer of gemm that ends in this activation, or None."""
    if isinstance(activation, nn.GELU) and type(activation) is nn.GELU:
        return "LinearGELU" if activation.approximate == "none" else "LinearGELUTanh"
    return EPILOGUES.get(qualified_name(type(activation)))


def is_attention(module: nn.Module) -> bool:
    """Whether a module is the core of an attention block: it owns the query projection."""
    names = ("q_proj", "query", "q_lin", "q", "to_q", "in_proj", "qkv")
    has_query = any(isinstance(getattr(module, name, None), nn.Module) for name in names)
    return "Attention" in type(module).__name__ and (has_query or hasattr(module, "in_proj_weight"))
