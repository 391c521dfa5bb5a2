"""`module.to("neuron")` keeps every Parameter the object it was.

torch can point a parameter at another device's memory only between the devices of a fixed list, to which the slot for
outside backends does not belong; elsewhere it makes a new Parameter in each module. Tied weights would part, and an
optimizer built before would step the old ones. torch's own remedy, `torch.__future__` swap-on-conversion, changes every
conversion of the process; here the same swap is made for moves from and to neuron and for nothing else.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .dispatch import NAME


def install() -> None:
    """Put the swap into nn.Module, below .to, .neuron and .cpu."""
    plain = nn.Module._apply

    @functools.wraps(plain)
    def _apply(self: nn.Module, fn: Callable[..., Any], recurse: bool = True) -> nn.Module:
        return plain(self, fn if isinstance(fn, _KeepsParameters) else _KeepsParameters(fn), recurse)

    module: Any = nn.Module
    module._apply = _apply


class _KeepsParameters:
    """A conversion of tensors that turns a Parameter into its converted self, where the device changes."""

    def __init__(self, convert: Callable[..., Any]) -> None:
        self.convert = convert

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        converted = self.convert(tensor)
        if not isinstance(tensor, nn.Parameter) or not _crosses(tensor, converted):
            return converted
        grad = tensor.grad
        if grad is not None:
            tensor.grad = None
        torch.utils.swap_tensors(tensor, type(tensor)(converted, tensor.requires_grad))
        if grad is not None:
            tensor.grad = self.convert(grad)
        return tensor


def _crosses(before: torch.Tensor, after: torch.Tensor) -> bool:
    kinds = {before.device.type, after.device.type}
    return len(kinds) == 2 and NAME in kinds
