"""Python operators on tiles: each is the nl function of that name. `==` stays Python's, so `tile != None` works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _binary(name: str, swapped: bool = False) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        from .isa.ops import OPS

        return OPS[name](other, self) if swapped else OPS[name](self, other)

    operator.__doc__ = f"nl.{name}{', the other way round' if swapped else ''}: a new SBUF tile."
    return operator


class Arithmetic:
    """The operators of NkiTensor."""

    __slots__ = ()

    __add__, __radd__ = _binary("add"), _binary("add", swapped=True)
    __sub__, __rsub__ = _binary("subtract"), _binary("subtract", swapped=True)
    __mul__, __rmul__ = _binary("multiply"), _binary("multiply", swapped=True)
    __pow__ = _binary("power")
    __and__, __or__, __xor__ = _binary("bitwise_and"), _binary("bitwise_or"), _binary("bitwise_xor")
    __lshift__, __rshift__ = _binary("left_shift"), _binary("right_shift")
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")

    def __neg__(self) -> Any:
        from .isa.ops import OPS

        return OPS["multiply"](self, -1.0)

    def __invert__(self) -> Any:
        from .isa.ops import OPS

        return OPS["invert"](self)
