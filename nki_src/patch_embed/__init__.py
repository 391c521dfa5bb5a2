"""Patch embedding of images, class token and positions included, for Trainium."""

from ..common.checks import Unsupported
from . import layers
from .ops import patch_embed

__all__ = ["Unsupported", "layers", "patch_embed"]
