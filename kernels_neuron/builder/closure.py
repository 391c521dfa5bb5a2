"""Which source files a variant needs: the import closure of a kernel, read off its syntax trees."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# written into each variant by the builder; sources import them as if they lay beside the kernel's folder
GENERATED = ("_ops.py", "_limits.py")


@dataclass(frozen=True)
class Import:
    """One import statement: where it stands, and the dotted module it names. `level` counts the leading dots."""

    file: str
    line: int
    level: int
    module: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        dotted = "." * self.level + self.module
        return f"from {dotted} import {', '.join(self.names)}" if self.names else f"import {dotted}"


def imports_of(file: str, tree: ast.Module) -> Iterator[Import]:
    """Every import in a file, those inside functions included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, 0, alias.name, ())
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import(file, node.lineno, node.level, node.module or "", names)


def resolve(statement: Import, files: Mapping[str, object]) -> list[str]:
    """The files a relative import loads, packages on the way included; empty where there is no such module.

    files  the paths that exist, relative to the folder that holds kernels and common
    """
    package = statement.file.split("/")[:-1]
    if statement.level - 1 > len(package):
        return []
    base = package[: len(package) - statement.level + 1] + [part for part in statement.module.split(".") if part]
    found = _module(base, files)
    if statement.module and not found:
        return []
    # a package that names itself (`from . import layers` in its __init__) can only mean a module
    modules_only = not statement.module and _module(base, files) in ([], [statement.file])
    for name in statement.names:
        inner = _module([*base, name], files)
        found += inner
        if not inner and modules_only:
            return []
    packages = [_module(base[:i], files) for i in range(1, len(base))]
    return list(dict.fromkeys([path for paths in packages for path in paths] + found))


def _module(parts: list[str], files: Mapping[str, object]) -> list[str]:
    stem = "/".join(parts)
    return [path for path in (f"{stem}/__init__.py", f"{stem}.py") if path in files][:1]


def closure(start: str, trees: Mapping[str, ast.Module], without: tuple[str, ...] = ()) -> list[str]:
    """The files that importing `start` can load, itself included, sorted; imports of `without` are not followed."""
    known: dict[str, object] = {**trees, **dict.fromkeys(GENERATED)}
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        file = waiting.pop()
        if file in reached or file in without or file not in trees:
            continue
        reached.add(file)
        for statement in imports_of(file, trees[file]):
            if statement.level:
                waiting += resolve(statement, known)
    return sorted(reached)
