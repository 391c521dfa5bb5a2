"""The emulated device: a real `torch.device("neuron")`, whose memory is the host's and whose kernels are simulated.

Nothing happens on import. `enable()` registers the device for this process; so does `import torch` where
KERNELS_NEURON_SIM=1 is set, through the `torch.backends` entry point.
"""

from .registration import TORCH_NEURONX, enable, is_enabled, real_torch_neuronx

__all__ = ["TORCH_NEURONX", "enable", "is_enabled", "real_torch_neuronx"]
