"""Suites: bench/<name>.toml lists which kernels, workloads, dtypes, chips and cores belong together."""

from dataclasses import dataclass
from pathlib import Path

from kernels_neuron.errors import FileProblems, UsageError
from kernels_neuron.tables import Table, read_toml, unknown

from .cases import Filter


@dataclass(frozen=True)
class Part:
    """One [[part]] of a suite: kernels, and what of them to keep."""

    kernels: tuple[str, ...]
    keep: Filter


def read_suite(folder: Path, name: str) -> list[Part]:
    """The parts of the suite `name` in `folder`."""
    known = sorted(path.stem for path in folder.glob("*.toml")) if folder.is_dir() else []
    if name not in known:
        raise UsageError(unknown("suite", name, known), hint=f"suites are the .toml files in {folder}")
    path = folder / f"{name}.toml"
    problems: list[str] = []
    top = Table(read_toml(path, "a suite lists its parts as [[part]]"), "", problems)
    top.take("summary", str)
    rows = top.take("part", list, [], required=True)
    parts = [_part(row, f"part[{i}]", problems) for i, row in enumerate(rows)]
    top.done()
    if problems:
        raise FileProblems(path, problems)
    return parts


def _part(row: dict, where: str, problems: list[str]) -> Part:
    table = Table(row, where, problems)
    kernels = table.take_strings("kernels")
    workloads, dtypes, archs = (table.take_strings(key) for key in ("workloads", "dtypes", "archs"))
    keep = Filter.of(workloads, dtypes, archs, table.take("lncs", list))
    table.done()
    return Part(kernels, keep)
