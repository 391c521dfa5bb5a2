"""Tile parameters: what [tune] of spec.toml declares, and tuned.py, the table of the best ones, which ships."""

import ast
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import FileProblems
from .expression import evaluate, holds, names_in
from .tables import Table, show, unknown

TUNED = "tuned.py"
_NAME = "TUNED"

Tiles = dict[str, int]


@dataclass(frozen=True)
class Tune:
    """What [tune] declares: values to try for each parameter, and the sizes that kernel.py looks its tiles up by.

    sizes  name -> expression in the letters of the workloads
    where  comparisons of parameters and sizes that a candidate has to satisfy
    """

    parameters: dict[str, tuple[int, ...]]
    sizes: dict[str, str]
    where: tuple[str, ...]

    def sizes_of(self, letters: Mapping[str, int]) -> dict[str, int]:
        """The sizes of a workload with these letters."""
        return {name: evaluate(expression, letters) for name, expression in self.sizes.items()}

    def candidates(self, letters: Mapping[str, int]) -> list[Tiles]:
        """Every combination of parameters that `where` allows for a workload, in the order of the file."""
        sizes = self.sizes_of(letters)
        combined = itertools.product(*self.parameters.values())
        found = (dict(zip(self.parameters, values, strict=True)) for values in combined)
        return [tiles for tiles in found if all(holds(condition, {**sizes, **tiles}) for condition in self.where)]


@dataclass(frozen=True)
class Row:
    """One row of tuned.py: the tiles of calls on this chip and these cores whose sizes are within (least, greatest)."""

    chip: str
    cores: int
    dtype: str
    sizes: dict[str, tuple[int, int]]
    tiles: Tiles

    @property
    def key(self) -> tuple[str, int, str, float, tuple[tuple[str, tuple[int, int]], ...]]:
        """What a row is found and sorted by: the first that covers a call counts, so narrower ones come first."""
        extent = math.prod(most - least + 1 for least, most in self.sizes.values())
        return self.chip, self.cores, self.dtype, extent, tuple(sorted(self.sizes.items()))


def read_tune(table: Table, letters: Sequence[str]) -> Tune:
    """[tune] of a spec whose workloads have these letters; what is wrong goes to the table's problems."""
    sizes = _read_sizes(table.table("sizes"), letters)
    if "sizes" not in table.data:
        table.problem("sizes", 'is missing: the sizes kernel.py looks tiles up by, such as { M = "B * M" }')
    where = table.take_strings("where")
    parameters = {name: _read_values(table, name) for name in table.data if name not in ("sizes", "where")}
    if not parameters:
        table.problem("sizes", "stands alone, and there is a list of values for at least one tile parameter")
    known = {**dict.fromkeys(sizes, 1), **{name: values[0] for name, values in parameters.items() if values}}
    for i, condition in enumerate(where):
        strange = [name for name in names_in(condition) if name not in (*sizes, *parameters)]
        if strange:
            table.problem(f"where[{i}]", unknown("parameter or size", strange[0], [*parameters, *sizes]))
            continue
        try:
            holds(condition, known)
        except ValueError as error:
            table.problem(f"where[{i}]", str(error))
    table.done()
    return Tune(parameters, sizes, where)


def _read_sizes(table: Table, letters: Sequence[str]) -> dict[str, str]:
    sizes = {name: table.take(name, str, "1") for name in table.data}
    for name, expression in sizes.items():
        try:
            evaluate(expression, dict.fromkeys(letters, 1))
        except ValueError as error:
            table.problem(name, str(error))
    return sizes


def _read_values(table: Table, name: str) -> tuple[int, ...]:
    values = table.take(name, list, [])
    if not name.isidentifier():
        table.problem(name, "has to be the name of a tile parameter")
    if not values or not all(type(value) is int for value in values) or len(set(values)) < len(values):
        table.problem(name, f"has to be a list of different integers to try, got {show(values)}")
    return tuple(value for value in values if type(value) is int)


# ---- tuned.py


def read_rows(path: Path, tune: Tune) -> list[Row]:
    """The rows of a tuned.py, held against what the spec declares. Refuses the file with all that is wrong in it."""
    problems: list[str] = []
    rows = [row for i, value in enumerate(_literal(path)) if (row := _row(value, f"row {i}", problems)) is not None]
    for i, row in enumerate(rows):
        problems += [f"row {i}: {problem}" for problem in _undeclared(row, tune)]
    if problems:
        raise FileProblems(path, problems, hint="delete the row, and tune again")
    return rows


def _literal(path: Path) -> list[object]:
    """The list a tuned.py assigns, read without running it."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [_NAME]:
                value = ast.literal_eval(node.value)
                if isinstance(value, list):
                    return value
    except (SyntaxError, ValueError) as error:
        raise FileProblems(path, [f"{_NAME}: not a literal: {error}"]) from None
    raise FileProblems(path, [f"{_NAME}: is missing, and has to be a list"], hint=f"start with `{_NAME} = []`")


def _row(value: object, where: str, problems: list[str]) -> Row | None:
    match value:
        case (str(chip), int(cores), str(dtype), dict(sizes), dict(tiles)) if _are_ranges(sizes) and _are_ints(tiles):
            return Row(chip, cores, dtype, sizes, tiles)
    problems.append(
        f"{where}: has to be (chip, cores, dtype, {{size: (least, greatest)}}, {{parameter: value}}), got {show(value)}"
    )
    return None


def _are_ranges(sizes: dict[object, object]) -> bool:
    return all(isinstance(ends, tuple) and [type(end) for end in ends] == [int, int] for ends in sizes.values())


def _are_ints(tiles: dict[object, object]) -> bool:
    return all(type(value) is int for value in tiles.values())


def _undeclared(row: Row, tune: Tune) -> Iterator[str]:
    for name in row.tiles:
        if name not in tune.parameters:
            yield unknown("tile parameter", name, tune.parameters)
    for name in row.sizes:
        if name not in tune.sizes:
            yield unknown("size", name, tune.sizes)


def merged(rows: Iterable[Row], found: Iterable[tuple[Row, Mapping[str, int]]]) -> list[Row]:
    """`rows` with new ones put in, sorted; each comes with the sizes it was found at, whose own row it replaces."""
    table = {row.key: row for row in rows}
    for row, at in found:
        table.pop(replace(row, sizes={name: (size, size) for name, size in at.items()}).key, None)
        table[row.key] = row
    return [table[key] for key in sorted(table)]


def render(kernel: str, rows: Iterable[Row]) -> str:
    """The text of tuned.py: a Python literal, so that a kernel can import it on the device."""
    lines = [
        f'"""Tile parameters of {kernel} by chip, cores, dtype and sizes; common/tuning.py reads them.',
        "",
        f"Written by `kernels-neuron tune {kernel}`: each row is faster than the kernel's own tiles by the latency",
        "model, and equals the reference. The first row that covers a call counts.",
        '"""',
        "",
        "# (chip, physical cores, dtype, {size: (least, greatest)}, {parameter: value})",
    ]
    body = [f"    (\n{_fields(row)}    )," for row in rows]
    lines += [f"{_NAME} = [", *body, "]"] if body else [f"{_NAME} = []"]
    return "\n".join(lines) + "\n"


def _fields(row: Row) -> str:
    values = [f'"{row.chip}"', str(row.cores), f'"{row.dtype}"', _mapping(row.sizes), _mapping(row.tiles)]
    return "".join(f"        {value},\n" for value in values)


def _mapping(values: Mapping[str, object]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"
