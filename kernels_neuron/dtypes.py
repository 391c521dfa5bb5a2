"""The one table of dtype names, and the only two conversions between torch tensors and numpy arrays."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from .errors import UnsupportedDtype

if TYPE_CHECKING:
    import torch


class DType(str):
    """An NKI dtype. It is a `str`, as the NKI reference says, so `x.dtype == "float32"` holds."""

    __slots__ = ()

    @property
    def row(self) -> "Row":
        return ROWS[self]

    @property
    def itemsize(self) -> int:
        return ROWS[self].itemsize

    @property
    def numpy(self) -> np.dtype:
        return ROWS[self].numpy

    def __repr__(self) -> str:
        return f"nl.{self!s}"


@dataclass(frozen=True)
class Row:
    """One dtype: its NKI name, numpy dtype, torch name (None: torch has none), kind and largest finite value."""

    name: DType
    numpy: np.dtype
    torch: str | None
    kind: str  # "float", "int", "uint", "bool" or "packed"
    largest: float

    @functools.cached_property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @functools.cached_property
    def is_float(self) -> bool:
        return self.kind == "float"

    @functools.cached_property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint", "bool")


def _row(name: str, numpy: Any, torch: str | None, kind: str, largest: float) -> Row:
    return Row(DType(name), np.dtype(numpy), torch, kind, largest)


# largest: NKI reference, data types; float8_e4m3 is the IEEE-style format whose top exponent is inf and NaN
_TABLE = [
    _row("float32", np.float32, "float32", "float", float(np.finfo(np.float32).max)),
    _row("tfloat32", np.float32, None, "float", float(np.finfo(np.float32).max)),
    _row("bfloat16", ml_dtypes.bfloat16, "bfloat16", "float", float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)),
    _row("float16", np.float16, "float16", "float", 65504.0),
    _row("float8_e4m3", ml_dtypes.float8_e4m3, None, "float", 240.0),
    _row("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "float8_e4m3fn", "float", 448.0),
    _row("float8_e5m2", ml_dtypes.float8_e5m2, "float8_e5m2", "float", 57344.0),
    _row("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, "float8_e8m0fnu", "float", 2.0**127),
    _row("int8", np.int8, "int8", "int", 127),
    _row("int16", np.int16, "int16", "int", 2**15 - 1),
    _row("int32", np.int32, "int32", "int", 2**31 - 1),
    _row("uint8", np.uint8, "uint8", "uint", 255),
    _row("uint16", np.uint16, "uint16", "uint", 2**16 - 1),
    _row("uint32", np.uint32, "uint32", "uint", 2**32 - 1),
    _row("bool_", np.bool_, "bool", "bool", 1),
    _row("float8_e5m2_x4", np.uint32, None, "packed", 57344.0),
    _row("float8_e4m3fn_x4", np.uint32, None, "packed", 448.0),
    _row("float4_e2m1fn_x4", np.uint16, None, "packed", 6.0),
]
ROWS: dict[str, Row] = {row.name: row for row in _TABLE}
_BY_NUMPY = {row.numpy: row.name for row in reversed(_TABLE) if row.kind != "packed" and row.name != "tfloat32"}
_BY_TORCH = {row.torch: row.name for row in _TABLE if row.torch}


def dtype(value: Any) -> DType:
    """The NKI dtype of `value`: an NKI dtype, its name, a numpy or ml_dtypes type, or a torch dtype.

    Refuses anything else, 64-bit types among them: a NeuronCore has none that NKI can name.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        name = {"bool": "bool_"}.get(value, value)
        if name in ROWS:
            return ROWS[name].name
    text = str(value)
    if text.startswith("torch.") and text[6:] in _BY_TORCH:
        return _BY_TORCH[text[6:]]
    try:
        found = _BY_NUMPY.get(np.dtype(value))
    except TypeError:
        found = None
    if found is None:
        raise UnsupportedDtype(f"NKI has no dtype for {value}", hint=f"use one of {', '.join(ROWS)}")
    return found


# dtypes that numpy knows only through ml_dtypes travel between torch and numpy as integers of the same width
_CARRIER = {1: "uint8", 2: "int16", 4: "int32"}


def as_array(tensor: "torch.Tensor") -> np.ndarray:
    """The memory of a torch CPU tensor as a numpy array of the same strides; no copy.

    int64 becomes int32 (a copy) when every value fits, and is refused otherwise: NKI has no 64-bit integer.
    """
    import torch

    tensor = tensor.detach()
    if tensor.dtype == torch.int64:
        narrow = tensor.to(torch.int32)
        if not torch.equal(narrow.to(torch.int64), tensor):
            raise UnsupportedDtype("an int64 tensor holds values beyond int32, and NKI has no 64-bit integer")
        return narrow.numpy()
    name = dtype(tensor.dtype)
    row = ROWS[name]
    if row.numpy.isbuiltin == 1:
        return tensor.numpy()
    return tensor.view(getattr(torch, _CARRIER[row.itemsize])).numpy().view(row.numpy)


def as_tensor(array: np.ndarray) -> "torch.Tensor":
    """The memory of a numpy array as a torch CPU tensor of the same strides; no copy."""
    import torch

    name = dtype(array.dtype)
    row = ROWS[name]
    if row.torch is None:
        raise UnsupportedDtype(
            f"torch has no dtype for {name}", hint="copy the tile to float32 or bfloat16 in the kernel"
        )
    if row.numpy.isbuiltin == 1:
        return torch.from_numpy(array)
    carrier = torch.from_numpy(array.view(np.dtype(_CARRIER[row.itemsize])))
    return carrier.view(getattr(torch, row.torch))
