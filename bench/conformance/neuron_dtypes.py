"""The few functions of the vendor's `neuron_dtypes` package that the library's tests and references call.

stand_ins.py registers it as `neuron_dtypes` and as `neuronxcc.starfish.support.dtype`. The packed x4 types, for which
numpy has no dtype, are one-field records: they keep their name through copies and refuse arithmetic, as theirs do.
"""

from typing import Any

import ml_dtypes
import numpy as np

bfloat16 = ml_dtypes.bfloat16
float8_e4m3 = ml_dtypes.float8_e4m3
float8_e4m3fn = ml_dtypes.float8_e4m3fn
float8_e5m2 = ml_dtypes.float8_e5m2
float8_e8m0fnu = ml_dtypes.float8_e8m0fnu
float8_e5m2_x4 = np.dtype([("float8_e5m2_x4", np.uint32)])
float8_e4m3fn_x4 = np.dtype([("float8_e4m3fn_x4", np.uint32)])
float4_e2m1fn_x4 = np.dtype([("float4_e2m1fn_x4", np.uint16)])

_LANE = {
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float4_e2m1fn_x4": ml_dtypes.float4_e2m1fn,
}
_PACKED = {"float8_e5m2_x4": float8_e5m2_x4, "float8_e4m3fn_x4": float8_e4m3fn_x4, "float4_e2m1fn_x4": float4_e2m1fn_x4}


def _as_dtype(dtype: Any) -> np.dtype:
    name = str(dtype)
    if name in _PACKED:
        return _PACKED[name]
    return np.dtype("float32" if name == "tfloat32" else dtype)


def _packed_name(dtype: np.dtype) -> str | None:
    return dtype.names[0] if dtype.names and dtype.names[0] in _PACKED else None


def static_cast(array: Any, dtype: Any) -> np.ndarray:
    """`array` rounded to `dtype`: to nearest even, out of range as the format says; x4 types pack four neighbours."""
    array = np.asarray(array)
    target = _as_dtype(dtype)
    source_name, target_name = _packed_name(array.dtype), _packed_name(target)
    if source_name == target_name and source_name is not None:
        return array.copy()
    if source_name is not None:
        return _unpack(array, source_name).astype(target)
    if target_name is not None:
        return _pack(array, target_name)
    with np.errstate(all="ignore"):
        return array.astype(target)


def _pack(array: np.ndarray, name: str) -> np.ndarray:
    lanes = np.ascontiguousarray(array.astype(np.float32).astype(_LANE[name]))
    words = _PACKED[name]
    if name == "float4_e2m1fn_x4":
        nibbles = lanes.view(np.uint8).astype(np.uint16).reshape(*lanes.shape[:-1], -1, 4) & 0xF
        packed = nibbles[..., 0] | nibbles[..., 1] << 4 | nibbles[..., 2] << 8 | nibbles[..., 3] << 12
        return np.ascontiguousarray(packed.astype(np.uint16)).view(words)
    return lanes.view(np.uint32).view(words)


def _unpack(array: np.ndarray, name: str) -> np.ndarray:
    raw = np.ascontiguousarray(array)
    if name == "float4_e2m1fn_x4":
        words = raw.view(np.uint16)
        nibbles = np.stack([words >> shift & 0xF for shift in (0, 4, 8, 12)], axis=-1).astype(np.uint8)
        return nibbles.reshape(*words.shape[:-1], -1).view(_LANE[name]).astype(np.float32)
    return raw.view(np.uint32).view(_LANE[name]).astype(np.float32)


def is_float_type(dtype: Any) -> bool:
    """Whether `dtype` is a floating-point type, the small ones included."""
    dtype = _as_dtype(dtype)
    return _packed_name(dtype) is not None or dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def sizeinbytes(dtype: Any) -> int:
    """Bytes of one element."""
    return _as_dtype(dtype).itemsize


def finfo(dtype: Any) -> Any:
    """The limits of a floating-point type."""
    return ml_dtypes.finfo(_as_dtype(dtype))
