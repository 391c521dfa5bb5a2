"""Views that leave their allocation: they may be made, and not be used.

Public kernels describe the operand of a last, incomplete tile before they decide to skip it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from kernels_neuron.dtypes import DType

from .locate import fail
from .memory import Storage
from .tensor import NkiTensor
from .trace import Region


class OutsideTensor(NkiTensor):
    """A view some of whose bytes do not exist. `reason` says which call made it; any use is refused with it."""

    __slots__ = ("reason",)

    def __init__(
        self, storage: Storage, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: DType, reason: str
    ) -> None:
        super().__init__(storage, shape, strides, offset, dtype)
        self.reason = reason

    def _refuse(self) -> NoReturn:
        fail("out-of-bounds", self.reason)

    def _like(self, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: DType) -> NkiTensor:
        return OutsideTensor(self.storage, shape, strides, offset, dtype, self.reason)

    def array(self) -> np.ndarray:
        self._refuse()

    def regions(self) -> tuple[Region]:
        self._refuse()

    def view(self, dtype: Any) -> NkiTensor:
        self._refuse()

    reinterpret_cast = view

    def ap(self, *arguments: Any, **options: Any) -> NkiTensor:
        self._refuse()
