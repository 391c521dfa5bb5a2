"""NKI kernels for AWS Trainium: simulate, time, build, publish, load and swap them into real models.

The public face. What needs torch is imported at first use, so that `import kernels_neuron` stays light; the import
also makes `import nki` give the simulator where no vendor wheel does.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from .settings import Settings
from .sim.run import simulate, simulate_ranks
from .sim.shim import install as _install

if TYPE_CHECKING:
    from . import device
    from .cost.profile import Profile, profile, profile_ranks
    from .flows.local import kernelize
    from .loader import KernelReport, check_model, get_kernel, report, unkernelize

__all__ = [
    "KernelReport",
    "Profile",
    "Settings",
    "check_model",
    "device",
    "get_kernel",
    "kernelize",
    "profile",
    "profile_ranks",
    "report",
    "simulate",
    "simulate_ranks",
    "unkernelize",
]

_LAZY = {
    "KernelReport": ".loader",
    "Profile": ".cost.profile",
    "check_model": ".loader",
    "get_kernel": ".loader",
    "kernelize": ".flows.local",
    "profile": ".cost.profile",
    "profile_ranks": ".cost.profile",
    "report": ".loader",
    "unkernelize": ".loader",
}

try:
    __version__ = version("kernels-neuron")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_install()


def __getattr__(name: str) -> Any:
    if name == "device":
        return importlib.import_module(".device", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
