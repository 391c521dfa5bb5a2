"""A stand-in for `torch_neuronx`, TorchNeuron's package: the names that public kernel code imports from it."""

import functools
import os
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

from .namespace import synchronize

TORCH_NEURONX = "torch_neuronx"
VERSION = "0+emulated"


def nki_op(
    name: str, func: Callable[..., Any] | None = None, *, mutates_args: str | Iterable[str] = ()
) -> Callable[..., Any]:
    """Register a function as the operator `ns::name`; its type hints give the schema. A torch.library.custom_op."""
    return torch.library.custom_op(name, func, mutates_args=mutates_args)


class _Wrapped:
    """A kernel as wrap_nki gives it: compiled once for arguments of one kind, called, or called after [grid]."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel.as_operator()
        functools.update_wrapper(self, kernel)

    def __getitem__(self, grid: Any) -> "_Wrapped":
        return _Wrapped(self.kernel[grid])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel(*args, **kwargs)


def wrap_nki(kernel: Any) -> _Wrapped:
    """A callable that runs an `@nki.jit` kernel on tensors; `wrap_nki(kernel)[2]` launches it on two physical cores."""
    return _Wrapped(kernel)


def get_logical_neuron_cores() -> int:
    """Physical cores of a logical core: NEURON_LOGICAL_NC_CONFIG, else 1."""
    return int(os.environ.get("NEURON_LOGICAL_NC_CONFIG", "1"))


def install() -> None:
    """Make `import torch_neuronx` give the stand-in, unless something of that name is imported already."""
    if TORCH_NEURONX in sys.modules:
        return
    content = {"nki_op": nki_op, "wrap_nki": wrap_nki, "synchronize": synchronize, "__version__": VERSION}
    # kernels ask whether a tensor of the device lies in the host's memory
    content["is_emulated"] = True
    package = _module(TORCH_NEURONX, **content, __path__=[])
    utils = _module(f"{TORCH_NEURONX}.utils", get_logical_neuron_cores=get_logical_neuron_cores)
    package.utils = utils  # type: ignore[attr-defined]
    sys.modules.update({package.__name__: package, utils.__name__: utils})


def _module(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name, "Stand-in for TorchNeuron on the emulated device of kernels-neuron.")
    # libraries ask find_spec whether the package is there
    module.__spec__ = ModuleSpec(name, None, origin="kernels-neuron emulated device", is_package="__path__" in content)
    vars(module).update(content)
    return module
