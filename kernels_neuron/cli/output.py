"""How commands print: the answer on stdout, everything else on stderr, silent progress when piped."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from kernels_neuron.manifest import Kernel


def print_json(value: Any) -> None:
    """Print one JSON value on stdout. Floats that JSON cannot hold (nan, inf) become null."""
    print(json.dumps(_finite(value), indent=2, default=str))


def table(columns: Sequence[str], rows: Sequence[Sequence[Any] | Mapping[str, Any]]) -> None:
    """Print aligned columns on stdout: text to the left, numbers to the right, "-" for None.

    A row is a sequence in the order of `columns`, or a mapping by their names.
    """
    values = [[row.get(name) for name in columns] if isinstance(row, Mapping) else list(row) for row in rows]
    cells = [[_cell(value) for value in row] for row in values]
    right = [any(_is_number(row[i]) for row in values) for i in range(len(columns))]
    widths = [max(len(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))]
    for line in [list(columns), *cells]:
        padded = [line[i].rjust(widths[i]) if right[i] else line[i].ljust(widths[i]) for i in range(len(columns))]
        print("  ".join(padded).rstrip())


def require_place(*files: Path | None) -> None:
    """Each file can be written where it is asked for: said before the work, not after it."""
    from kernels_neuron.errors import UsageError

    for file in files:
        if file is not None and file.is_dir():
            raise UsageError(f"{file} is a folder", hint="name a file in it")
        if file is not None and not file.absolute().parent.is_dir():
            raise UsageError(f"there is no folder {file.parent}", hint="make it, or write elsewhere")


def say(text: str) -> None:
    """Print one line of talk on stderr."""
    print(text, file=sys.stderr, flush=True)


class Bar:
    """A progress bar being shown; `advance` moves it, `describe` changes its text."""

    def __init__(self, progress: Progress, description: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(description, total=total)

    def advance(self, steps: int = 1) -> None:
        """Move on by `steps`."""
        self._progress.advance(self._task, steps)

    def move(self, done: int, of: int) -> None:
        """Show that `done` of `of` steps are done."""
        self._progress.update(self._task, completed=done, total=of)

    def describe(self, description: str) -> None:
        """Change the text in front of the bar."""
        self._progress.update(self._task, description=description)


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Bar]:
    """A progress bar on stderr, gone when the block ends; nothing is drawn where stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        yield Bar(shown, description, total)


def print_unvalidated(archs: Iterable[str]) -> None:
    """Name the chips whose estimates were never compared with measurements, where there are any."""
    from kernels_neuron.arch import chip

    for name in sorted({chip(arch).name for arch in archs if not chip(arch).validated}):
        print(f"{name} is unvalidated: documented constants only")


def say_lacking(kernels: Iterable["Kernel"], archs: Sequence[str] | None) -> None:
    """Name the kernels that are not made for a chip that was asked for, and so have no rows of it."""
    from kernels_neuron.arch import chip
    from kernels_neuron.measure.cases import lacking

    asked = {chip(arch).name for arch in archs or ()}
    for arch, names in lacking(kernels).items() if asked else ():
        if arch in asked:
            say(f"{arch}: no rows of {', '.join(names)}: not made for it, by archs of spec.toml")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e-3 or abs(value) >= 1e6 else f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(str(item) for item in value)
    return str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
