"""Stand-ins for what the vendor library's tests import and this harness has no use for, or serves itself.

Their suite talks to device hosts, object stores and dashboards; none of that happens in a simulation, so those packages
become empty shells. `nki_cpu_simulator` becomes our simulator under their adapter's names.
"""

import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import neuron_dtypes

# packages that only the device path, the uploads and the plots use
SHELLS = (
    "aws_embedded_metrics", "boto3", "botocore", "fabric2", "pandas", "paramiko", "plotext", "pytest_html",
    # imported by the public tree, but not in it
    "test.utils.perf_analysis_private", "test.utils.scripts",
)  # fmt: skip

# their adapter's module -> ours
SIMULATOR = {
    "nki_cpu_simulator.nki": "nki",
    "nki_cpu_simulator.nki.builtin": "builtins",
    "nki_cpu_simulator.nki.compiler": "nki.compiler",
    "nki_cpu_simulator.nki.isa": "nki.isa",
    "nki_cpu_simulator.nki.isa.constants": "nki.isa.constants",
    "nki_cpu_simulator.nki.language": "nki.language",
    "nki_cpu_simulator.nki.language.dtypes": "nki.dtype",
    "nki_cpu_simulator.nki.tensor": "nki.tensor",
    "nki_cpu_simulator.nki.typing": "nki.typing",
}
CHIPS = {"gen2": "trn1", "gen3": "trn2", "gen4": "trn3"}


class _Shells(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds any module at or below a name of SHELLS; every attribute of it is an exception class that does nothing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if any(fullname == shell or fullname.startswith(shell + ".") for shell in SHELLS):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        def attribute(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            # an exception class serves as a base class, an annotation, and in an except clause
            return type(name, (Exception,), {"__module__": module.__name__})

        module.__getattr__ = attribute  # type: ignore[method-assign]


def simulated(run: Callable[..., Any]) -> Callable[..., Any]:
    """`nki.cpu_simulate` of their adapter: cpu_simulate(kernel)[lnc](**inputs), the chip named by NKI_NC_VERSION.

    run(kernel, lnc, chip, inputs) does the work.
    """

    class Launch:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, lnc: int) -> Callable[..., Any]:
            return lambda **inputs: run(self.kernel, lnc, CHIPS[os.environ["NKI_NC_VERSION"]], inputs)

    return Launch


def frontend(run: Callable[..., Any]) -> ModuleType:
    """`nki.compiler.frontend`, which their trace-only cases compile with: compiling is running here."""

    class NKIFrontend:
        def compile(self, kernel: Any, inputs: dict[str, Any], target: str, lnc: int, **options: Any) -> None:
            run(kernel, lnc, target, inputs)

    module = ModuleType("nki.compiler.frontend")
    module.NKIFrontend = module.ParserFrontend = NKIFrontend  # type: ignore[attr-defined]
    return module


def install(clone: Path, run: Callable[..., Any]) -> None:
    """Make the clone's tests importable in this process, with `run` behind `nki.cpu_simulate`."""
    sys.meta_path.append(_Shells())
    sys.modules["neuron_dtypes"] = neuron_dtypes
    if importlib.util.find_spec("attr") is None:
        sys.modules["attr"] = ModuleType("attr")
        sys.modules["attr"].dataclass = dataclasses.dataclass  # type: ignore[attr-defined]
    # the standard library has a `test` package too
    sys.modules.pop("test", None)
    sys.path[:0] = [str(clone), str(clone / "src")]
    package = ModuleType("nki_cpu_simulator")
    package.__path__ = []
    sys.modules["nki_cpu_simulator"] = package
    for theirs, ours in SIMULATOR.items():
        module = sys.modules[theirs] = importlib.import_module(ours)
        parent, _, child = theirs.rpartition(".")
        if not hasattr(sys.modules[parent], child):
            setattr(sys.modules[parent], child, module)
    sys.modules["nki"].cpu_simulate = simulated(run)  # type: ignore[attr-defined]
    sys.modules["nki.compiler.frontend"] = frontend(run)
    for name in ("neuronxcc.starfish", "neuronxcc.starfish.support", "neuronxcc.starfish.support.dtype"):
        module = sys.modules[name] = ModuleType(name)
        module.__path__ = []
    sys.modules["neuronxcc.starfish.support.dtype"].static_cast = neuron_dtypes.static_cast  # type: ignore[attr-defined]
