"""Arguments of a launch: bound to names, and as arrays of the host."""

import enum
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels_neuron.dtypes import as_array
from kernels_neuron.errors import UsageError


def bind(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, with defaults."""
    if not args and not kwargs:
        raise UsageError(f"{name} was called without arguments")
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"{name}: {error}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def call(function: Callable[..., Any], values: dict[str, Any]) -> Any:
    """Call `function` with bound arguments as they came."""
    positional, keyword = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional.extend(values.get(name, ()))
        elif parameter.kind is parameter.VAR_KEYWORD:
            keyword.update(values.get(name, {}))
        elif parameter.kind is parameter.KEYWORD_ONLY:
            keyword[name] = values[name]
        else:
            positional.append(values[name])
    return function(*positional, **keyword)


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor, without importing torch."""
    return (type(value).__module__.split(".")[0] == "torch" and hasattr(value, "data_ptr")) or hasattr(
        value, "__torch_function__"
    )


def torch_device(arguments: dict[str, Any]) -> Any:
    """The one device of the torch tensors among the arguments; None where there are none."""
    first, device = None, None
    for name, value in named_leaves(arguments, ""):
        if not is_torch(value):
            continue
        if value.device.type not in ("cpu", "neuron"):
            raise UsageError(f"{name} is on {value.device}, the simulator takes CPU and neuron tensors")
        if device is not None and value.device != device:
            raise UsageError(
                f"{name} is on {value.device} and {first} on {device}, a kernel takes tensors of one device"
            )
        first, device = name, value.device
    return device


def host_array(value: Any, name: str) -> np.ndarray:
    """The contiguous memory of an argument on the host: its own where it is that."""
    if isinstance(value, np.ndarray):
        array = value
    else:
        array = as_array(value.detach().cpu())
    if array.ndim == 0:
        raise UsageError(
            f"{name} is a 0-d array, a kernel takes tensors with at least one dim",
            hint="pass a Python number, or reshape to (1,)",
        )
    # what the kernel writes goes into a copy and is copied back, so that nothing is half-written when it fails
    return np.ascontiguousarray(array)


def named_leaves(value: Any, name: str) -> Any:
    """(name, leaf) of nested arguments, named by the way to them."""
    if isinstance(value, (tuple, list, dict)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from named_leaves(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


_PLAIN = (int, bool, str, bytes, type(None))


def kind_of(value: Any) -> Any:
    """What an argument is to a compiled kernel, hashable: a tensor by its shape and dtype, all else by type and value.

    Raises TypeError for a value that may change behind its identity.
    """
    if isinstance(value, np.ndarray) or is_torch(value):
        return type(value), tuple(value.shape), value.dtype, str(getattr(value, "device", ""))
    if isinstance(value, (tuple, list)):
        return type(value), *map(kind_of, value)
    if isinstance(value, dict):
        return dict, *[(key, kind_of(item)) for key, item in value.items()]
    if isinstance(value, (float, complex, np.generic)):
        return type(value), np.asarray(value).tobytes()  # 0.0 is equal to -0.0, and NaN to nothing
    # an object of a class derived from these may hold more; torch.dtype and such are torch's own
    if type(value) in _PLAIN or isinstance(value, (enum.Enum, np.dtype)) or type(value).__module__ == "torch":
        return type(value), value
    raise TypeError(f"{value!r} may change")
