"""Anybody's kernel from a file: FILE.py:FUNC, and inputs described on a command line."""

import ast
import importlib
import inspect
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from kernels_neuron.dtypes import ROWS
from kernels_neuron.dtypes import dtype as as_dtype
from kernels_neuron.errors import KernelsNeuronError, UnsupportedDtype, UsageError
from kernels_neuron.tables import unknown

from .verify import KERNEL_RAISES

PACKAGE = Path(__file__).parents[1]
_INPUT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<shape>\d+(x\d+)*)(:(?P<dtype>\w+))?")
LARGEST_INPUT = 1 << 32  # bytes


def load_function(target: str) -> Callable[..., Any]:
    """The function that "FILE.py:FUNC" names; relative imports in the file work, its package's __init__ is not run."""
    file, colon, name = target.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise UsageError(f"the kernel is given as FILE.py:FUNC, got {target!r}", hint=_functions_of(target))
    path = Path(file).absolute()
    if not path.is_file():
        raise UsageError(f"there is no {file}")
    module = _import(path)
    found = getattr(module, name, None)
    if not callable(found):
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UsageError(f"{file} has no function {name!r}: {unknown('function', name, functions)}")
    return found


def _functions_of(target: str) -> str:
    """What to write instead of a file without a function, or of something else."""
    path = Path(target.rstrip(":"))
    if path.suffix != ".py" or not path.is_file():
        return "kernels of kernel.toml are timed by `kernels-neuron bench KERNEL`"
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return "name a function of the file"
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    return "its functions: " + (", ".join(f"{path}:{name}" for name in names) or "none")


def _import(path: Path) -> ModuleType:
    """Run a file under a name of its own. The folders above it become packages that are not run themselves."""
    parents = [path.parent]
    while (parents[0] / "__init__.py").is_file():
        parents.insert(0, parents[0].parent)
    names = [f"_profiled_{abs(hash(str(path))):x}", *(folder.name for folder in parents[1:])]
    for depth, folder in enumerate(parents):
        package = ModuleType(".".join(names[: depth + 1]))
        package.__path__ = [str(folder)]
        sys.modules[package.__name__] = package
    with _also_on_path(path.parent):
        try:
            return importlib.import_module(f"{'.'.join(names)}.{path.stem}")
        except SyntaxError as error:
            raise UsageError(f"{path.name}:{error.lineno}: {error.msg}") from error
        except (ImportError, *KERNEL_RAISES) as error:
            raise UsageError(f"{path.name} cannot be imported: {located(error)}") from error


@contextmanager
def _also_on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def located(error: BaseException) -> str:
    """An error of the user's code with the file and line it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _ours(frame.filename) and "importlib" not in frame.filename]
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}: " if own else ""
    return f"{where}{type(error).__name__}: {error}"


def _ours(filename: str) -> bool:
    return Path(filename).is_relative_to(PACKAGE)


class TimeLimit(KernelsNeuronError):
    """A run was stopped because its time was up."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Stop the block after `seconds` with a TimeLimit that says which line was running. Main thread only."""
    if seconds is None:
        yield
        return
    if seconds <= 0:
        raise UsageError(f"the time limit has to be more than 0 seconds, got {seconds:g}")

    def stop(signum: int, frame: FrameType | None) -> None:
        running = frame
        while running is not None and "_profiled_" not in running.f_globals.get("__name__", ""):
            running = running.f_back
        where = f" at {Path(running.f_code.co_filename).name}:{running.f_lineno}" if running else ""
        raise TimeLimit(f"stopped after {seconds:g} s{where}, before the kernel was done")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def make_arguments(
    function: Callable[..., Any], inputs: Sequence[str], values: Sequence[str], rank: int = 0
) -> dict[str, Any]:
    """Keyword arguments from `NAME=128x512:bfloat16` and `NAME=VALUE`, held against the function's signature.

    rank  whose tensors they are: each rank's hold random values of its own, the same in every run
    """
    given: dict[str, Any] = {}
    for position, text in enumerate(inputs):
        name, array = _array(text, seed=(rank, position))
        _take(given, name, array)
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--arg takes NAME=VALUE, got {text!r}")
        _take(given, name, _literal(value))
    parameters = inspect.signature(function).parameters
    open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for name in given:
        if name not in parameters and not open_ended:
            raise UsageError(unknown("parameter", name, list(parameters)))
    missing = [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL) and name not in given
    ]
    if missing:
        hint = "give tensors as --input NAME=128x512:bfloat16 and numbers as --arg NAME=VALUE"
        raise UsageError(f"{_name(function)} needs {', '.join(missing)}", hint=hint)
    return given


def _take(given: dict[str, Any], name: str, value: Any) -> None:
    if name in given:
        raise UsageError(f"{name} is given twice")
    given[name] = value


def _array(text: str, seed: tuple[int, int]) -> tuple[str, np.ndarray]:
    match = _INPUT.fullmatch(text)
    if match is None:
        raise UsageError(f"--input takes NAME=SHAPE:DTYPE, got {text!r}", hint="write it as x=128x512:bfloat16")
    shape = tuple(int(size) for size in match["shape"].split("x"))
    try:
        row = ROWS[as_dtype(match["dtype"] or "float32")]
    except UnsupportedDtype as error:
        raise UsageError(f"{match['name']}: {error}", hint=error.hint) from None
    count = 1
    for size in shape:
        count *= size
    if count == 0:
        raise UsageError(f"{match['name']} has no elements, shape {list(shape)}")
    if count * row.itemsize > LARGEST_INPUT:
        raise UsageError(f"{match['name']} takes {count * row.itemsize} bytes, more than {LARGEST_INPUT}")
    random = np.random.default_rng(seed)
    if row.kind == "float":
        return match["name"], random.standard_normal(shape, np.float32).astype(row.numpy)
    if row.kind == "bool":
        return match["name"], random.random(shape) < 0.5
    return match["name"], random.integers(0, 100, shape).astype(row.numpy)


def _literal(text: str) -> Any:
    """A Python number, True, False, None; anything else is the text itself."""
    words = {"True": True, "true": True, "False": False, "false": False, "None": None, "none": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))
