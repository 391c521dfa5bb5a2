"""Findings of one run of anybody's kernel: what the simulator refuses or warns about, at the line of its source."""

import re
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

from kernels_neuron.arch import chip
from kernels_neuron.errors import KernelError, UsageError
from kernels_neuron.lint import Finding, Selection, shown_path
from kernels_neuron.lint.target import parse_version, spell
from kernels_neuron.measure.source import KERNEL_RAISES, load_function, make_arguments
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using
from kernels_neuron.sim.races import RaceWarning
from kernels_neuron.sim.run import jit
from kernels_neuron.sim.versions import OLDEST

from .findings import PYTHON

_TARGET = re.compile(r"(?P<file>.+\.py)::?(?P<function>[A-Za-z_]\w*)")


def function_of(path: Path) -> tuple[Path, str] | None:
    """(file, function) of FILE.py:FUNC or FILE.py::FUNC; None for other paths."""
    match = _TARGET.fullmatch(str(path))
    return (Path(match["file"]), match["function"]) if match else None


def function_findings(
    file: Path,
    function: str,
    inputs: Sequence[str] = (),
    values: Sequence[str] = (),
    *,
    nki: str = "0.7",
    arch: str = "trn2",
    lnc: int = 1,
    selection: Selection | None = None,
) -> list[Finding]:
    """What the simulator finds while one function of a file runs: the error that ends the run, and warnings before.

    inputs, values  its arguments as `kernels-neuron profile` takes them: NAME=128x512:bfloat16 and NAME=VALUE
    """
    if parse_version(nki) < OLDEST:
        hint = f"lint for {nki} without --run"
        raise UsageError(f"the simulator runs NKI {spell(OLDEST)} and later, got {nki}", hint=hint)
    kernel = load_function(f"{file}:{function}")
    arguments = make_arguments(kernel, inputs, values)
    found: list[Finding] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RaceWarning)
        try:
            with using(chip(arch), Settings(nki=nki, lnc=lnc)):
                jit(kernel)(**arguments)
        except KernelError as error:
            message = str(error).removeprefix(f"{error.where}: ")
            found.append(Finding(*_place(error, error.where, file), error.rule, "error", message, error.hint))
        except KERNEL_RAISES as error:
            message = f"{type(error).__name__}: {error}"
            found.append(Finding(*_place(error, None, file), PYTHON, "error", message))
    for each in caught:
        if issubclass(each.category, RaceWarning):
            where, _, message = str(each.message).partition(": ")
            found.append(Finding(*_place(None, where, file), "race", "warning", message))
    return sorted(each for each in found if selection is None or each.rule in selection)


def _place(error: BaseException | None, where: str | None, file: Path) -> tuple[str, int, int]:
    """(path, line, column) in the kernel's sources: `where` is "kernel.py:12", else the last line that is not ours."""
    package = Path(__file__).parents[1]
    frames = traceback.extract_tb(error.__traceback__) if error else []
    own = [(Path(each.filename), each.lineno or 0) for each in frames]
    own = [(path, line) for path, line in own if path.is_file() and not path.is_relative_to(package)]
    if where is None:
        path, line = own[-1] if own else (file, 0)
    else:
        name, _, number = where.rpartition(":")
        line = int(number)
        path = next((each for each, at in own if each.name == name and at == line), file.with_name(name))
    return shown_path(path), line, int(line > 0)
