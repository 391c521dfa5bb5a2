"""How close a kernel has to be to its reference: the project's rule per dtype and kind, and the comparison itself."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .tables import Table

if TYPE_CHECKING:
    import torch

KINDS = ("elementwise", "matmul", "attention")


@dataclass(frozen=True)
class Rule:
    """allowed = factor * (K + 2) * 2**-24 * (|A| @ |B|)  +  rtol * |ref|  +  atol, times max |ref| if `atol_of_max`.

    The first term exists only where `sums` is set, which float32 matrix products do.
    """

    rtol: float
    atol: float
    atol_of_max: bool = False
    sums: bool = False
    factor: float = 1.0

    def __str__(self) -> str:
        parts = [f"{self.factor:g} * (K+2) * 2^-24 * |A|@|B|"] if self.sums else []
        parts += [f"rtol {self.rtol:.2g}"] if self.rtol else []
        parts += [f"atol {self.atol:.2g}{' * max|ref|' if self.atol_of_max else ''}"] if self.atol else []
        return " + ".join(parts).removeprefix("1 * ") or "exact"


_HALF = {
    "bfloat16": Rule(rtol=2**-7, atol=2**-8, atol_of_max=True),
    "float16": Rule(rtol=2**-10, atol=2**-11, atol_of_max=True),
}
# float32 sums of K products are off by at most (K+2) roundings of 2^-24 each, in any order
DEFAULTS: dict[str, dict[str, Rule]] = {
    "elementwise": {"float32": Rule(rtol=1e-5, atol=1e-6), **_HALF},
    "matmul": {"float32": Rule(rtol=0.0, atol=0.0, sums=True), **_HALF},
    "attention": {"float32": Rule(rtol=0.0, atol=2e-5), **_HALF},
}


@dataclass(frozen=True)
class Tolerance:
    """The rule of one kernel and dtype; `loose` is the reason a spec gives for going beyond the default, or None."""

    rule: Rule
    loose: str | None = None


def read_tolerance(table: Table, kind: str, dtypes: tuple[str, ...]) -> dict[str, Tolerance]:
    """The tolerances of a spec, keyed by dtype: the defaults of `kind`, with what its [tolerance] table changes.

    A looser value needs a `reason`; a tighter one needs none.
    """
    found = {dtype: Tolerance(DEFAULTS[kind][dtype]) for dtype in dtypes}
    for dtype in table.data:
        if table.one_of(dtype, dtype, dtypes, "dtype"):
            found[dtype] = _read_rule(table.table(dtype), DEFAULTS[kind][dtype])
        else:
            table.take(dtype, dict)
    return found


def _read_rule(row: Table, default: Rule) -> Tolerance:
    values = {key: row.take(key, float, getattr(default, key)) for key in ("rtol", "atol", "factor")}
    reason = row.take("reason", str)
    row.done()
    for key, value in values.items():
        if not 0 <= value < 1e3:
            row.problem(key, f"has to be at least 0 and below 1000, got {value:g}")
    if values["factor"] != 1.0 and not default.sums:
        row.problem("factor", "scales the bound of float32 matrix products only; give rtol and atol here")
    looser = [key for key, value in values.items() if value > getattr(default, key)]
    if looser and not reason:
        row.problem(looser[0], f"{values[looser[0]]:g} is looser than the default, and loosening needs a reason")
    return Tolerance(replace(default, **values), reason if looser else None)


def allowed_error(rule: Rule, ref: "torch.Tensor", magnitude: "torch.Tensor | None", terms: int) -> "torch.Tensor":
    """The error `rule` allows at each element of the float64 reference `ref`.

    magnitude  |A| @ |B|, shaped as ref; read only where the rule sums
    terms      K, the number of products in a sum
    """
    import torch

    size = ref.abs().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    largest = size.max() if size.numel() else torch.zeros(())
    allowed = rule.rtol * size + rule.atol * (float(largest) if rule.atol_of_max else 1.0)
    if rule.sums and magnitude is not None:
        allowed = allowed + rule.factor * (terms + 2) * 2**-24 * magnitude
    return allowed


@dataclass(frozen=True)
class Comparison:
    """An output held against its reference. `error` is max |y - ref| / allowed, so at most 1 is fine.

    `problem` says in words what an error of inf stands for: another shape, a NaN, inf or zero out of place.
    """

    error: float
    rel_l2: float
    max_abs: float
    problem: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the output counts as equal to its reference."""
        return self.problem is None and self.error <= 1.0


_FAR = float("inf")


def compare(out: "torch.Tensor", ref: "torch.Tensor", allowed: "torch.Tensor") -> Comparison:
    """Hold `out` against the float64 `ref`, element by element.

    NaN and inf have to stand where the reference, rounded to the dtype of `out`, has them. A row (last axis) that is
    zero throughout in the reference has to be exactly zero: it stands for nothing to add up, as in a row without keys.
    """
    import torch

    if out.shape != ref.shape:
        return Comparison(_FAR, _FAR, _FAR, f"shape {list(out.shape)}, the reference has {list(ref.shape)}")
    if out.numel() == 0:
        return Comparison(0.0, 0.0, 0.0)
    y = out.detach().to(torch.float64)
    rounded = ref.to(out.dtype).to(torch.float64)
    finite = torch.isfinite(rounded)
    diff = torch.where(finite, (y - ref).abs(), 0.0)
    ratio = torch.where(diff == 0, 0.0, diff / allowed)
    norm = torch.where(finite, ref, 0.0).norm()
    error, max_abs = float(ratio.max()), float(diff.max())
    rel_l2 = float(diff.norm() / norm) if norm > 0 else (0.0 if max_abs == 0 else _FAR)
    problem = _misplaced(y, rounded, ref)
    if error != error or problem:
        error = _FAR
    return Comparison(error, rel_l2, max_abs, problem)


def _misplaced(y: "torch.Tensor", rounded: "torch.Tensor", ref: "torch.Tensor") -> str | None:
    import torch

    infinite = torch.isinf(rounded)
    zero = torch.zeros_like(infinite) if ref.ndim == 0 else (ref == 0).all(-1, keepdim=True).expand(ref.shape)
    wrong = {
        "NaN": torch.isnan(y) != torch.isnan(rounded),
        "inf": (torch.isinf(y) | infinite) & (y != rounded),
        "zero": zero & (y != 0),
    }
    for noun, places in wrong.items():
        if bool(places.any()):
            at = [int(i) for i in places.nonzero()[0]]
            got, expected = float(y[tuple(at)]), float(rounded[tuple(at)])
            count = int(places.sum())
            return f"{noun} out of place at {at} and {count - 1} more: {got:g}, the reference has {expected:g}"
    return None
