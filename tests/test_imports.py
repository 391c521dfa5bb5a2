"""Which part may import which: docs/architecture.md prints this table, and every file is held to it."""

import ast
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kernels_neuron"
SOURCES = ROOT / "nki_src"
FACE = "kernels_neuron"  # the root __init__, a part like the others

MAY_IMPORT: dict[str, list[str]] = {
    "errors": [],
    "dtypes": ["errors"],
    "arch": ["errors", "dtypes"],
    "settings": ["errors", "dtypes"],
    "tables": ["errors", "dtypes"],
    "artifact": ["errors", "dtypes"],
    "manifest": ["errors", "dtypes", "tables", "artifact"],
    "inputs": ["errors", "dtypes", "tables"],
    "tolerance": ["errors", "dtypes", "tables"],
    "case": ["errors", "dtypes", "inputs", "tolerance"],
    "spec": ["errors", "dtypes", "tables", "inputs", "tolerance", "case"],
    "sim": ["errors", "dtypes", "arch", "settings"],
    "lint": ["errors", "dtypes", "arch", "settings", "sim"],
    "cost": ["errors", "dtypes", "arch", "settings", "sim"],
    "device": ["errors", "dtypes", "settings", "sim"],
    "builder": ["errors", "dtypes", "tables", "artifact", "manifest", "inputs", "tolerance", "case", "spec"],
    "hub": ["errors", "dtypes", "artifact"],
    "loader": ["errors", "dtypes", "arch", "artifact", "device"],
    "measure": [
        "errors", "dtypes", "arch", "settings", "tables", "inputs", "tolerance", "case", "spec", "manifest", "artifact",
        "sim", "cost", "device",
    ],
    "testing": ["errors", "dtypes", "arch", "settings", "sim"],
}  # fmt: skip
MAY_IMPORT["flows"] = list(MAY_IMPORT)
MAY_IMPORT[FACE] = list(MAY_IMPORT)
MAY_IMPORT["cli"] = list(MAY_IMPORT)

# where an import happens by name, which no reader of import statements can see
IMPORT_BY_NAME = {
    "artifact.py",  # runs the hashed bytes of a variant
    "cli/main.py",  # finds the module of a verb
}

FILES = sorted(PACKAGE.rglob("*.py"))
KERNEL_FILES = sorted(SOURCES.rglob("*.py"))
MAY_COME_WITH_A_KERNEL = {"nki", "torch", *sys.stdlib_module_names}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return FACE if first == "__init__.py" else first.removesuffix(".py")


def imports_of(path: Path, package: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(line, dotted name) of every import in a file of `package`, wherever it stands, relative ones resolved."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, tuple(alias.name.split("."))) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= len(package), f"{path.name}:{node.lineno}: the import leaves the package"
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            yield from ((node.lineno, (*base, alias.name)) for alias in node.names)


def package_of(path: Path, top: Path) -> tuple[str, ...]:
    return (top.name, *path.relative_to(top).parts[:-1])


def imported_parts(path: Path) -> Iterator[tuple[int, str]]:
    for line, name in imports_of(path, package_of(path, PACKAGE)):
        if name[0] == PACKAGE.name:
            known = len(name) > 1 and name[1] in MAY_IMPORT
            yield line, name[1] if known else FACE


def test_arrows_form_no_cycle():
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()


def test_every_part_is_in_the_table():
    assert {part_of(path) for path in FILES} <= set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_follow_the_arrows(path):
    part = part_of(path)
    for line, target in imported_parts(path):
        assert target in [part, *MAY_IMPORT[part]], f"{name_of(path)}:{line}: {part} imports {target}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_relative_imports_stay_in_their_part(path):
    depth = len(path.relative_to(PACKAGE).parts)  # 1 at the root, 2 in a part, 3 in a folder of a part
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level < max(depth, 2), f"{name_of(path)}:{node.lineno}: import other parts by their full name"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_by_name_are_listed(path):
    calls = {"import_module", "__import__", "spec_from_file_location", "exec_module"}
    used = {getattr(node, "attr", getattr(node, "id", None)) for node in ast.walk(ast.parse(path.read_text()))} & calls
    assert not used or name_of(path) in IMPORT_BY_NAME, f"{name_of(path)} uses {', '.join(sorted(used))}"


@pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda path: path.relative_to(SOURCES).as_posix())
def test_kernel_sources_import_nki_torch_and_themselves(path):
    allowed = MAY_COME_WITH_A_KERNEL | ({"kernels"} if path.name == "benchmark.py" else set())
    for line, name in imports_of(path, package_of(path, SOURCES)):
        if name[0] == SOURCES.name:
            kernel = path.relative_to(SOURCES).parts[0]
            assert name[1] in (kernel, "common", "_ops", "_limits"), f"{path.name}:{line}: imports {'.'.join(name)}"
        else:
            assert name[0] in allowed, f"{path.name}:{line}: imports {'.'.join(name)}"


@pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda path: path.relative_to(SOURCES).as_posix())
def test_kernel_sources_parse_as_python_3_9(path):
    ast.parse(path.read_text(), feature_version=(3, 9))


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("from kernels_neuron.cli.output import table", ["cli"]),
        ("def f():\n    import kernels_neuron.hub.store", ["hub"]),
        ("from kernels_neuron import sim, kernelize", ["sim", FACE]),
        ("from ..cost import timeline", ["cost"]),
        ("from .memory import Hbm", ["sim"]),
        ("import torch", []),
    ],
)
def test_the_reader_sees_every_form_of_import(tmp_path, monkeypatch, source, parts):
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "kernels_neuron")
    path = tmp_path / "kernels_neuron" / "sim" / "core.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert [part for _, part in imported_parts(path)] == parts
