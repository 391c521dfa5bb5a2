"""What the Hub and upstream `kernels` demand of build/: every problem of every repo, at once."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernels_neuron.api import API
from kernels_neuron.artifact import METADATA, Metadata, build_id, digest_problems
from kernels_neuron.errors import ArtifactError, FileProblems
from kernels_neuron.manifest import Kernel, Manifest
from kernels_neuron.tables import unknown

from .generate import ops_text
from .plan import BACKENDS, Plan
from .rules import parse, source_problems
from .write import plan_all

TOP_LEVEL = ("README.md", "benchmarks", "build")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: in which kernel, where in its repo or sources, and what."""

    kernel: str
    where: str
    text: str


def check(manifest: Manifest, names: Iterable[str] | None = None, out: Path | None = None) -> list[Problem]:
    """All that keeps the built repos of these kernels from being published; empty when nothing does.

    names  folders or repo names; None or none: every kernel of the manifest
    out    where they were built, build/ beside kernel.toml for None
    """
    out = out or manifest.build_root
    return [problem for kernel in manifest.select(names) for problem in _check_kernel(manifest, kernel, out)]


def _check_kernel(manifest: Manifest, kernel: Kernel, out: Path) -> list[Problem]:
    found: list[Problem] = []
    planned: Plan | None = None
    try:
        planned = plan_all(manifest, [kernel.name])[0]
    except FileProblems as error:
        found += [_problem(kernel, problem) for problem in error.problems]
    root = out / kernel.repo
    if not root.is_dir():
        return [*found, Problem(kernel.name, kernel.repo, f"is not built; run `kernels-neuron build {kernel.name}`")]
    checks = [_tree(kernel, root), _card(kernel, root), _benchmarks(root)]
    for variant in kernel.variants:
        checks.append(_variant(kernel, variant, root / "build" / variant, planned))
    for texts in checks:
        found += [_problem(kernel, text) for text in texts]
    return found


def _problem(kernel: Kernel, text: str) -> Problem:
    where, _, rest = text.partition(": ")
    return Problem(kernel.name, where, rest)


def _tree(kernel: Kernel, root: Path) -> Iterator[str]:
    """Plain files only, in the places the Hub knows."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            yield f"{name}: is a link, and a repo holds plain files only"
        elif path.suffix == ".pyc" or (path.name == "__pycache__" and path.is_dir()):
            yield f"{name}: is bytecode, which is not published; build again"
        elif path.parent == root and path.name not in TOP_LEVEL:
            yield f"{name}: {unknown('entry of a kernel repo', name, TOP_LEVEL)}"
        elif path.parent == root / "build" and path.name not in kernel.variants:
            yield f"{name}: is no variant that kernel.toml names ({', '.join(kernel.variants)})"


def _card(kernel: Kernel, root: Path) -> Iterator[str]:
    """README.md with the front matter the Hub reads."""
    import yaml  # type: ignore[import-untyped]  # comes with huggingface_hub, which reads cards with it
    from huggingface_hub.repocard import RepoCard

    path = root / "README.md"
    if not path.is_file():
        yield "README.md: is missing, and the Hub shows it as the kernel's card"
        return
    try:
        data = RepoCard(path.read_text("utf-8"), ignore_metadata_errors=False).data.to_dict()
    except (ValueError, yaml.YAMLError) as error:
        yield f"README.md: its front matter cannot be read: {' '.join(str(error).split())}"
        return
    for key, expected in (("license", kernel.license), ("library_name", "kernels")):
        if data.get(key) != expected:
            yield f"README.md: {key} in the front matter has to be {expected}, got {data.get(key)}"


def _benchmarks(root: Path) -> Iterator[str]:
    """benchmarks/benchmark*.py with a Benchmark class, where there are benchmarks at all."""
    for path in sorted((root / "benchmarks").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        problems: list[str] = []
        tree = parse(name, path.read_bytes(), problems)
        yield from problems
        if not path.name.startswith("benchmark"):
            yield f"{name}: is not called benchmark*.py, so `kernels benchmark` does not find it"
        elif tree and "Benchmark" not in _bases(tree):
            yield f"{name}: has no class X(Benchmark)"


def _bases(tree: ast.Module) -> list[str]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return [ast.unparse(base).split(".")[-1] for node in classes for base in node.bases]


def _variant(kernel: Kernel, variant: str, root: Path, planned: Plan | None) -> Iterator[str]:
    where = f"build/{variant}"
    if not root.is_dir():
        yield f"{where}: is missing; run `kernels-neuron build {kernel.name}`"
        return
    try:
        metadata = Metadata.read(root)
    except ArtifactError as error:
        yield f"{where}/{METADATA}: {str(error).removeprefix(f'{root / METADATA}: ')}"
        return
    yield from (f"{where}/{problem}" for problem in digest_problems(root, metadata))
    yield from (f"{where}/{METADATA}: {text}" for text in _metadata(kernel, variant, metadata))
    yield from (f"{where}/{METADATA}: {text}" for text in _upstream(root))
    yield from (f"{where}/{text}" for text in _sources(kernel, root, metadata))
    if planned and planned.metadata[variant].digest != metadata.digest:
        yield f"{where}: was built from other sources than there are now; run `kernels-neuron build {kernel.name}`"


def _metadata(kernel: Kernel, variant: str, metadata: Metadata) -> Iterator[str]:
    """metadata.json says what kernel.toml says."""
    backend, depends = BACKENDS[variant]
    expected = {
        "name": (metadata.name, kernel.repo),
        "version": (metadata.version, kernel.version),
        "license": (metadata.license, kernel.license),
        "backend.type": (metadata.backend, backend),
        "python-depends": (metadata.python_depends, depends),
    }
    for key, (found, wanted) in expected.items():
        if found != wanted:
            yield f"{key} is {found!r}, kernel.toml says {wanted!r}"


def _upstream(root: Path) -> Iterator[str]:
    """The validators that ship in `kernels`, on the metadata and on the digest."""
    from kernels._rust import Digest, DigestAlgorithm, DigestValidationError
    from kernels._rust import Metadata as UpstreamMetadata

    try:
        theirs = UpstreamMetadata.read_from_file(root / METADATA)
    except ValueError as error:
        yield f"upstream kernels: {error}"
        return
    if theirs.digest is None:
        yield "upstream kernels: no digest"
        return
    try:
        theirs.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, root))
    except DigestValidationError as error:
        yield from (f"upstream kernels: {violation}" for violation in error.violations)


def _sources(kernel: Kernel, root: Path, metadata: Metadata) -> Iterator[str]:
    """The rules for sources hold for what ships, and its id is that of its bytes."""
    files = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink() and (path.suffix == ".py" or path == root / API)
    }
    problems: list[str] = []
    trees = {
        name: tree for name, data in files.items() if name != API and (tree := parse(name, data, problems)) is not None
    }
    yield from problems
    # the torch-cpu variant leaves kernel.py out and never reaches the import of it
    yield from source_problems(kernel.name, {f"{kernel.name}/kernel.py": ast.Module([], []), **trees})
    for name in ("__init__.py", "_ops.py", API, f"{kernel.name}/__init__.py"):
        if name not in files:
            yield f"{name}: is missing"
    if files.get("_ops.py") != ops_text(metadata.id, metadata.backend):
        yield "_ops.py: is not what this version of the builder writes; build again"
    id = build_id(metadata.name, metadata.backend, {**files, "_ops.py": ops_text("", metadata.backend)})
    if id != metadata.id:
        yield f"{METADATA}: id is {metadata.id}, and that of these sources is {id}"
