"""Patch embedding of images, class token and positions included, for Trainium."""

from ..common.checks import Unsupported
from ..common.weights import kept_weights
from . import layers
from .ops import patch_embed

__all__ = ["Unsupported", "kept_weights", "layers", "patch_embed"]
