"""`python -m kernels_neuron.cli` is the command `kernels-neuron`, for where no script was installed."""

from .main import main

main()
