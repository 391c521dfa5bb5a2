"""The import hook that answers `import nki` where no vendor wheel does."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_MODULES = {
    "nki": "kernels_neuron.sim.shim.nki",
    "nki.language": "kernels_neuron.sim.shim.language",
    "nki.isa": "kernels_neuron.sim.shim.isa",
    "nki.typing": "kernels_neuron.sim.shim.typing",
}
PLACEHOLDER_VERSION = "0.0.1"  # PyPI's `nki` distribution, a stub that only raises


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `nki` and its submodules in _MODULES."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _MODULES:
            return None
        return importlib.machinery.ModuleSpec(
            fullname, self, origin="kernels-neuron simulator", is_package=fullname == "nki"
        )

    def exec_module(self, module: ModuleType) -> None:
        ours = importlib.import_module(_MODULES[module.__name__])
        module.__doc__ = ours.__doc__
        for name in ours.__all__:
            setattr(module, name, getattr(ours, name))


def vendor_version() -> str | None:
    """The version of an installed vendor `nki` wheel, None where there is none; PyPI's placeholder does not count."""
    try:
        version = importlib.metadata.version("nki")
    except importlib.metadata.PackageNotFoundError:
        return None
    return None if version == PLACEHOLDER_VERSION else version


def installed() -> bool:
    """Whether `import nki` gives the simulator in this process."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def install() -> bool:
    """Put the simulator's `nki` first on sys.meta_path and answer whether it is there.

    Steps aside where `nki` is imported already, and where a vendor wheel is installed unless KERNELS_NEURON_SIM=1.
    """
    if installed():
        return True
    if "nki" in sys.modules or (vendor_version() is not None and os.environ.get("KERNELS_NEURON_SIM") != "1"):
        return False
    sys.meta_path.insert(0, _Finder())
    return True
