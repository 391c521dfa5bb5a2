"""TensorE instructions: matrix multiply into PSUM, and transposes (which VectorE also does in 32 by 32)."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kernels_neuron.sim import array
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.trace import Price

from .enums import engine as Engine
from .enums import matmul_perf_mode as PerfMode
from .prices import PRICES, facts, load_stationary, matmul, matmul_rows
from .rules import ON_CHIP, PSUM, SBUF, once_per_layout, require_dtype, require_enum, require_generation, require_tile
from .table import instruction

_FP8 = ("float8_e4m3", "float8_e5m2", "float8_e4m3fn")
_MATMUL_DTYPES = (*_FP8, "bfloat16", "float16", "tfloat32", "float32")
_WIDE = ("float32", "tfloat32")
_SIXTEEN_BIT = ("bfloat16", "float16")
VECTOR_TRANSPOSE_MAX = 32


@instruction
def nc_matmul(
    core: NeuronCore,
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: tuple[int, ...] = (),
    tile_size: tuple[int, ...] = (),
    perf_mode: PerfMode = PerfMode.none,
    name: str | None = None,
) -> Iterator[Step]:
    """dst[m, n] = or += sum over k of stationary[k, m] * moving[k, n], products and sums in float32.

    Operands: stationary [K, M] and moving [K, N] in SBUF, dst [M, N] in PSUM; K, M at most 128; N at most one PSUM bank
    (512 float32) before trn3. Free dims beyond two are read in order. double_row: [K, 2, M] and [K, 2, N] in fp8.
    accumulate: False overwrites, True adds to an earlier matmul's result, None overwrites at the first matmul into a
    region and adds afterwards, byte by byte where regions overlap in part. perf_mode may be a member's name, as a
    public kernel passes it.
    Source: NKI ISA reference, nc_matmul; architecture guides, PSUM.
    """
    if isinstance(perf_mode, str):
        perf_mode = PerfMode.__members__.get(perf_mode, perf_mode)
    plan = _matmul_plan(core, dst, stationary, moving, is_transpose, tile_position, tile_size, perf_mode)
    adds = accumulation(core, dst, accumulate)

    def effect() -> None:
        if plan.plain and isinstance(adds, bool) and core.switches["matmul_sum"] == "float32":
            core.products.add(dst, adds, stationary, moving)
        else:
            accumulate_into(core, dst, _product(core, stationary, moving, is_transpose, perf_mode), adds)

    load = Step("tensor", plan.load, reads=(stationary,))
    if plan.passes > 1:
        # the data passes more than once and has its effect in the end
        more = Step("tensor", plan.product, reads=(moving,), writes=(dst,), matmul=True)
        for _ in range(plan.passes - 1):
            yield load
            yield more
    yield load
    yield Step("tensor", plan.product, reads=(moving,), writes=(dst,), effect=effect, macs=plan.macs, matmul=True)


class _Plan(NamedTuple):
    """How often a matmul passes its rows, what a pass costs, and the multiply-accumulates of all.

    plain  a sum of products in float32: neither a transpose nor two rows at once, nor rounded into a narrower dtype
    """

    passes: int
    load: Price
    product: Price
    macs: int
    plain: bool


@once_per_layout
def _matmul_plan(
    core: NeuronCore,
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    is_transpose: bool,
    tile_position: tuple[int, ...],
    tile_size: tuple[int, ...],
    perf_mode: PerfMode,
) -> _Plan:
    for operand, tensor, allowed in (("dst", dst, PSUM), ("stationary", stationary, SBUF), ("moving", moving, SBUF)):
        require_tile("nc_matmul", operand, tensor, core, allowed)
    require_enum("nc_matmul", "perf_mode", perf_mode, PerfMode)
    rows, columns = _matmul_extent(core, dst, stationary, moving, perf_mode)
    _matmul_dtypes(core, dst, stationary, moving, is_transpose, perf_mode)
    _pe_tile(core, stationary.shape[0], columns, tile_position, tile_size)
    if perf_mode is PerfMode.double_row and (is_transpose or (tile_size and tile_size[1] != 128)):
        fail("double-row", "double_row goes neither with is_transpose nor with column tiles of TensorE")
    widest = "float32" if "float32" in (stationary.dtype, moving.dtype) else moving.dtype
    passes, cycles = matmul_rows(core.arch, widest, rows, is_transpose)
    load, product = load_stationary(core.arch, widest, is_transpose), matmul(core.arch, cycles)
    plain = perf_mode is PerfMode.none and dst.dtype == "float32"
    plain = plain and not (is_transpose and core.arch.generation >= 3)
    return _Plan(passes, load, product, stationary.shape[0] * columns * rows, plain)


def _matmul_extent(
    core: NeuronCore, dst: NkiTensor, stationary: NkiTensor, moving: NkiTensor, perf_mode: PerfMode
) -> tuple[int, int]:
    """(N, M), after checking that the three extents fit together and fit the array."""
    halves = 1
    if perf_mode is PerfMode.double_row:
        require_generation("nc_matmul", core, 3, "nc_matmul with double_row")
        if any(tensor.ndim != 3 or tensor.shape[1] != 2 for tensor in (stationary, moving)):
            fail("double-row", f"double_row takes [K, 2, M] and [K, 2, N], got {stationary!r} and {moving!r}")
        halves = 2
    columns, rows = stationary.free_size // halves, moving.free_size // halves
    if stationary.shape[0] != moving.shape[0]:
        fail(
            "matmul-contraction",
            f"nc_matmul contracts over partitions, stationary is {stationary!r} and moving is {moving!r}",
        )
    if columns > core.arch.stationary_fmax:
        fail(
            "stationary-limit",
            f"nc_matmul takes at most {core.arch.stationary_fmax} stationary columns, got {stationary!r}",
        )
    limit = core.arch.moving_fmax * (2 if dst.dtype == "bfloat16" and core.arch.generation >= 4 else 1)
    if rows > limit:
        fail(
            "moving-limit",
            f"nc_matmul on {core.arch.name} takes a moving free size of at most {limit}, got {rows}",
            "tile the N axis",
        )
    if dst.shape[0] != columns or dst.free_size != rows:
        fail("matmul-extent", f"nc_matmul of {stationary!r} and {moving!r} gives [{columns}, {rows}], dst is {dst!r}")
    region = dst.region()
    if (
        core.arch.generation < 4
        and region.lo // core.arch.psum_bank_bytes != (region.hi - 1) // core.arch.psum_bank_bytes
    ):
        fail(
            "psum-bank",
            f"nc_matmul writes inside one PSUM bank of {core.arch.psum_bank_bytes} bytes, dst {dst!r} crosses one",
        )
    return rows, columns


def _matmul_dtypes(
    core: NeuronCore, dst: NkiTensor, stationary: NkiTensor, moving: NkiTensor, is_transpose: bool, perf_mode: PerfMode
) -> None:
    for operand, tensor in (("stationary", stationary), ("moving", moving)):
        require_dtype("nc_matmul", operand, tensor, _MATMUL_DTYPES)
        if tensor.dtype == "float8_e4m3fn":
            require_generation("nc_matmul", core, 4, "nc_matmul of float8_e4m3fn")
    pair = {stationary.dtype, moving.dtype}
    if pair & set(_WIDE) and not pair <= set(_WIDE):
        fail(
            "matmul-dtypes",
            f"nc_matmul pairs float32 and tfloat32 only with each other, got {stationary.dtype} and {moving.dtype}",
        )
    if pair == {"float8_e4m3", "float8_e4m3fn"}:
        fail("matmul-dtypes", "nc_matmul does not mix float8_e4m3 and float8_e4m3fn")
    if perf_mode is PerfMode.double_row and not pair <= set(_FP8):
        fail("double-row", f"double_row takes fp8 operands, got {stationary.dtype} and {moving.dtype}")
    allowed: tuple[str, ...] = ("float32", "bfloat16") if core.arch.generation >= 4 else ("float32",)
    if is_transpose and core.arch.generation >= 3 and stationary.dtype in _SIXTEEN_BIT:
        allowed = (stationary.dtype,)
    require_dtype("nc_matmul", "dst", dst, allowed)


def _pe_tile(core: NeuronCore, k: int, m: int, position: tuple[int, ...], size: tuple[int, ...]) -> None:
    """A row and column tile of the array: sizes 128, 64 or (trn2 on) 32, starts at multiples of the size."""
    if position in ((), None) and size in ((), None):
        return
    pairs = [isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in (position, size)]
    if not all(pairs) or not all(isinstance(number, (int, np.integer)) for number in (*position, *size)):
        fail("pe-tile", f"tile_position and tile_size go together as (row, column), got {position} and {size}")
    legal = (128, 64) if core.arch.generation < 3 else (128, 64, 32)
    for start, extent, need, axis in zip(position, size, (k, m), ("row", "column"), strict=True):
        if extent not in legal or start % extent or start + extent > 128:
            fail(
                "pe-tile",
                f"a TensorE tile has a {axis} size of {', '.join(map(str, legal))} and starts at a multiple of it, "
                f"got {start}, {extent}",
            )
        if need > extent:
            fail("pe-tile", f"a TensorE tile with {axis} size {extent} does not hold {need}")


def accumulation(core: NeuronCore, dst: NkiTensor, accumulate: bool | None) -> bool | np.ndarray:
    """Whether dst's old bytes are added: for all, for none, or as a mask over elements."""
    if accumulate is False:
        return False
    region, group = dst.region(), dst.storage.mm_written
    if group.contains(region):
        return True
    if accumulate is True:
        _refuse_accumulation(core, dst)
        return True
    if not group.touches(region):
        return False
    return group.window(region).reshape(dst.shape[0], -1, dst.itemsize)[:, :, 0]


