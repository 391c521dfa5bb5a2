"""Matrix product with bias, activation and residual in one kernel, for Trainium."""

from ..common.checks import Unsupported
from ..common.weights import kept_weights
from . import layers
from .ops import gemm

__all__ = ["Unsupported", "gemm", "kept_weights", "layers"]
