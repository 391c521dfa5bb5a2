"""Which part may import which: the table of docs/architecture.md, and every file held to it."""

import ast
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kernels_neuron"
SOURCES = ROOT / "nki_src"
FACE = "kernels_neuron"  # the root __init__, a part like the others

# parts split over several files of the root: file -> the part it counts as
BELONGS_TO = {"inputs": "spec", "tolerance": "spec", "case": "spec", "expression": "spec", "tiles": "spec"}


def read_table() -> dict[str, list[str]]:
    """part -> parts it may import, from docs/architecture.md."""
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    table = {part: [] if "all" in cell else cell.replace(",", " ").split() for part, cell in rows}
    everything = [part for part in table if part not in ("flows", FACE, "cli")]
    table["flows"] = everything
    table[FACE] = [*everything, "flows"]
    table["cli"] = [part for part in table if part != "cli"]
    return table


MAY_IMPORT = read_table()

# where an import happens by name, which no reader of import statements can see
IMPORT_BY_NAME = {
    "__init__.py",  # the lazy half of the public face
    "artifact.py",  # runs the hashed bytes of a variant
    "cli/main.py",  # finds the module of a verb
    "measure/tune.py",  # the table of tiles inside a variant
    "measure/source.py",  # runs the file that `profile FILE.py:FUNC` names
    "sim/shim/finder.py",  # answers `import nki`
}

FILES = sorted(PACKAGE.rglob("*.py"))
KERNEL_FILES = sorted(SOURCES.rglob("*.py"))
MAY_COME_WITH_A_KERNEL = {"nki", "torch", *sys.stdlib_module_names}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    name = first.removesuffix(".py")
    return FACE if first == "__init__.py" else BELONGS_TO.get(name, name)


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
            target = BELONGS_TO.get(name[1], name[1]) if len(name) > 1 else FACE
            yield line, target if target in MAY_IMPORT else FACE


def test_arrows_form_no_cycle():
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()


def test_the_bottom_and_the_top_are_where_they_should_be():
    assert MAY_IMPORT["errors"] == []
    assert "cli" not in MAY_IMPORT["flows"] and "flows" in MAY_IMPORT["cli"]
    assert not any("cost" in MAY_IMPORT[part] for part in ("sim", "loader", "builder", "hub"))


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
