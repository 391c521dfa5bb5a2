"""nki.tensor, later nki.meta.tensor: the tensor class."""

from kernels_neuron.sim.tensor import NkiTensor

__all__ = ["NkiTensor"]