def _refuse_accumulation(core: NeuronCore, dst: NkiTensor) -> None:
    if dst.storage.written.contains(dst.region()):
        if core.arch.generation < 4:
            fail(
                "accumulate-foreign",
                f"nc_matmul accumulates onto {dst!r}, which no matmul wrote: undefined on {core.arch.name}",
                "start the group with accumulate=False instead of memset",
            )
        return
    fail(
        "accumulate-unwritten",
        f"nc_matmul accumulates onto {dst!r}, which no matmul has written",
        "start the group with accumulate=False",
    )


def _product(
    core: NeuronCore, stationary: NkiTensor, moving: NkiTensor, is_transpose: bool, perf_mode: PerfMode
) -> np.ndarray:
    left, right = stationary.f32(), moving.f32()
    if is_transpose and core.arch.generation >= 3:
        return left.T
    if perf_mode is PerfMode.double_row:
        k = stationary.shape[0]
        left = np.concatenate(list(left.reshape(k, 2, -1).transpose(1, 0, 2)))
        right = np.concatenate(list(right.reshape(k, 2, -1).transpose(1, 0, 2)))
    return array.matmul(left, right, core.switches["matmul_sum"])


def accumulate_into(core: NeuronCore, dst: NkiTensor, product: np.ndarray, adds: Any) -> None:
    """Write `product` over dst's bytes, or add it to them as `accumulation` said."""
    if adds is False:
        array.store(dst.target(), product, dst.dtype)
        return
    if adds is True and dst.dtype == "float32":
        old = dst.target()
        old += product.reshape(old.shape)
        return
    total = dst.f32() + product
    array.store(dst.target(), total if adds is True else np.where(adds, total, product), dst.dtype)


