"""Attention of transformers' models: one function behind the attention interface, one key mask or a fallback.

Both interfaces get the name "kernels-neuron.<former>": the mask function is the former one's, so a model is handed
the masks it was handed before, and an attention module without a record computes exactly what it computed before.
"""

import functools
import sys
import weakref
from typing import Any

import torch
from torch import nn

from .guard import RECORD, Swap
from .table import Refusal

PREFIX = "kernels-neuron."
FORMERS = ("sdpa", "eager")

# a model's config may be shared with another model, so undoing one has to ask who else is kernelized
_kernelized: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()

# arguments that change the result and that no kernel here takes
_NOT_SERVED = ("position_bias", "sliding_window", "softcap", "s_aux", "cache")


def implementation(module: nn.Module) -> str:
    """The attention implementation a module had before any swap: the model's own name for it."""
    name = getattr(module.config, "_attn_implementation", None) or "eager"
    return name.removeprefix(PREFIX)


def refuse_attention(module: nn.Module) -> Refusal | None:
    """Why the interface of this module cannot be taken over, or None."""
    former = implementation(module)
    if former not in FORMERS:
        return Refusal("mode", f"attention implementation {former!r}, the swap knows {' and '.join(FORMERS)}")
    return None


def attach_attention(root: nn.Module, module: nn.Module, swap: Swap) -> None:
    """Route the attention of `module` to `swap`."""
    former = implementation(module)
    _register(former)
    _kernelized.add(root)
    module.__dict__[RECORD] = swap
    module.config._attn_implementation = PREFIX + former  # type: ignore[union-attr]


def restore_implementation(modules: list[nn.Module]) -> None:
    """Give the configs of these modules their former implementation back, unless another swap still needs it."""
    for module in modules:
        name = getattr(module.config, "_attn_implementation", None) or ""
        if name.startswith(PREFIX) and not _is_used(module.config):
            module.config._attn_implementation = name.removeprefix(PREFIX)  # type: ignore[union-attr]


def _is_used(config: object) -> bool:
    for root in list(_kernelized):
        for module in root.modules():
            record = module.__dict__.get(RECORD)
            if isinstance(record, Swap) and record.kind == "attention" and module.config is config:
                return True
    return False


def _register(former: str) -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    name = PREFIX + former
    AttentionInterface.register(name, functools.partial(_forward, former))
    AttentionMaskInterface.register(name, AttentionMaskInterface()[former])


def _forward(
    former: str,
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    swap = module.__dict__.get(RECORD)
    if not isinstance(swap, Swap):
        return former_attention(module, query, key, value, attention_mask, **kwargs)
    return swap.call(module, query, key, value, attention_mask, **kwargs)


def former_attention(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What the module's attention interface computed before the swap."""
    former = implementation(module)
    if former == "eager":
        return sys.modules[type(module).__module__].eager_attention_forward(module, *args, **kwargs)
    from transformers import AttentionInterface

    return AttentionInterface()[former](module, *args, **kwargs)


def kernel_attention(forward: Any, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, None]:
    """The artifact's attention on what the interface hands over; out is (B, S, H, D)."""
    query, key, value, mask = args
    keys = key_mask(mask, query, key)
    assert not isinstance(keys, Refusal)
    if keys is not None:
        # the form in which sdpa masks arrive, which is what attention_forward takes
        keys = keys[:, None, None, :].expand(-1, 1, query.shape[2], -1)
    out, _ = forward(module, query, key, value, keys, scaling=kwargs.get("scaling"), dropout=0.0)
    return out, None


def attention_flops(module: nn.Module, args: tuple, out: tuple) -> int:
    """4 B H S T D: two products over all pairs of a query and a key."""
    query, key = args[0], args[1]
    return 4 * query.numel() * key.shape[2]


def refuse_call(module: nn.Module, *args: Any, **kwargs: Any) -> Refusal | None:
    """Why a call of the interface asks for what the kernel does not compute, or None."""
    query, key, _, mask = args
    config = getattr(module, "config", None)
    if kwargs.get("output_attentions") or getattr(config, "output_attentions", False):
        return Refusal("mode", "output_attentions=True asks for the attention weights, which the kernel never forms")
    if kwargs.get("dropout"):
        return Refusal("mode", f"dropout={kwargs['dropout']}")
    for name in _NOT_SERVED:
        if kwargs.get(name) is not None:
            return Refusal("mask-kind", f"{name} is given")
    causal = kwargs.get("is_causal")
    if (getattr(module, "is_causal", False) if causal is None else causal) and query.shape[2] > 1:
        return Refusal("mask-kind", "attention is causal")
    if key.shape[1] != query.shape[1]:
        return Refusal("shape", f"{query.shape[1]} query heads, {key.shape[1]} key heads")
    keys = key_mask(mask, query, key)
    return keys if isinstance(keys, Refusal) else None


def key_mask(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | Refusal | None:
    """mask -> (B, T) bool, True where a key counts, when it says nothing but that; None for no mask."""
    if mask is None:
        return None
    batch, queries, keys = query.shape[0], query.shape[2], key.shape[2]
    if not isinstance(mask, torch.Tensor) or mask.dim() not in (2, 4):
        return Refusal("mask-kind", f"mask is {type(mask).__name__}")
    if mask.dim() == 2:
        return _flat_mask(mask, batch, keys)
    shape = tuple(mask.shape)
    if shape[0] not in (1, batch) or shape[2] not in (1, queries) or shape[3] != keys:
        return Refusal("mask-kind", f"mask is {list(shape)} for {queries} queries and {keys} keys")
    row = mask[:, :1, :1, :]
    # a mask that transformers expands over heads and queries has stride 0 there, and needs no comparison
    is_expanded = all(mask.shape[axis] == 1 or mask.stride(axis) == 0 for axis in (1, 2))
    if not is_expanded and not bool((mask == row).all()):
        return Refusal("mask-kind", f"mask {list(shape)} differs between queries or heads")
    row = row[:, 0, 0, :]
    if mask.dtype.is_floating_point:
        kept = row == 0
        # additive masks hold 0 and the least number; anything else is a bias
        if not bool((kept | (row <= torch.finfo(row.dtype).min)).all()):
            return Refusal("mask-kind", f"mask {list(shape)} is a bias")
        row = kept
    return _flat_mask(row, batch, keys)


def _flat_mask(mask: torch.Tensor, batch: int, keys: int) -> torch.Tensor | Refusal:
    if mask.shape[0] not in (1, batch) or mask.shape[1] != keys:
        return Refusal("mask-kind", f"mask is {list(mask.shape)} for batch {batch} and {keys} keys")
    flat = mask.bool().expand(batch, keys)
    if not bool(flat.any(-1).all()):
        # implementations differ on a row without keys, so such a batch keeps the model's own
        return Refusal("mask-kind", "a row of the batch has no key")
    return flat
