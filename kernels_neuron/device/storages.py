"""Storages on the emulated device: torch makes them in C++ through an allocator, which Python cannot register."""

from typing import Any

import torch

from .dispatch import NAME, check_device
from .memory import new_storage


def install() -> None:
    """Let torch.UntypedStorage(..., device="neuron") and clone() make neuron storages: torch.load and deepcopy do."""
    storage: Any = torch.UntypedStorage
    plain_new, plain_clone = storage.__new__, storage.clone

    def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or torch.device(device).type != NAME:
            return plain_new(cls, *args, **kwargs)
        check_device(torch.device(kwargs.pop("device")))
        if not args or isinstance(args[0], int):
            return new_storage(args[0] if args else 0)
        values = torch.UntypedStorage(*args, **kwargs)
        return new_storage(values.nbytes()).copy_(values, False)

    def clone(self: Any) -> Any:
        if self.device.type != NAME:
            return plain_clone(self)
        return new_storage(self.nbytes()).copy_(self, False)

    storage.__new__ = __new__
    storage.clone = clone
