"""GpSimdE instructions: affine patterns over the index of an element."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernels_neuron.dtypes import ROWS
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor

from .ops import OPS, Op
from .prices import PRICES, facts
from .rules import SBUF, require_op, require_same_extent, require_scalar, require_tile
from .select import COMPARISONS, number_as
from .table import instruction
from .vector import write

_MAX_PATTERN_DIMS = 4


def _require_pattern(name: str, pattern: Any, tile: NkiTensor, **integers: Any) -> None:
    """1 to 4 [step, count] pairs of integers that cover the free size of `tile`."""
    try:
        pairs = [(step, count) for step, count in pattern]
    except (TypeError, ValueError):
        fail("pattern", f"{name} takes [[step, count], ...] as pattern, got {pattern!r}")
    if not 1 <= len(pairs) <= _MAX_PATTERN_DIMS:
        fail("pattern", f"{name} takes a pattern of 1 to {_MAX_PATTERN_DIMS} pairs, got {len(pairs)}")
    integers |= {f"pattern[{i}][{j}]": value for i, pair in enumerate(pairs) for j, value in enumerate(pair)}
    for label, value in integers.items():
        if not isinstance(value, (int, np.integer)):
            fail(
                "not-simulated" if isinstance(value, NkiTensor) else "pattern",
                f"{name} takes integers known while tracing, {label} is {value!r}",
            )
    covered = int(np.prod([count for _, count in pairs], dtype=np.int64))
    if covered != tile.free_size:
        fail(
            "pattern",
            f"{name} takes a pattern over the {tile.free_size} elements per partition of {tile!r}, got {covered}",
        )


def _affine(pattern: Sequence[Sequence[int]], offset: int, channel_multiplier: int, partitions: int) -> np.ndarray:
    """offset + p * channel_multiplier + sum of step * index, [P, N], in int32 arithmetic, which wraps."""
    values = np.zeros(1, np.int64)
    for step, count in pattern:
        values = (values[:, None] + step * np.arange(count, dtype=np.int64)).reshape(-1)
    values = offset + channel_multiplier * np.arange(partitions, dtype=np.int64)[:, None] + values[None]
    return values.astype(np.int32)


@instruction
def iota(
    core: NeuronCore,
    dst: NkiTensor,
    pattern: Sequence[Sequence[int]],
    offset: int = 0,
    channel_multiplier: int = 0,
    name: str | None = None,
) -> Iterator[Step]:
    """dst[p, i, j, ..] = offset + p * channel_multiplier + pattern[0][0] * i + .., computed in int32, then cast.

    Operands: dst in SBUF; pattern 1 to 4 pairs [step, count], outermost first; the counts multiply to dst's elements
    per partition.
    Engines: GpSimdE. Source: NKI ISA reference, iota.
    """
    require_tile("iota", "dst", dst, core, SBUF)
    _require_pattern("iota", pattern, dst, offset=offset, channel_multiplier=channel_multiplier)
    price = PRICES["iota"](core.arch, facts("gpsimd", dst))

    def effect() -> None:
        values = _affine(pattern, offset, channel_multiplier, dst.shape[0])
        if ROWS[dst.dtype].kind in ("int", "uint"):
            info = np.iinfo(dst.dtype.numpy)
            dst.target()[...] = np.clip(values.astype(np.int64), info.min, info.max).reshape(dst.shape)
        else:
            write(core, dst, values.astype(np.float32))

    yield Step("gpsimd", price, writes=(dst,), effect=effect)


@instruction
def affine_select(
    core: NeuronCore,
    dst: NkiTensor,
    pattern: Sequence[Sequence[int]],
    channel_multiplier: int,
    on_true_tile: NkiTensor,
    on_false_value: float,
    cmp_op: Op = OPS["equal"],
    offset: int = 0,
    name: str | None = None,
) -> Iterator[Step]:
    """v = offset + p * channel_multiplier + steps * indices; dst = on_true_tile if cmp_op(v, 0) else on_false_value.

    Operands: dst, on_true_tile in SBUF, one extent; on_false_value a number. v is int32; one dtype passes bit exact,
    others through float32.
    Engines: GpSimdE. Source: NKI ISA reference, affine_select.
    """
    require_tile("affine_select", "dst", dst, core, SBUF)
    require_tile("affine_select", "on_true_tile", on_true_tile, core, SBUF)
    require_same_extent("affine_select", dst=dst, on_true_tile=on_true_tile)
    _require_pattern("affine_select", pattern, dst, offset=offset, channel_multiplier=channel_multiplier)
    if isinstance(on_false_value, NkiTensor):
        fail("operand-type", f"affine_select takes a number as on_false_value, got {on_false_value!r}")
    require_scalar("affine_select", "on_false_value", on_false_value, dst.shape[0], core)
    if require_op("affine_select", "cmp_op", cmp_op).name not in (*COMPARISONS, "not_equal"):
        fail("op-kind", f"affine_select takes a comparison as cmp_op, got {cmp_op!r}")
    price = PRICES["affine_select"](core.arch, facts("gpsimd", dst, on_true_tile))

    def effect() -> None:
        assert cmp_op.alu is not None
        values = _affine(pattern, offset, channel_multiplier, dst.shape[0])
        dropped = (cmp_op.alu(values, np.int32(0)) == 0).reshape(dst.shape)
        if dst.dtype == on_true_tile.dtype:
            dst.target()[...] = on_true_tile.array().reshape(dst.shape)
        else:
            write(core, dst, on_true_tile.f32())
        dst.target()[dropped] = number_as(core, on_false_value, dst)

    yield Step("gpsimd", price, reads=(on_true_tile,), writes=(dst,), effect=effect)
