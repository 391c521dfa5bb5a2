"""Builds: reads nki_src/, plans, and writes build/ so that no reader ever sees half of it."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kernels_neuron.artifact import METADATA, Metadata
from kernels_neuron.errors import ArtifactError, FileProblems
from kernels_neuron.manifest import Kernel, Manifest
from kernels_neuron.spec import Spec

from .card import read_results
from .plan import Plan, plan, problems_of
from .provenance import provenance

_UNFINISHED = ".unfinished-"


@dataclass(frozen=True)
class Built:
    """One built Hub repo: its folder, its variants' folders, and a SHA-256 over the sources of all variants."""

    name: str
    hub_name: str
    root: Path
    variants: dict[str, Path]
    digest: str


def build(manifest: Manifest, names: Iterable[str] | None = None, out: Path | None = None) -> list[Built]:
    """Build kernels into `out` (build/ beside kernel.toml), one folder per Hub repo.

    names  folders or repo names; None or none: every kernel of the manifest

    Refuses, before anything is written, when any of them has a problem. A repo that is already there byte for byte is
    left untouched, so building on demand costs little; another one is replaced as a whole.
    """
    plans = plan_all(manifest, names)
    out = (out or manifest.build_root).absolute()
    if not all(_is_up_to_date(planned, out / planned.kernel.repo) for planned in plans):
        out.mkdir(parents=True, exist_ok=True)
        with _only_writer(out):
            for planned in plans:
                _write(planned, out / planned.kernel.repo)
    return [
        Built(
            name=planned.kernel.name,
            hub_name=planned.kernel.repo,
            root=out / planned.kernel.repo,
            variants={variant: out / planned.kernel.repo / "build" / variant for variant in planned.metadata},
            digest=planned.digest,
        )
        for planned in plans
    ]


def plan_all(manifest: Manifest, names: Iterable[str] | None = None) -> list[Plan]:
    """The plans of these kernels. Refuses with all problems of all of them."""
    kernels = manifest.select(names)
    specs = {kernel.name: Spec.read(kernel.folder) for kernel in kernels}
    sources = {kernel.name: read_sources(manifest, kernel) for kernel in kernels}
    problems = [
        problem for kernel in kernels for problem in problems_of(kernel, specs[kernel.name], sources[kernel.name])
    ]
    if problems:
        raise FileProblems(manifest.sources, sorted(set(problems)))
    origin = provenance(manifest)
    results = read_results(manifest.root)
    return [plan(kernel, specs[kernel.name], sources[kernel.name], origin, results) for kernel in kernels]


def read_sources(manifest: Manifest, kernel: Kernel) -> dict[str, bytes]:
    """The Python files of a kernel and of common/, by path below nki_src/. Refuses links."""
    files = {}
    problems = []
    for folder in (kernel.folder, manifest.sources / "common"):
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            name = path.relative_to(manifest.sources).as_posix()
            if path.is_symlink():
                problems.append(f"{name}: is a link, and an artifact holds plain files only")
            elif path.suffix == ".py" and path.is_file():
                files[name] = path.read_bytes()
    if problems:
        raise FileProblems(manifest.sources, problems)
    return files


def same_files(root: Path, files: dict[str, bytes]) -> bool:
    """Whether `root` holds exactly these files."""
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() or path.is_symlink()}
    return found == set(files) and all((root / path).read_bytes() == data for path, data in files.items())


def _is_up_to_date(planned: Plan, root: Path) -> bool:
    """Whether `root` is what would be written.

    Where this tree is under no version control (an installed package, whose artifacts were built with it), what is
    there may know the commit its same bytes came from, and stays.
    """
    if same_files(root, planned.files):
        return True
    unknown_origin = all(metadata.provenance is None for metadata in planned.metadata.values())
    if not unknown_origin or not root.is_dir():
        return False
    told = ["README.md", *(f"build/{variant}/{METADATA}" for variant in planned.metadata)]
    if not all((root / path).is_file() for path in told):
        return False
    try:
        found = {variant: Metadata.read(root / "build" / variant) for variant in planned.metadata}
    except ArtifactError:
        return False
    if any(metadata.provenance is None for metadata in found.values()):
        return False
    same_metadata = all(replace(found[name], provenance=None) == wanted for name, wanted in planned.metadata.items())
    return same_metadata and same_files(root, planned.files | {path: (root / path).read_bytes() for path in told})


def _write(planned: Plan, root: Path) -> None:
    if _is_up_to_date(planned, root):
        return
    fresh = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=root.parent))
    try:
        for path, data in planned.files.items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).write_bytes(data)
        fresh.chmod(0o755)  # mkdtemp makes it private
        _replace(fresh, root)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _replace(fresh: Path, root: Path) -> None:
    if not root.exists():
        fresh.rename(root)
        return
    old = root.with_name(f"{_UNFINISHED}old-{root.name}")
    root.rename(old)
    try:
        fresh.rename(root)
    except OSError:
        old.rename(root)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _only_writer(out: Path) -> Iterator[None]:
    """One process at a time writes to `out`; what a killed one left unfinished is removed."""
    with open(out / ".lock", "w") as lock:
        if os.name == "posix":
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in out.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
