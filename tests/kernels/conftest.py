"""Kernels as they ship: built from nki_src, imported as a user imports them, run in the simulator."""

import functools
from pathlib import Path
from types import ModuleType

import pytest

from kernels_neuron.artifact import import_variant
from kernels_neuron.builder import build
from kernels_neuron.manifest import Manifest, find_manifest
from kernels_neuron.sim import shim


@pytest.fixture(scope="session")
def load(tmp_path_factory):
    """load("layernorm") or load("layernorm", "torch-cpu"): the variant of a kernel as it is built from its sources."""
    shim.install()
    manifest = Manifest.read(find_manifest(Path(__file__).parent))
    out = tmp_path_factory.mktemp("build")

    @functools.cache
    def variants(name: str) -> dict[str, Path]:
        return build(manifest, [name], out)[0].variants

    def load(name: str, variant: str = "torch-neuron") -> ModuleType:
        return import_variant(variants(name)[variant])

    return load
