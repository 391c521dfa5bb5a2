"""MX formats of trn3: four 4- or 8-bit floats packed into one element, a power-of-two scale for every 32 of them.

A group is 8 consecutive partitions by the 4 values of one column. Its scale lies in the first rows of the quadrant of
32 partitions: quadrant q keeps those of its four groups at partitions 32 q .. 32 q + 3 of the scale view.
"""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from kernels_neuron.sim import array
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.versions import api_version

from .prices import PRICES, facts, load_stationary, matmul
from .rules import (
    PSUM,
    SBUF,
    require_buffer,
    require_dtype,
    require_generation,
    require_tensor,
    require_tile,
)
from .table import instruction
from .tensor import accumulate_into, accumulation

PACK = 4
GROUP = 8  # partitions of a group
QUADRANT = 32
_ELEMENT = {"float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn, "float8_e5m2_x4": ml_dtypes.float8_e5m2}
_EMAX = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}
_SCALES = ("float8_e8m0fnu", "uint8")
_PACKED = (*_ELEMENT, "float4_e2m1fn_x4")
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def _scale_rows(partitions: int) -> np.ndarray:
    """Partition of the scale view that holds the scale of every group."""
    groups = np.arange(partitions // GROUP)
    return QUADRANT * (groups // 4) + groups % 4


def _require_scale(name: str, operand: str, scale: NkiTensor, data: NkiTensor, columns: int) -> None:
    """The scale view reaches the rows it is read at; it may start inside a quadrant, unlike other operands."""
    require_tensor(name, operand, scale)
    require_buffer(name, operand, scale, SBUF)
    require_dtype(name, operand, scale, _SCALES)
    needed = int(_scale_rows(data.shape[0])[-1]) + 1
    if scale.shape[0] < needed or scale.free_size != columns:
        fail("mx-scale", f"{name} takes {operand} of {needed} partitions or more by {columns}, got {scale!r}")
    start = scale.start_partition % QUADRANT
    if start not in (0, 4, 8, 12) or (data.start_partition - scale.start_partition + start) % QUADRANT:
        fail(
            "mx-scale",
            f"{name} takes {operand} from the quadrant of its data at offset 0, 4, 8 or 12, got start partition "
            f"{scale.start_partition}",
        )


def _require_data(name: str, operand: str, tensor: NkiTensor, core: NeuronCore) -> None:
    require_tile(name, operand, tensor, core, SBUF)
    if tensor.shape[0] % QUADRANT:
        fail("mx-partitions", f"{name} takes {operand} of a multiple of 32 partitions, got {tensor!r}")


def unpacked(tensor: NkiTensor) -> np.ndarray:
    """The values of a packed tile as float32 [P, F, 4], the first value in the lowest bits."""
    words = np.ascontiguousarray(tensor.array().reshape(tensor.shape[0], -1))
    if tensor.dtype == "float4_e2m1fn_x4":
        nibbles = (words[..., None] >> (4 * np.arange(PACK, dtype=np.uint16))) & np.uint16(15)
        return _FP4[nibbles]
    return words.view(np.uint8).view(_ELEMENT[tensor.dtype]).reshape(*words.shape, PACK).astype(np.float32)


def _scaled(data: NkiTensor, scale: NkiTensor) -> np.ndarray:
    """The real values of `data`, [P, F, 4]."""
    bits = scale.array().reshape(scale.shape[0], -1).view(np.uint8)[_scale_rows(data.shape[0])]
    factor = np.where(bits == 255, np.nan, np.exp2(bits.astype(np.float32) - 127))
    return unpacked(data) * np.repeat(factor, GROUP, axis=0)[..., None].astype(np.float32)


@instruction
def quantize_mx(
    core: NeuronCore, dst: NkiTensor, src: NkiTensor, dst_scale: NkiTensor, name: str | None = None
) -> Iterator[Step]:
    """dst = src / X packed by fours, dst_scale = X = 2 ** (floor(log2(largest of the group)) - (Emax - 1)) per group.

    Emax is 8 for float8_e4m3fn_x4 and 15 for float8_e5m2_x4; before NKI 0.5 the exponent had Emax in place of Emax - 1,
    and values beyond the range were clipped. A group of zeros has X = 2 ** -127.
    Operands: src float16 or bfloat16 [P, F] in SBUF, P a multiple of 32, F of 4; dst [P, F / 4]; dst_scale
    float8_e8m0fnu or uint8, whose other rows are kept. trn3 on. Engines: VectorE.
    Source: NKI ISA reference, quantize_mx; NKI release notes 0.5.0.
    """
    require_generation("quantize_mx", core, 4)
    _require_data("quantize_mx", "src", src, core)
    _require_data("quantize_mx", "dst", dst, core)
    require_dtype("quantize_mx", "src", src, ("float16", "bfloat16"))
    require_dtype("quantize_mx", "dst", dst, tuple(_ELEMENT))
    if src.free_size % PACK or dst.shape[0] != src.shape[0] or dst.free_size != src.free_size // PACK:
        fail(
            "operand-extent", f"quantize_mx of [P, F] with F a multiple of 4 gives [P, F / 4], got {src!r} and {dst!r}"
        )
    _require_scale("quantize_mx", "dst_scale", dst_scale, dst, dst.free_size)
    price = PRICES["quantize_mx"](core.arch, facts("vector", dst, src))
    rows = _scale_rows(src.shape[0])
    quadrants = [dst_scale[int(first) : int(min(first + 4, rows[-1] + 1))] for first in rows[::4]]
    old = api_version(core.settings.nki) < (0, 5)

    def effect() -> None:
        groups = src.f32().reshape(-1, GROUP, dst.free_size, PACK)
        exponent = _scale_exponent(np.abs(groups).max(axis=(1, 3)), _EMAX[dst.dtype] - (0 if old else 1))
        scaled = groups / np.exp2(exponent)[:, None, :, None].astype(np.float32)
        if old:
            scaled = np.clip(scaled, -dst.dtype.row.largest, dst.dtype.row.largest)
        packed = scaled.reshape(src.shape[0], -1).astype(_ELEMENT[dst.dtype]).view(np.uint8)
        dst.target()[...] = np.ascontiguousarray(packed).view(np.uint32).reshape(dst.shape)
        target = dst_scale.target()
        target[rows] = (exponent + 127).astype(np.uint8).view(target.dtype).reshape(len(rows), *dst_scale.shape[1:])

    yield Step("vector", price, reads=(src,), writes=(dst, *quadrants), effect=effect)


def _scale_exponent(largest: np.ndarray, emax: int) -> np.ndarray:
    """log2 of the scale of groups whose largest magnitude is `largest`; -127 for zeros."""
    _, exponent = np.frexp(largest)
    finite = np.isfinite(largest) & (largest > 0)
    return np.where(finite, np.clip(exponent - 1 - emax, -127, 127), np.where(largest > 0, 127, -127))


@instruction
def nc_matmul_mx(
    core: NeuronCore,
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    stationary_scale: NkiTensor,
    moving_scale: NkiTensor,
    tile_position: tuple[int, ...] | None = None,
    tile_size: tuple[int, ...] | None = None,
    accumulate: bool | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """dst[m, n] = or += sum over p and q < 4 of stationary[p, m, q] * moving[p, n, q], each times its group's scale.

    Operands: stationary, moving packed, in SBUF, on one multiple of 32 partitions; at most 128 stationary columns, an
    even number; dst float32 or bfloat16 in PSUM, of at most 4096 or 8192 columns; scales float8_e8m0fnu or uint8. Row
    tiles of 64 or 32 at column 0. accumulate as nc_matmul. trn3 on. Engines: TensorE.
    Source: NKI ISA reference, nc_matmul_mx; MX matmul deep dive.
    """
    require_generation("nc_matmul_mx", core, 4)
    require_tile("nc_matmul_mx", "dst", dst, core, PSUM)
    require_dtype("nc_matmul_mx", "dst", dst, ("float32", "bfloat16"))
    for operand, data, scale in (
        ("stationary", stationary, stationary_scale),
        ("moving", moving, moving_scale),
    ):
        _require_data("nc_matmul_mx", operand, data, core)
        require_dtype("nc_matmul_mx", operand, data, _PACKED)
        _require_scale("nc_matmul_mx", f"{operand}_scale", scale, data, data.free_size)
    _require_mx_extent(core, dst, stationary, moving)
    _require_row_tile(stationary, tile_position, tile_size)
    adds = accumulation(core, dst, accumulate)
    scale_reads = [
        scale[int(first) : int(first) + 4] if first + 4 <= scale.shape[0] else scale[int(first) :]
        for scale, data in ((stationary_scale, stationary), (moving_scale, moving))
        for first in _scale_rows(data.shape[0])[::4]
    ]
    cycles = max(core.arch.pe_min_cycles, moving.free_size)
    depth = stationary.shape[0] * PACK

    def effect() -> None:
        left = _scaled(stationary, stationary_scale).transpose(0, 2, 1).reshape(depth, -1)
        right = _scaled(moving, moving_scale).transpose(0, 2, 1).reshape(depth, -1)
        accumulate_into(core, dst, array.matmul(left, right, core.switches["matmul_sum"]), adds)

    yield Step("tensor", load_stationary(core.arch, stationary.dtype), reads=(stationary,))
    yield Step(
        "tensor",
        matmul(core.arch, cycles),
        reads=(moving, *scale_reads),
        writes=(dst,),
        effect=effect,
        macs=depth * stationary.free_size * moving.free_size,
        matmul=True,
    )


def _require_mx_extent(core: NeuronCore, dst: NkiTensor, stationary: NkiTensor, moving: NkiTensor) -> None:
    if stationary.shape[0] != moving.shape[0]:
        fail("matmul-contraction", f"nc_matmul_mx contracts over partitions, got {stationary!r} and {moving!r}")
    if stationary.free_size % 2 or stationary.free_size > core.arch.stationary_fmax:
        fail(
            "stationary-limit",
            f"nc_matmul_mx takes an even number of stationary columns up to {core.arch.stationary_fmax}, "
            f"got {stationary!r}",
        )
    limit = core.arch.moving_fmax * (2 if dst.dtype == "bfloat16" else 1)
    if moving.free_size > limit:
        fail("moving-limit", f"nc_matmul_mx takes a moving free size of at most {limit}, got {moving!r}")
    if dst.shape[0] != stationary.free_size or dst.free_size != moving.free_size:
        fail(
            "matmul-extent",
            f"nc_matmul_mx of {stationary!r} and {moving!r} gives [{stationary.free_size}, {moving.free_size}], "
            f"dst is {dst!r}",
        )


def _require_row_tile(stationary: NkiTensor, position: tuple[int, ...] | None, size: tuple[int, ...] | None) -> None:
    if position in ((), None) and size in ((), None):
        return
    pairs = [isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in (position, size)]
    if not all(pairs) or position is None or size is None:
        fail("pe-tile", f"nc_matmul_mx takes tile_position and tile_size together, got {position!r} and {size!r}")
    rows, columns = size
    if (
        columns != 128
        or rows not in (32, 64, 128)
        or position[1] != 0
        or position[0] % rows
        or stationary.shape[0] > rows
    ):
        fail(
            "pe-tile",
            f"nc_matmul_mx takes row tiles of 64 or 32 by 128 that start at a multiple of their rows and hold the "
            f"operands, got {position!r} and {size!r}",
        )
