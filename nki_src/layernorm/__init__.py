"""LayerNorm over the last axis, for Trainium."""

from ..common.checks import Unsupported
from . import layers
from .ops import layernorm

__all__ = ["Unsupported", "layernorm", "layers"]
