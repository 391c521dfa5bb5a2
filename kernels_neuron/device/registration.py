"""Registering the emulated device, once and only where there is no real one."""

import sys
import warnings
from importlib import metadata
from typing import Any

from kernels_neuron.errors import UsageError

TORCH_NEURONX = "torch-neuronx"
_PLACEHOLDER = "0.0.1"  # PyPI's torch-neuronx of this version only raises

_kept: list[Any] = []  # the dispatcher forgets kernels whose library is gone


def is_enabled() -> bool:
    """Whether `neuron` is the emulated device in this process."""
    return bool(_kept)


def real_torch_neuronx() -> str | None:
    """The version of an installed TorchNeuron, None where there is none; PyPI's placeholder does not count."""
    try:
        version = metadata.version(TORCH_NEURONX)
    except metadata.PackageNotFoundError:
        return None
    return None if version == _PLACEHOLDER else version


def enable() -> bool:
    """Make torch.device("neuron") the emulated device for the rest of this process; answers whether it is.

    False, and nothing is changed, where torch.neuron exists or TorchNeuron is installed: a real device is not covered.
    Registration cannot be undone. It makes "neuron" the current torch.accelerator, and the backend for which `kernels`
    chooses variants. Also puts in place the simulator's `nki` and, as `torch_neuronx`, a stand-in for TorchNeuron.
    Raises UsageError where another package has taken torch's slot for outside devices.

    A torch that cannot register a device from Python gets the namespace torch.neuron alone, with a warning, and the
    answer is False: `kernels` then chooses torch-neuron variants, which run in the simulator on CPU tensors.
    """
    if is_enabled():
        return True
    import torch

    if hasattr(torch, "neuron") or real_torch_neuronx() is not None:
        return False
    _register(torch)
    return is_enabled()


def _register(torch: Any) -> None:
    from kernels_neuron.sim.shim import install as install_nki

    setup = getattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        _register_namespace(torch)
        return
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", "neuron"):
        raise UsageError(
            f"torch has one slot for devices of other packages, and {taken} has it",
            hint=f"enable the emulated device in a process that does not load {taken}",
        )
    from . import autocast, compiler, namespace, neuronx, operators, parameters, storages

    setup("neuron", backend_module=namespace.make_module())
    # `import torch.neuron` works, as `import torch.cuda` does
    sys.modules.setdefault("torch.neuron", torch.neuron)
    aten, everything = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    operators.register(aten, everything)
    autocast.register(aten, everything)
    _kept.extend((aten, everything))
    storages.install()
    parameters.install()
    _answer_for_the_accelerator(torch, namespace)
    install_nki()
    neuronx.install()
    compiler.install()


def _register_namespace(torch: Any) -> None:
    from kernels_neuron.sim.shim import install as install_nki

    from . import namespace, neuronx

    torch.neuron = sys.modules["torch.neuron"] = namespace.make_module()
    install_nki()
    neuronx.install()
    warnings.warn(
        f"torch {torch.__version__} cannot register a device from Python: torch.neuron is there and"
        " torch.device('neuron') is not, so kernels run on CPU tensors; torch 2.13 has it",
        RuntimeWarning,
        stacklevel=4,
    )


def _answer_for_the_accelerator(torch: Any, namespace: Any) -> None:
    # torch asks a C++ allocator and device guard for these, which a device made in Python has not
    torch.accelerator.synchronize = namespace.synchronize
    torch.accelerator.empty_cache = namespace.empty_cache
