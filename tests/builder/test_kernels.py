"""The kernels of this repository build, pass every check and load by upstream's own rules."""

import ast
from pathlib import Path

import pytest
from huggingface_hub.repocard import RepoCard
from kernels import _rust as upstream

from kernels_neuron.builder import build, check
from kernels_neuron.manifest import Manifest
from kernels_neuron.spec import Spec

ROOT = Path(__file__).parents[2]
KERNELS = ("gemm", "layernorm", "patch_embed", "vit_attn")

# kernels that are held to less than the project's tolerances, with the dtypes; each has its reason in spec.toml
LOOSENED: dict[str, set[str]] = {}


@pytest.fixture(scope="module")
def manifest():
    return Manifest.read(ROOT / "kernel.toml")


@pytest.fixture(scope="module")
def built(manifest, tmp_path_factory):
    out = tmp_path_factory.mktemp("build")
    return {one.name: one for one in build(manifest, out=out)}


def test_the_manifest_names_the_kernels(manifest):
    assert sorted(manifest.kernels) == list(KERNELS)


def test_every_kernel_passes_every_check(manifest, built):
    out = next(iter(built.values())).root.parent
    assert check(manifest, out=out) == []


@pytest.mark.parametrize("kernel", KERNELS)
def test_upstream_accepts_a_kernel(built, kernel):
    for variant in built[kernel].variants.values():
        theirs = upstream.Metadata.read_from_file(variant / "metadata.json")
        theirs.digest.validate(upstream.Digest.hash_variant(upstream.DigestAlgorithm.SHA256, variant))


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_cpu_variant_has_no_device_code(built, kernel):
    for file in built[kernel].variants["torch-cpu"].rglob("*.py"):
        names = [alias.name for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.Import)
                 for alias in node.names]  # fmt: skip
        assert not [name for name in names if name.split(".")[0] == "nki"], file


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_card_has_front_matter_functions_and_dtypes(built, manifest, kernel):
    card = RepoCard.load(built[kernel].root / "README.md")
    assert card.data.to_dict()["license"] == "apache-2.0"
    assert f"- `{kernel}(" in card.text
    for dtype in Spec.read(manifest.kernels[kernel].folder).dtypes:
        assert f"| {dtype} | " in card.text


def test_only_the_listed_kernels_are_loosened(manifest):
    specs = {name: Spec.read(kernel.folder) for name, kernel in manifest.kernels.items()}
    assert {name: set(spec.loose) for name, spec in specs.items() if spec.loose} == LOOSENED


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_has_at_least_twelve_workloads_to_verify(manifest, kernel):
    spec = Spec.read(manifest.kernels[kernel].folder)
    assert len([workload for workload in spec.workloads if workload.use != "bench-only"]) >= 12
