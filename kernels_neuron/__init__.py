"""NKI kernels for AWS Trainium: simulate, time, build, publish, load and swap them into real models."""

from importlib.metadata import PackageNotFoundError, version

from .settings import Settings
from .sim.run import simulate
from .sim.shim import install as _install

__all__ = ["Settings", "simulate"]

try:
    __version__ = version("kernels-neuron")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_install()
