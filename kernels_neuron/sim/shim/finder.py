"""The import hook that answers `import nki` where no vendor wheel does."""

import difflib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from kernels_neuron.errors import UnknownName
from kernels_neuron.sim.versions import later_names, require_name

_MODULES = {
    "nki": "kernels_neuron.sim.shim.nki",
    "nki.language": "kernels_neuron.sim.shim.language",
    "nki.isa": "kernels_neuron.sim.shim.isa",
    "nki.collectives": "kernels_neuron.sim.shim.collectives",
    "nki.typing": "kernels_neuron.sim.shim.typing",
    # where older versions kept things
    "nki.compiler": "kernels_neuron.sim.shim.retired.compiler",
    "nki.dtype": "kernels_neuron.sim.shim.retired.dtype",
    "nki.isa.constants": "kernels_neuron.sim.shim.retired.constants",
    "nki.language.dtypes": "kernels_neuron.sim.shim.retired.dtype",
    "nki.meta": "kernels_neuron.sim.shim.retired.meta",
    "nki.meta.tensor": "kernels_neuron.sim.shim.retired.tensor",
    "nki.tensor": "kernels_neuron.sim.shim.retired.tensor",
}
# what kernels call the modules whose names differ from version to version
_SHORT = {"nki": "nki", "nki.language": "nl", "nki.isa": "nisa", "nki.collectives": "ncc"}
# names of the first versions; served only where no `neuronxcc` is installed
_FALLBACK = {
    "neuronxcc": "kernels_neuron.sim.shim.retired.neuronxcc",
    "neuronxcc.nki": "kernels_neuron.sim.shim.retired.neuronxcc",
    "neuronxcc.nki.typing": "kernels_neuron.sim.shim.typing",
}
PLACEHOLDER_VERSION = "0.0.1"  # PyPI's `nki` distribution, a stub that only raises


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of one table, name -> our module that holds the content."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self.modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.modules:
            return None
        is_package = any(name.startswith(fullname + ".") for name in self.modules)
        return importlib.machinery.ModuleSpec(fullname, self, origin="kernels-neuron simulator", is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        ours = importlib.import_module(self.modules[module.__name__])
        module.__doc__ = ours.__doc__
        short = _SHORT.get(module.__name__, "")
        later = later_names(short)
        for name in ("__all__", *ours.__all__):
            if name not in later:
                setattr(module, name, getattr(ours, name))

        def attribute(name: str) -> Any:
            if name in later:  # asked for at each use, since a run may be set to a version without it
                require_name(f"{short}.{name}")
                return getattr(ours, name)
            # `import nki` alone makes nki.language, and `x: nki.dtype`, work
            child = f"{module.__name__}.{name}"
            if child in self.modules:
                return importlib.import_module(child)
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            raise UnknownName(
                f"{child} is not supported by this simulator, the NKI reference up to 0.7 has no such name",
                hint=_near(name, ours.__all__),
            )

        module.__getattr__ = attribute  # type: ignore[method-assign]
        module.__dir__ = lambda: sorted({*vars(module), *later})  # type: ignore[method-assign]


def _near(name: str, known: Sequence[str]) -> str | None:
    found = difflib.get_close_matches(name, known, 1)
    return f"did you mean {found[0]}?" if found else None


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
    sys.meta_path.insert(0, _Finder(_MODULES))
    sys.meta_path.append(_Finder(_FALLBACK))
    return True
