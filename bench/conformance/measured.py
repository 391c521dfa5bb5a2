"""The vendor's comparison, kept as it is, and the per-element error recorded beside it."""

from collections.abc import Callable
from typing import Any

import numpy as np


def distances(result: Any, golden: Any, rtol: float, atol: float) -> dict[str, float]:
    """How far `result` is from `golden`, under two rules. A ratio of at most 1 is within the rule.

    vendor   largest |a - b| over atol + rtol * max|b|: their rule, one tolerance for all elements
    element  largest |a - b| / (atol + rtol * |b|): the same numbers, each element by itself
    beyond   share of the elements outside the per-element rule
    """
    a, b = np.asarray(result, np.float64), np.asarray(golden, np.float64)
    if a.shape != b.shape or not b.size:
        return {"vendor": float("inf"), "element": float("inf"), "beyond": 1.0}
    with np.errstate(all="ignore"):
        difference = np.where(a == b, 0.0, np.abs(a - b))
        largest = np.max(np.abs(b), where=np.isfinite(b), initial=0.0)
        vendor, element = difference / (atol + rtol * largest), difference / (atol + rtol * np.abs(b))
    # 0/0 is agreement; a NaN on one side only is the worst disagreement
    vendor, element = (np.where(difference == 0, 0.0, ratio) for ratio in (vendor, element))
    return {
        "vendor": _finite(np.max(np.nan_to_num(vendor, nan=np.inf))),
        "element": _finite(np.max(np.nan_to_num(element, nan=np.inf))),
        "beyond": float(np.mean(~(element <= 1))),
    }


def _finite(value: float) -> float:
    return float(f"{min(float(value), 1e30):.3g}")


def recording(compare: Callable[..., Any], record: Callable[[dict[str, float]], None]) -> Callable[..., Any]:
    """`compare(a, b, rtol, atol, ...)` unchanged, its operands measured on the way."""

    def call(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, **options: Any) -> Any:
        record({"rtol": rtol, "atol": atol, **distances(a, b, rtol, atol)})
        return compare(a, b, rtol, atol, **options)

    return call
