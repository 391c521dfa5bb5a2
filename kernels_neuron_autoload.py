"""Run by every `import torch`: registers the emulated neuron device where KERNELS_NEURON_SIM=1 asks for it.

A module of its own, outside the package, so that a process which did not ask imports nothing of it.
"""

import logging
import os


def autoload() -> None:
    """The `torch.backends` entry point. Does nothing unless asked, never raises: that would break `import torch`."""
    if os.environ.get("KERNELS_NEURON_SIM") != "1":
        return
    try:
        from kernels_neuron.device import enable

        enable()
    except Exception:
        logging.getLogger(__name__).exception("the emulated neuron device was not registered")