@instruction
def nc_transpose(
    core: NeuronCore, dst: NkiTensor, data: NkiTensor, engine: Engine = Engine.unknown, name: str | None = None
) -> Iterator[Step]:
    """dst[f, p] = data[p, f], bit for bit; several free dims of data are flattened first.

    TensorE: data in SBUF, dst in PSUM, up to 128 by 128. VectorE: SBUF or PSUM, up to 32 by 32. Default: TensorE for a
    PSUM dst, VectorE for an SBUF one. dst has data's dtype; fp8 through TensorE lands in 16-bit elements.
    Source: NKI ISA reference, nc_transpose; NKI release notes 0.4.0 (default engine by dst buffer).
    """
    prices = _transpose_plan(core, dst, data, engine)
    effect = _transposing(core, dst, data)
    if len(prices) == 1:
        yield Step("vector", prices[0], reads=(data,), writes=(dst,), effect=effect)
        return
    yield Step("tensor", prices[0], reads=(data,))
    yield Step("tensor", prices[1], writes=(dst,), effect=effect, matmul=True)


@once_per_layout
def _transpose_plan(core: NeuronCore, dst: NkiTensor, data: NkiTensor, engine: Engine) -> tuple[Price, ...]:
    """Prices of loading the data and of passing it on TensorE, or the one price on VectorE."""
    require_tile("nc_transpose", "dst", dst, core, ON_CHIP)
    require_tile("nc_transpose", "data", data, core, ON_CHIP)
    require_enum("nc_transpose", "engine", engine, Engine)
    if engine not in (Engine.unknown, Engine.tensor, Engine.vector):
        fail("engine", f"nc_transpose runs on tensor or vector, got {engine.name}")
    on_tensor = engine is Engine.tensor or (engine is Engine.unknown and dst.buffer is MemoryRegion.psum)
    if dst.shape[0] != data.free_size or dst.free_size != data.shape[0]:
        fail("transpose-extent", f"nc_transpose of {data!r} gives [{data.free_size}, {data.shape[0]}], dst is {dst!r}")
    return _tensor_transpose(core, dst, data) if on_tensor else _vector_transpose(core, dst, data)


