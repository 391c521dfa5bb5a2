"""Where in the user's source the simulator was called from."""

import sys
from pathlib import Path
from typing import NoReturn

from kernels_neuron.errors import KernelError

_HERE = str(Path(__file__).parent)
_IS_OURS: dict[str, bool] = {}


def caller() -> tuple[str, int]:
    """(file, line) of the nearest frame that is not part of the simulator."""
    frame = sys._getframe(1)
    file = frame.f_code.co_filename
    while frame.f_back is not None:
        ours = _IS_OURS.get(file)
        if ours is None:
            ours = _IS_OURS[file] = file.startswith(_HERE)
        if not ours:
            break
        frame = frame.f_back
        file = frame.f_code.co_filename
    return file, frame.f_lineno


def fail(rule: str, message: str, hint: str | None = None) -> NoReturn:
    """Raise KernelError for `rule`, located at the kernel's line."""
    file, line = caller()
    raise KernelError(message, rule=rule, hint=hint, where=f"{file.rsplit('/', 1)[-1]}:{line}")
