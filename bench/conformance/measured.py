"""The vendor's comparison, kept as it is, and the per-element error recorded beside it."""

from collections.abc import Callable
from typing import Any

import numpy as np

PIECE = 1 << 16  # elements compared at a time


def distances(result: Any, golden: Any, rtol: float, atol: float) -> dict[str, float]:
    """How far `result` is from `golden`, under two rules. A ratio of at most 1 is within the rule.

    vendor   largest |a - b| over atol + rtol * max|b|: their rule, one tolerance for all elements
    element  largest |a - b| / (atol + rtol * |b|): the same numbers, each element by itself
    beyond   share of the elements outside the per-element rule
    """
    a, b = np.asarray(result), np.asarray(golden)
    if a.shape != b.shape or not b.size:
        return {"vendor": float("inf"), "element": float("inf"), "beyond": 1.0}
    a, b = a.reshape(-1), b.reshape(-1)
    # piece by piece: outputs are caches of gigabytes, equal but for a few rows
    pieces = [slice(start, start + PIECE) for start in range(0, b.size, PIECE)]
    largest = max(
        float(np.max(np.abs(b[piece], dtype=np.float64), where=np.isfinite(b[piece]), initial=0.0)) for piece in pieces
    )
    vendor = element = 0.0
    beyond = 0
    for piece in pieces:
        if np.array_equal(a[piece], b[piece]):
            continue
        near, exact = a[piece].astype(np.float64), b[piece].astype(np.float64)
        with np.errstate(all="ignore"):
            difference = np.where(near == exact, 0.0, np.abs(near - exact))
            # 0/0 is agreement; a NaN on one side only is the worst disagreement
            ratio = np.where(difference == 0, 0.0, difference / (atol + rtol * np.abs(exact)))
            of_largest = np.where(difference == 0, 0.0, difference / (atol + rtol * largest))
        vendor = max(vendor, float(np.max(np.nan_to_num(of_largest, nan=np.inf))))
        element = max(element, float(np.max(np.nan_to_num(ratio, nan=np.inf))))
        beyond += int(np.count_nonzero(~(ratio <= 1)))
    return {"vendor": _finite(vendor), "element": _finite(element), "beyond": beyond / b.size}


def _finite(value: float) -> float:
    return float(f"{min(float(value), 1e30):.3g}")


def recording(compare: Callable[..., Any], record: Callable[[dict[str, float]], None]) -> Callable[..., Any]:
    """`compare(a, b, rtol, atol, ...)` unchanged, its operands measured on the way."""

    def call(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, **options: Any) -> Any:
        record({"rtol": rtol, "atol": atol, **distances(a, b, rtol, atol)})
        return compare(a, b, rtol, atol, **options)

    return call
