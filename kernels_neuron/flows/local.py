"""The kernels that come with the installation: packaged in a wheel, built on demand in a checkout."""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from kernels_neuron.manifest import PACKAGED, Manifest, installed_manifest

if TYPE_CHECKING:
    import torch

    from kernels_neuron.loader.kernel import Choice

Model = TypeVar("Model", bound="torch.nn.Module")


def built_variants(
    manifest: Manifest, names: Iterable[str] | None = None, variant: str = "torch-neuron"
) -> dict[str, Path]:
    """Kernel folder name -> its built variant; whatever is not packaged is built into the manifest's build/ first.

    A kernel that does not publish `variant` is left out.
    """
    kernels = [kernel for kernel in manifest.select(names) if variant in kernel.variants]
    if manifest.path == PACKAGED:
        return {kernel.name: manifest.build_root / kernel.repo / "build" / variant for kernel in kernels}
    from kernels_neuron.builder import build

    return {built.name: built.variants[variant] for built in build(manifest, [kernel.name for kernel in kernels])}


@functools.cache
def installed_kernel(name: str) -> ModuleType | None:
    """The loaded torch-neuron variant of one of the installation's kernels, or None where it has none of that name."""
    from kernels_neuron.loader.get import load_variant

    manifest = Manifest.read(installed_manifest())
    if name not in manifest.kernels:
        return None
    return load_variant(built_variants(manifest, [name])[name])


def kernelize(
    model: Model,
    *,
    device: "str | torch.device" = "neuron",
    mode: str | None = None,
    kernels: "str | Mapping[str, Choice] | None" = None,
    strict: bool = False,
    check: Any = None,
) -> Model:
    """Replace, in this model only and in place, every layer a kernel serves; returns the model.

    device   "neuron" or "neuron:<index>"
    mode     None decides at each call from module.training; "inference" never serves a training call;
             "training" swaps only what has a backward
    kernels  None: the kernels that come with the installation, no network. "org": the Hub or registry repos of an
             organization. A dict from kernel name to "org/repo@revision", a folder, a loaded module, or None to leave
             that kernel out
    strict   raise SwapError where a module or, later, a call would keep the original
    check    inputs (a tensor, a tuple, a dict) on which original and swapped are compared, see report()

    A module keeps its class, its parameters and their names; unkernelize undoes it bit for bit.
    """
    from kernels_neuron.loader.swap import kernelize as swap

    return swap(
        model,
        device=device,
        mode=mode,
        kernels=kernels,
        strict=strict,
        check=check,
        sources=installed_kernel if kernels is None else None,
    )
