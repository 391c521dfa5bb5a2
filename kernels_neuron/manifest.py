"""kernel.toml: which folders of nki_src/ are kernels, and the repo, version, licence and variants of each."""

import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .artifact import VARIANTS
from .errors import FileProblems, UsageError
from .tables import Table, read_toml, show, unknown

MANIFEST = "kernel.toml"
SOURCES = "nki_src"
PACKAGED = Path(__file__).parent / "packaged" / MANIFEST

_FOLDER_NAME = re.compile(r"[a-z][a-z0-9_]*[a-z0-9]")
# what the Hub and upstream `kernels` accept as the name of a kernel
REPO_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_RESERVED_FOLDERS = ("common",)


@dataclass(frozen=True)
class Kernel:
    """One kernel as kernel.toml packages it. `name` is its folder under nki_src/, `repo` its Hub name without owner."""

    name: str
    folder: Path
    repo: str
    version: int
    license: str
    variants: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """What one kernel.toml says. `kernels` is keyed by folder name, in the order of the file."""

    path: Path
    kernels: dict[str, Kernel]

    @property
    def root(self) -> Path:
        """The folder that holds kernel.toml, nki_src/ and build/."""
        return self.path.parent

    @property
    def sources(self) -> Path:
        """nki_src/."""
        return self.root / SOURCES

    @property
    def build_root(self) -> Path:
        """build/, where the builder writes unless told otherwise."""
        return self.root / "build"

    def select(self, names: Iterable[str] | None = None) -> list[Kernel]:
        """The kernels named by folder or by repo, in the order of the names; all of them for None or no name."""
        names = list(names or [])
        by_name = {kernel.repo: kernel for kernel in self.kernels.values()} | self.kernels
        for name in names:
            if name not in by_name:
                raise UsageError(unknown("kernel", name, self.kernels), hint="`kernels-neuron list` prints all of them")
        return list(dict.fromkeys(by_name[name] for name in names)) if names else list(self.kernels.values())

    @classmethod
    def read(cls, path: Path | str | None = None) -> "Manifest":
        """Read kernel.toml, the nearest one for None. Refuses it with all that is wrong, missing folders included."""
        path = Path(path).absolute() if path is not None else find_manifest()
        data = read_toml(path, "run in a folder that has a kernel.toml, or make one with `kernels-neuron new NAME`")
        problems: list[str] = []
        top = Table(data, "", problems)
        tables = top.take("kernels", dict, {}, required=True)
        kernels = [_read_kernel(name, tables[name], path.parent / SOURCES, problems) for name in tables]
        top.done()
        problems += _shared_repos(kernels)
        if problems:
            raise FileProblems(path, problems)
        return cls(path, {kernel.name: kernel for kernel in kernels if kernel})


def find_manifest(start: Path | str | None = None) -> Path:
    """The nearest kernel.toml from `start` (the current folder) upward, else the one packaged with the installation."""
    start = Path(start or ".").absolute()
    for folder in (start, *start.parents):
        if (folder / MANIFEST).is_file():
            return folder / MANIFEST
    installed = installed_manifest()
    if installed is not None:
        return installed
    raise UsageError(f"there is no {MANIFEST} in {start} or above", hint="start one with `kernels-neuron new NAME`")


def installed_manifest() -> Path | None:
    """The kernel.toml that came with this installation: package data of a wheel, or the checkout it runs from."""
    checkout = Path(__file__).parents[1] / MANIFEST  # an editable installation packages nothing
    return next((path for path in (PACKAGED, checkout) if path.is_file()), None)


def is_folder_name(name: str) -> bool:
    """Whether a kernel's folder can be called so: it becomes a Python module and, with dashes, a Hub name."""
    return bool(_FOLDER_NAME.fullmatch(name)) and name not in _RESERVED_FOLDERS and not keyword.iskeyword(name)


def _read_kernel(name: str, data: object, sources: Path, problems: list[str]) -> Kernel | None:
    where = f"kernels.{name}"
    if not isinstance(data, dict):
        problems.append(f"{where}: has to be a table, got {show(data)}")
        return None
    table = Table(data, where, problems)
    repo = table.take("repo", str, required=True)
    version = table.take("version", int, required=True)
    license = table.take("license", str, required=True)
    variants = table.take_strings("variants", VARIANTS)
    table.done()
    _check_folder(name, sources, problems)
    if repo is not None and not REPO_NAME.fullmatch(repo):
        table.problem(
            "repo", f"lower-case letters, digits and dashes, at least two, starting with a letter; got {repo!r}"
        )
    if version is not None and version < 1:
        table.problem("version", f"has to be 1 or more, got {version}")
    if license == "":
        table.problem("license", "is empty, and the Hub asks for one, such as apache-2.0")
    if not variants and "variants" in data:
        table.problem("variants", "is empty, and a kernel without a variant cannot be loaded")
    for i, variant in enumerate(variants):
        table.one_of(f"variants[{i}]", variant, VARIANTS, "variant")
    return Kernel(name, sources / name, repo or "", version or 0, license or "", variants)


def _check_folder(name: str, sources: Path, problems: list[str]) -> None:
    where = f"kernels.{name}"
    if not is_folder_name(name):
        problems.append(f"{where}: a folder name is lower-case letters, digits and underscores, and not 'common'")
    elif not (sources / name).is_dir():
        folders = [entry.name for entry in sources.iterdir() if entry.is_dir()] if sources.is_dir() else []
        known = sorted(folder for folder in folders if is_folder_name(folder))
        problems.append(f"{where}: {unknown('folder of nki_src', name, known)}")
    elif not (sources / name / "spec.toml").is_file():
        problems.append(f"{where}: nki_src/{name} has no spec.toml")


def _shared_repos(kernels: list[Kernel | None]) -> list[str]:
    owners: dict[str, str] = {}
    problems = []
    for kernel in kernels:
        if kernel and kernel.repo and owners.setdefault(kernel.repo, kernel.name) != kernel.name:
            problems.append(f"kernels.{kernel.name}.repo: {kernel.repo} is taken by kernels.{owners[kernel.repo]}")
    return problems
