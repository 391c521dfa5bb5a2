"""The operator around the kernel: what it refuses, layouts that need no copy, attention masks, the fake function."""

from typing import Optional

import torch

from .._limits import DTYPES, LIMITS
from .._ops import add_op_namespace_prefix, define_op, get_backend, launch
from ..common.checks import (
    Unsupported,
    describe,
    require_dtype,
    require_rank,
    require_same_device,
    require_shape,
    require_tensor,
    require_within,
)
from . import reference


def vit_attn(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: Optional[float] = None,
    key_mask: Optional[torch.Tensor] = None,
    share_tiles: bool = False,
) -> torch.Tensor:
    """out = softmax(scale * q @ k.T over the keys whose mask is True) @ v, head by head.

    q         [B, H, S, D]  float32, bfloat16 or float16; dense as it stands or as [B, S, H, D], else copied
    k, v      [B, H, T, D]  dtype of q; likewise
    scale     float         None: 1 / sqrt(D)
    key_mask  [B, T]        bool, True = attend, or None
    share_tiles             compute several short sequences in one tile, several times faster: for finite inputs only,
                            a NaN or infinity in k or v then reaches other heads and batch entries
    returns   [B, H, S, D]  dtype of q, in the memory order of q

    A row without keys gives 0.
    """
    _check(q, k, v, key_mask)
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    if q.numel() == 0:
        return torch.empty_like(q)
    if k.shape[2] == 0:
        return torch.zeros_like(q)
    if get_backend() == "cpu":
        return reference.vit_attn(q, k, v, scale, key_mask)
    (q, q_layout), (k, k_layout), (v, v_layout) = (_dense(tensor) for tensor in (q, k, v))
    mask = None if key_mask is None else key_mask.contiguous().view(torch.uint8)
    out = _op(q, k, v, mask, scale, q_layout, k_layout, v_layout, bool(share_tiles))
    return out.transpose(1, 2) if q_layout == "bshd" else out


attention = vit_attn


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Optional[torch.Tensor],
    scaling: Optional[float] = None,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers' attention interface calls it; out is [B, S, H, D].

    attention_mask  None, or [B or 1, H or 1, S or 1, T]: bool, True = attend, or additive, 0 or the least number of its
                    dtype or -inf; the same for all heads and queries. Anything else is refused.
    """
    if dropout:
        raise Unsupported("mask-kind", f"attention_forward: dropout has to be 0, got {dropout}")
    if kwargs.get("is_causal", getattr(module, "is_causal", False)) and query.shape[2] > 1:
        raise Unsupported("mask-kind", "attention_forward: attention has to be bidirectional, got is_causal = True")
    for name in ("sliding_window", "softcap", "position_bias", "s_aux"):
        if kwargs.get(name) is not None:
            raise Unsupported(
                "mask-kind", f"attention_forward: {name} has to be None, got {type(kwargs[name]).__name__}"
            )
    mask = None if attention_mask is None else _key_mask(attention_mask, query.shape[0], key.shape[2])
    return vit_attn(query, key, value, scaling, mask).transpose(1, 2), None


attention_forward.has_backward = get_backend() == "cpu"


def _check(q, k, v, key_mask):
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        require_tensor("vit_attn", name, tensor)
        require_rank("vit_attn", name, tensor, least=4, most=4)
    require_tensor("vit_attn", "key_mask", key_mask, optional=True)
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    require_shape("vit_attn", "k", k, (batch, heads, keys, width), "[B, H, T, D]")
    require_shape("vit_attn", "v", v, (batch, heads, keys, width), "[B, H, T, D]")
    require_dtype("vit_attn", "q", q, DTYPES)
    for name, tensor in (("k", k), ("v", v)):
        if tensor.dtype != q.dtype:
            raise Unsupported(
                "dtype", f"vit_attn: {name} has to have the dtype of q = {describe(q)}, got {describe(tensor)}"
            )
    if key_mask is not None:
        require_shape("vit_attn", "key_mask", key_mask, (batch, keys), "[B, T]")
        require_dtype("vit_attn", "key_mask", key_mask, ("bool",))
    require_same_device("vit_attn", q=q, k=k, v=v, key_mask=key_mask)
    if q.numel() and keys:
        for letter, size in (("S", queries), ("T", keys), ("D", width)):
            require_within("vit_attn", letter, size, LIMITS)


def _dense(tensor):
    """(dense tensor, layout): as it lies where its memory is (B, H, S, D) or (B, S, H, D), else a copy."""
    if tensor.is_contiguous():
        return tensor, "bhsd"
    swapped = tensor.transpose(1, 2)
    if swapped.is_contiguous():
        return swapped, "bshd"
    return tensor.contiguous(), "bhsd"


def _key_mask(mask, batch, keys):
    """(B, T) bool of an attention mask that says the same for all heads and queries."""
    if mask.ndim != 4 or mask.shape[0] not in (1, batch) or mask.shape[3] != keys:
        raise Unsupported(
            "mask-kind", f"attention_forward: attention_mask has to be [B, 1, S, T], got {describe(mask)}"
        )
    row = mask[:, :1, :1]
    # a mask that was expanded over heads and queries has stride 0 there and needs no comparison
    is_expanded = all(mask.shape[axis] == 1 or mask.stride(axis) == 0 for axis in (1, 2))
    if not is_expanded and not bool((mask == row).all()):
        raise Unsupported(
            "mask-kind", f"attention_forward: attention_mask {describe(mask)} differs between heads or queries"
        )
    row = row[:, 0, 0]
    if row.dtype != torch.bool:
        kept = row == 0
        if not row.is_floating_point() or not bool((kept | (row <= torch.finfo(row.dtype).min)).all()):
            raise Unsupported(
                "mask-kind", f"attention_forward: attention_mask {describe(mask)} has to be bool or 0 and -inf"
            )
        row = kept
    return row.expand(batch, keys)


def _impl(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    key_mask: Optional[torch.Tensor],
    scale: float,
    q_layout: str,
    k_layout: str,
    v_layout: str,
    share_tiles: bool,
) -> torch.Tensor:
    from .kernel import vit_attn as kernel

    return launch(kernel, q, k, v, key_mask, scale, q_layout, k_layout, v_layout, share_tiles)


def _fake(q, k, v, key_mask, scale, q_layout, k_layout, v_layout, share_tiles):
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


if get_backend() == "neuron":
    _op = define_op(add_op_namespace_prefix("vit_attn"), _impl, _fake)
