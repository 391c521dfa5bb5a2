"""The instruction table: one function per `nki.isa` instruction, with its rules, its price and its effect."""

from . import (
    dma,
    dma_transpose,
    exponential,
    gather,
    gpsimd,
    microscaling,
    multicore,
    random,
    reduce,
    registers,
    scalar,
    search,
    select,
    shuffle,
    tensor,
    vector,
)
from .table import TABLE

__all__ = [
    "TABLE",
    "dma",
    "dma_transpose",
    "exponential",
    "gather",
    "gpsimd",
    "microscaling",
    "multicore",
    "random",
    "reduce",
    "registers",
    "scalar",
    "search",
    "select",
    "shuffle",
    "tensor",
    "vector",
]
