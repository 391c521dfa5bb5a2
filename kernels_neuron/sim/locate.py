"""Where in the user's source the simulator was called from."""

import sys
from pathlib import Path
from typing import NoReturn

from kernels_neuron.errors import KernelError

_HERE = str(Path(__file__).parent)


def caller() -> tuple[str, int]:
    """(file, line) of the nearest frame that is not part of the simulator."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def fail(rule: str, message: str, hint: str | None = None) -> NoReturn:
    """Raise KernelError for `rule`, located at the kernel's line."""
    file, line = caller()
    raise KernelError(message, rule=rule, hint=hint, where=f"{file.rsplit('/', 1)[-1]}:{line}")
