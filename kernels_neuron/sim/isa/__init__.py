"""The instruction table: one function per `nki.isa` instruction, with its rules, its price and its effect."""

from . import dma, gpsimd, scalar, tensor, vector
from .table import TABLE

__all__ = ["TABLE", "dma", "gpsimd", "scalar", "tensor", "vector"]
