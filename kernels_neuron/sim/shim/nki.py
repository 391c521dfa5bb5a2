"""Neuron Kernel Interface, served by the kernels-neuron simulator."""

from collections.abc import Callable
from typing import Any

from kernels_neuron.sim.run import Kernel, jit

from . import gone

__version__ = "0.7.0"
globals().update(gone.names("nki", gone.NKI))
__all__ = [*gone.NKI, "__version__", "jit", "simulate"]


def simulate(kernel: Callable[..., Any]) -> Kernel:
    """`nki.simulate(kernel)(*args)`: run a kernel, or `kernel[2]`, in the simulator; a plain function is wrapped."""
    wrapped = jit(kernel)
    assert isinstance(wrapped, Kernel)
    return wrapped
