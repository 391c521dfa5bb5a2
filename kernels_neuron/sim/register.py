"""VirtualRegister: a 32-bit register of the sequencers, which dynamic addresses and loops read."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from .context import core_or_none, current_core
from .locate import fail
from .versions import api_version

REGISTER_DTYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float32")
# from this version on kernels run as Python, and Python cannot branch on what only the device knows
_NO_PYTHON_BRANCHES = (0, 7)


class VirtualRegister:
    """A register. Its value is known to the run, never to the kernel's Python; None in a price-only run.

    frozen  the induction register of a loop, which the kernel may read and not write
    """

    __slots__ = ("frozen", "value")

    def __init__(self, state: Any = None, frozen: bool = False) -> None:
        if state is not None and not isinstance(state, (int, float, np.integer, np.floating)):
            fail("register-value", f"a register holds a 32-bit number, got {state!r}")
        if (core := core_or_none()) is not None:
            core.runs_once()
        self.value: int | float | None = _wrapped(state)
        self.frozen = frozen

    def __repr__(self) -> str:
        return "a register"

    def __str__(self) -> str:
        return f"{self!r} holding {'nothing' if self.value is None else self.value}"

    def __bool__(self) -> bool:
        core = current_core("a register")
        if api_version(core.settings.nki) >= _NO_PYTHON_BRANCHES:
            self._refuse_python("a branch or while condition")
        return bool(known(self, "the condition of a loop"))

    def _refuse_python(self, use: str = "Python arithmetic") -> NoReturn:
        fail(
            "register-in-python",
            f"{use} reads a register, whose value is known only on the device",
            "use nl.fori_loop or nl.while_loop, and compute in SBUF before nisa.register_load",
        )

    def __index__(self) -> int:
        self._refuse_python("a Python integer")

    def _refuse_operand(self, other: Any = None) -> NoReturn:
        self._refuse_python()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = _refuse_operand
    __neg__ = __lt__ = __le__ = __gt__ = __ge__ = __int__ = __float__ = _refuse_operand

    def write(self, value: int | float | None) -> None:
        """Take `value`; refused for the induction register of a loop."""
        if self.frozen:
            fail("register-frozen", "the induction register of a loop cannot be written", "move it to another register")
        self.value = _wrapped(value)


def _wrapped(value: Any) -> int | float | None:
    """`value` in 32 bits: integers keep their sign where they fit, else the low bits count."""
    if value is None or isinstance(value, (float, np.floating)):
        return None if value is None else float(np.float32(value))
    number = int(value)
    return number if -(2**31) <= number < 2**32 else number & 0xFFFFFFFF


def known(register: VirtualRegister | int, what: str) -> int:
    """The integer in `register`, or `register` itself; refused where a price-only run does not know it."""
    if not isinstance(register, VirtualRegister):
        return int(register)
    if register.value is None:
        core = current_core("a register")
        if core.settings.execute:
            fail("register-unset", f"{what} reads a register that nothing has written", "use nisa.register_load first")
        fail("register-unknown", f"{what} is read from memory, which a price-only run has none of", "run with data")
    return int(register.value)
