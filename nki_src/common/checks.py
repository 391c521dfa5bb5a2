"""What an op refuses before it does any work, each refusal by name, limit and value."""

from collections.abc import Sequence
from typing import Optional

import torch


class Unsupported(ValueError):
    """A call this kernel does not serve, though the reference would. `reason`: shape, dtype, mask-kind or device."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def describe(tensor: torch.Tensor) -> str:
    """`float32[128, 8]`: dtype and shape of a tensor."""
    return f"{name_of(tensor.dtype)}{list(tensor.shape)}"


def name_of(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).replace("torch.", "")


def require_tensor(op: str, name: str, value: object, optional: bool = False) -> None:
    """Refuse what is not a tensor; None too, unless the argument is optional."""
    if isinstance(value, torch.Tensor) or (optional and value is None):
        return
    kind = "None" if value is None else type(value).__name__
    raise TypeError(f"{op}: {name} has to be a tensor{' or None' if optional else ''}, got {kind}")


def require_dtype(op: str, name: str, tensor: Optional[torch.Tensor], dtypes: Sequence[str]) -> None:
    """Refuse a tensor whose dtype is none of `dtypes`, given by name."""
    if tensor is not None and name_of(tensor.dtype) not in dtypes:
        raise Unsupported("dtype", f"{op}: {name} has to be {_either(dtypes)}, got {describe(tensor)}")


def require_rank(op: str, name: str, tensor: Optional[torch.Tensor], least: int, most: Optional[int] = None) -> None:
    """Refuse a tensor that has fewer axes than `least` or more than `most`; `most` None: no upper limit."""
    if tensor is None or (least <= tensor.ndim and (most is None or tensor.ndim <= most)):
        return
    if most is None:
        wanted = f"at least {least}"
    elif most == least:
        wanted = f"{least}"
    else:
        wanted = f"{least} to {most}"
    raise ValueError(f"{op}: {name} has to have {wanted} axes, got {describe(tensor)}")


def require_shape(op: str, name: str, tensor: Optional[torch.Tensor], shape: Sequence[int], of: str) -> None:
    """Refuse a tensor of another shape than `shape`; `of` says in letters what that is."""
    if tensor is not None and tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{op}: {name} has to have shape {of} = {list(shape)}, got {describe(tensor)}")


def require_within(op: str, letter: str, value: int, limits: dict[str, tuple[int, int]]) -> None:
    """Refuse a size outside the limits of spec.toml; a letter without limits passes."""
    least, most = limits.get(letter, (value, value))
    if not least <= value <= most:
        raise Unsupported("shape", f"{op}: {letter} has to be {least} to {most}, got {value}")


def require_same_device(op: str, **tensors: Optional[torch.Tensor]) -> None:
    """Refuse tensors on different devices; the first one given sets the device."""
    given = [(name, tensor.device) for name, tensor in tensors.items() if tensor is not None]
    for name, device in given[1:]:
        if device != given[0][1]:
            raise Unsupported("device", f"{op}: {name} is on {device}, {given[0][0]} on {given[0][1]}")


def require_choice(op: str, name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a string argument that is none of `choices`."""
    if value not in choices:
        raise ValueError(f"{op}: {name} has to be {_either(choices)}, got {value!r}")


def _either(names: Sequence[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} or {last}" if rest else str(last)
