"""What is installed, where kernels will run, and what is missing; read from metadata, nothing is imported."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from kernels_neuron.device import real_torch_neuronx

PLACEHOLDER = "0.0.1"  # PyPI's nki, neuronx-cc and torch-neuronx of this version only raise
THIS = "kernels-neuron"


@dataclass(frozen=True)
class Part:
    """One distribution. `needed_by` is "" for what every installation has, else the extra that brings it.

    state   "ok", "missing", "old" (below what this package asks for) or "placeholder"
    """

    name: str
    version: str | None
    asked: str
    needed_by: str
    state: str


@dataclass(frozen=True)
class Diagnosis:
    """path is "device", "vendor-simulator" or "simulator": what a kernel called on this machine runs on, and `why`.

    emulated_device   whether `import torch` in this environment gives an emulated torch.device("neuron")
    """

    python: str
    version: str
    path: str
    why: str
    emulated_device: bool
    emulated_device_why: str
    parts: list[Part]
    notes: list[str]

    @property
    def ok(self) -> bool:
        """Whether everything that every installation needs is there."""
        return all(part.state == "ok" for part in self.parts if not part.needed_by)


def diagnose() -> Diagnosis:
    """Look at this interpreter's distributions, the environment and /dev."""
    path, why = chosen_path()
    python = ".".join(str(number) for number in sys.version_info[:3])
    return Diagnosis(python, metadata.version(THIS), path, why, *emulated_device(), list(_parts()), list(_notes()))


def chosen_path() -> tuple[str, str]:
    """Where a kernel will run, and why: the table of docs/architecture.md, "Where a kernel runs"."""
    nki = real_version("nki")
    if os.environ.get("KERNELS_NEURON_SIM") == "1":
        return "simulator", "KERNELS_NEURON_SIM=1 asks for the embedded simulator"
    if nki is None:
        return "simulator", "the vendor's nki is not installed, so the embedded simulator answers `import nki`"
    torch_neuronx = real_version("torch-neuronx")
    if torch_neuronx is None:
        return "vendor-simulator", f"the vendor's nki {nki} is installed and TorchNeuron is not"
    if not any(Path("/dev").glob("neuron*")):
        return "vendor-simulator", f"the vendor's nki {nki} is installed and there is no /dev/neuron device"
    return "device", f"nki {nki}, TorchNeuron {torch_neuronx} and a device are there"


def emulated_device() -> tuple[bool, str]:
    """Whether `import torch` will register the emulated device, and why."""
    real = real_torch_neuronx()
    if real is not None:
        return False, f"TorchNeuron {real} is installed"
    if os.environ.get("KERNELS_NEURON_SIM") != "1":
        return False, "set KERNELS_NEURON_SIM=1, or call kernels_neuron.device.enable(), to register it"
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return False, "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from registering devices"
    if not any(entry.dist and entry.dist.name == THIS for entry in metadata.entry_points(group="torch.backends")):
        return False, f"this installation of {THIS} has no torch.backends entry point; install it again"
    return True, "KERNELS_NEURON_SIM=1 registers it at `import torch`"


def real_version(distribution: str) -> str | None:
    """The installed version, or None when it is not installed or is PyPI's placeholder."""
    version = _version(distribution)
    return None if version == PLACEHOLDER else version


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _parts() -> Iterator[Part]:
    seen: set[str] = set()
    for extra, requirement in _requirements():
        if requirement.name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        seen.add(requirement.name)
        version = _version(requirement.name)
        fits = version is not None and requirement.specifier.contains(version, prereleases=True)
        state = "ok" if fits else "missing" if version is None else "old"
        yield Part(requirement.name, version, str(requirement.specifier), extra, state)
    for name in ("nki", "torch-neuronx"):
        version = _version(name)
        state = "missing" if version is None else "placeholder" if version == PLACEHOLDER else "ok"
        yield Part(name, version, "", "device", state)


def _requirements() -> Iterator[tuple[str, Requirement]]:
    """(extra, requirement) of this package, the extras that are for its users only, smallest extra first."""
    listed = [Requirement(text) for text in metadata.requires(THIS) or []]
    yield from (("", requirement) for requirement in listed if "extra" not in str(requirement.marker))
    for extra in ("registry", "demo", "models", "signatures", "tune", "gpu"):
        yield from ((extra, r) for r in listed if f'extra == "{extra}"' in str(r.marker))


def _notes() -> Iterator[str]:
    for name in ("nki", "torch-neuronx"):
        if _version(name) == PLACEHOLDER:
            yield f"{name} {PLACEHOLDER} is PyPI's placeholder; the real one comes from the vendor's package index"
    transformers, kernels = _version("transformers"), _version("kernels")
    wanted = next((r for r in _asked_by("transformers") if r.name == "kernels"), None)
    if transformers and kernels and wanted and not wanted.specifier.contains(kernels, prereleases=True):
        yield (
            f"transformers {transformers} wants kernels{wanted.specifier} and finds {kernels}, so its own use_kernels "
            "does nothing; kernelize does not depend on it"
        )


def _asked_by(distribution: str) -> list[Requirement]:
    try:
        return [Requirement(text) for text in metadata.requires(distribution) or []]
    except metadata.PackageNotFoundError:
        return []
