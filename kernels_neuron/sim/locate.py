"""Where in the user's source the simulator was called from."""

import linecache
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kernels_neuron.errors import KernelError

_HERE = str(Path(__file__).parent)
_OURS: set[str] = set()


def calling_frame(beyond: int = 1) -> FrameType:
    """The nearest frame that is not part of the simulator; the first `beyond` are known to be."""
    frame = sys._getframe(beyond)
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if file not in _OURS:
            if not file.startswith(_HERE):
                break
            _OURS.add(file)
        frame = frame.f_back
    return frame


def caller() -> tuple[str, int]:
    """(file, line) of the nearest frame that is not part of the simulator."""
    frame = calling_frame()
    return frame.f_code.co_filename, frame.f_lineno


def is_ours(frame: FrameType) -> bool:
    """Whether a frame is part of the simulator."""
    return frame.f_code.co_filename.startswith(_HERE)


def fail(rule: str, message: str, hint: str | None = None, kind: type[KernelError] = KernelError) -> NoReturn:
    """Raise KernelError, or a `kind` of it, for `rule`, located at the kernel's line."""
    file, line = caller()
    where = f"{file.rsplit('/', 1)[-1]}:{line}"
    raise kind(message, rule=rule, hint=hint, where=where, source=source_line(file, line))


def source_line(file: str, line: int) -> str | None:
    """The text of a line, None where the file cannot be read."""
    return linecache.getline(file, line).strip() or None
