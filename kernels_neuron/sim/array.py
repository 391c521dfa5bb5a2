"""Arithmetic on tiles: widening to float32, rounding into a dtype; the fastest library for each is chosen here."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from kernels_neuron.dtypes import ROWS, DType

if TYPE_CHECKING:
    import torch

_F32 = np.dtype(np.float32)
_F16 = np.dtype(np.float16)
_BF16 = np.dtype(ml_dtypes.bfloat16)
_E4M3 = np.dtype(ml_dtypes.float8_e4m3)
_BYTES = np.arange(256, dtype=np.uint8)
# what each byte of an 8-bit format stands for: looking it up is six times faster than ml_dtypes' cast
_WIDE = {
    np.dtype(kind): _BYTES.view(kind).astype(np.float32)
    for kind in (ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
}
# torch rounds to float8_e4m3fn, whose bytes are those of float8_e4m3 up to 240; above are inf and NaN
_TO_E4M3 = np.where(_BYTES & 0x7F == 0x7F, 0x7C, np.minimum(_BYTES & 0x7F, 0x78)).astype(np.uint8) | (_BYTES & 0x80)


def f32(array: np.ndarray) -> np.ndarray:
    """`array` widened to float32, as an engine reads an operand. May be a view: callers do not write into it."""
    if array.dtype == _F32:
        return array
    wide = _WIDE.get(array.dtype)
    if wide is not None:
        return np.take(wide, array.view(np.uint8))
    if array.dtype == _F16:
        return _tensor(array).float().numpy()  # ten times faster than numpy
    return array.astype(np.float32)


def widen(array: np.ndarray, target: np.ndarray) -> None:
    """Put `array`, widened to float32, into `target`."""
    # ml_dtypes is quick on bfloat16 alone
    target[...] = array if array.dtype == _BF16 else f32(array)


def store(target: np.ndarray, values: np.ndarray, dtype: DType, fp8_overflow: Any = "format") -> None:
    """Round float32 `values` into `target`, whose NKI dtype is `dtype`, as an engine writes a result.

    Round to nearest even; integers saturate and NaN becomes 0; floats beyond the range become inf.
    """
    values = values.reshape(target.shape)
    if target.dtype == _F32:
        target[...] = round_tf32(values) if dtype == "tfloat32" else values
    elif target.dtype == _BF16:
        # ml_dtypes rounds to nearest even; torch's cast is faster but wakes a thread pool for a single tile
        target[...] = values
    elif ROWS[dtype].kind == "bool":
        target[...] = values != 0
    elif ROWS[dtype].is_integer:
        target[...] = saturate(values, target.dtype)
    else:
        if fp8_overflow == "saturate" and target.dtype.itemsize == 1:
            largest = ROWS[dtype].largest
            values = np.clip(values, -largest, largest)
        _round(target, values)


def _round(target: np.ndarray, values: np.ndarray) -> None:
    """Round `values` into a float format of 8 or 16 bits; beyond its range as the format says."""
    if values.dtype == _F32 and target.dtype == _F16:
        target[...] = _tensor(values).half().numpy()
    elif values.dtype == _F32 and target.dtype == _E4M3:
        import torch

        near = _tensor(np.clip(values, -448, 448)).to(torch.float8_e4m3fn)
        target.view(np.uint8)[...] = np.take(_TO_E4M3, near.view(torch.uint8).numpy())
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            target[...] = values.astype(target.dtype)


def _tensor(array: np.ndarray) -> "torch.Tensor":
    """`array` for torch: the same memory where torch takes it, a copy where it is strided or read-only."""
    import torch

    return torch.from_numpy(array if array.flags.c_contiguous and array.flags.writeable else array.copy())


def saturate(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float32 `values` as integers: nearest even, clipped to the range, NaN as 0."""
    info = np.iinfo(dtype)
    wide = np.nan_to_num(np.rint(values.astype(np.float64)), nan=0.0, posinf=info.max, neginf=info.min)
    return np.clip(wide, info.min, info.max).astype(dtype)


def round_tf32(values: np.ndarray) -> np.ndarray:
    """float32 `values` with the mantissa rounded to 10 bits, nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 13) & 1) + np.uint32(0xFFF))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values)


def matmul(stationary: np.ndarray, moving: np.ndarray, matmul_sum: Any) -> np.ndarray:
    """stationary.T @ moving over float32 [K, M] and [K, N]; sums in float32 or in float64 with one rounding."""
    if matmul_sum == "float64":
        return (stationary.T.astype(np.float64) @ moving.astype(np.float64)).astype(np.float32)
    return stationary.T @ moving


def transposed(values: np.ndarray) -> np.ndarray:
    """values.T of a [rows, columns] array, as a view of a copy that is quick to read column by column."""
    rows, columns = values.shape
    # rows a power of two apart share few places of the cache: four times slower for a tile of 128 by 128 float32
    apart = np.empty((rows, columns + 64 // values.itemsize), values.dtype)[:, :columns]
    apart[...] = values
    return apart.T


def torch_unary(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """The torch function `name` over float32 arrays; torch is several times faster than numpy on exp, tanh and erf."""

    def call(values: np.ndarray) -> np.ndarray:
        import torch

        return getattr(torch, name)(_tensor(values)).numpy()

    return call
