"""Bidirectional multi-head attention for vision models and encoders, for Trainium."""

from ..common.checks import Unsupported
from . import layers
from .ops import attention, attention_forward, vit_attn

__all__ = ["Unsupported", "attention", "attention_forward", "layers", "vit_attn"]
