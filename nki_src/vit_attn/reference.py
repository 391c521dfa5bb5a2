"""The truth: what vit_attn computes, in PyTorch, in the dtype of its inputs."""

import torch


def vit_attn(q, k, v, scale=None, key_mask=None):
    """softmax(scale * q @ k.T over the keys whose mask is True) @ v; a row without keys gives 0."""
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if key_mask is None:
        return torch.softmax(scores, dim=-1) @ v
    masked = ~key_mask[:, None, None, :]
    weights = torch.softmax(scores.masked_fill(masked, float("-inf")), dim=-1)
    return weights.masked_fill(masked, 0.0) @ v