def _tensor_transpose(core: NeuronCore, dst: NkiTensor, data: NkiTensor) -> tuple[Price, ...]:
    require_tile("nc_transpose on tensor", "dst", dst, core, PSUM)
    require_tile("nc_transpose on tensor", "data", data, core, SBUF)
    require_dtype("nc_transpose on tensor", "data", data, _MATMUL_DTYPES)
    if data.free_size > core.arch.stationary_fmax:
        fail(
            "transpose-limit",
            f"nc_transpose on tensor takes at most 128 by 128, got {data!r}",
            "transpose block by block",
        )
    require_dtype("nc_transpose", "dst", dst, _SIXTEEN_BIT if data.dtype in _FP8 else (data.dtype,))
    _, cycles = matmul_rows(core.arch, data.dtype, max(data.shape[0], min(64, data.free_size)), transpose=True)
    return load_stationary(core.arch, data.dtype, transpose=True), matmul(core.arch, cycles)


def _vector_transpose(core: NeuronCore, dst: NkiTensor, data: NkiTensor) -> tuple[Price, ...]:
    if max(data.shape[0], data.free_size) > VECTOR_TRANSPOSE_MAX:
        fail(
            "transpose-limit",
            f"nc_transpose on vector takes at most 32 by 32, got {data!r}",
            "write to PSUM to use TensorE",
        )
    require_dtype("nc_transpose", "dst", dst, (data.dtype,))
    return (PRICES["nc_transpose"](core.arch, facts("vector", dst, data)),)


def _transposing(core: NeuronCore, dst: NkiTensor, data: NkiTensor) -> Callable[[], None]:
    def effect() -> None:
        flat = data.array()
        flat = array.transposed(flat if flat.ndim == 2 else flat.reshape(data.shape[0], -1))
        if data.dtype == dst.dtype:
            dst.target()[...] = flat.reshape(dst.shape)
        else:
            array.store(dst.target(), array.f32(flat), dst.dtype, core.switches["fp8_overflow"])

    return effect
