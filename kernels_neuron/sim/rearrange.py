"""Views by named dims: the pattern pair of `NkiTensor.rearrange`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .locate import fail

if TYPE_CHECKING:
    from .tensor import NkiTensor

Pattern = Sequence[str | Sequence[str]]


def rearrange(tensor: NkiTensor, source: Pattern, target: Pattern, sizes: Mapping[str, int]) -> NkiTensor:
    """`tensor` with the dims of `source` split into names, put in the order of `target`, and merged as it says."""
    view: Any = tensor
    names = _flat(source)
    if len(source) != tensor.ndim or len(set(names)) != len(names) or sorted(names) != sorted(_flat(target)):
        fail(
            "rearrange",
            f"rearrange of {tensor!r} takes {tensor.ndim} source dims and the same names in both, "
            f"got {source} and {target}",
        )
    dim = 0
    for group in source:
        if not isinstance(group, str):
            view = view.reshape_dim(dim, _split(view.shape[dim], tuple(group), sizes, tensor))
        dim += 1 if isinstance(group, str) else len(group)
    view = view.permute([names.index(name) for name in _flat(target)])
    for position, group in enumerate(target):
        if not isinstance(group, str) and len(group) > 1:
            view = view.flatten_dims(position, position + len(group) - 1)
    return view


def _flat(pattern: Pattern) -> list[str]:
    return [name for group in pattern for name in ([group] if isinstance(group, str) else group)]


def _split(size: int, names: tuple[str, ...], sizes: Mapping[str, int], tensor: NkiTensor) -> list[int]:
    known = [sizes.get(name, -1) for name in names]
    given = [count for count in known if count != -1]
    if min(given, default=1) < 1 or len(known) - len(given) > 1 or size % math.prod(given):
        fail("rearrange", f"rearrange of {tensor!r} needs the sizes of all but one of {names}, dividing {size}")
    return known
