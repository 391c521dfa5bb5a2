"""VectorE instructions that move data across partitions."""

from collections.abc import Iterator, Sequence

import numpy as np

from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor

from .prices import PRICES, facts
from .rules import require_dtype, require_tile
from .table import instruction

QUADRANT = 32
KEEP = 255


@instruction
def nc_stream_shuffle(
    core: NeuronCore, dst: NkiTensor, src: NkiTensor, shuffle_mask: Sequence[int], name: str | None = None
) -> Iterator[Step]:
    """dst[32 q + i] = src[32 q + shuffle_mask[i]] in every quadrant q of 32 partitions; mask 255 keeps dst.

    Operands: SBUF or PSUM, one dtype, one number of elements per partition; src may have fewer partitions than dst, as
    long as the mask reads none beyond its end; in place is allowed. shuffle_mask: 32 integers from 0 to 31, or 255.
    Engines: VectorE. Source: NKI ISA reference, nc_stream_shuffle.
    """
    require_tile("nc_stream_shuffle", "dst", dst, core)
    require_tile("nc_stream_shuffle", "src", src, core)
    require_dtype("nc_stream_shuffle", "src", src, (dst.dtype,))
    if dst.free_size != src.free_size:
        fail(
            "operand-extent", f"nc_stream_shuffle takes equal elements per partition, dst is {dst!r} and src is {src!r}"
        )
    listed = isinstance(shuffle_mask, (tuple, list, range, np.ndarray))
    if not listed or not all(isinstance(entry, (int, np.integer)) for entry in shuffle_mask):
        fail("shuffle-mask", f"nc_stream_shuffle takes a mask of 32 entries, got {shuffle_mask!r}")
    mask = [int(entry) for entry in shuffle_mask]
    if len(mask) != QUADRANT or any(not (0 <= entry < QUADRANT or entry == KEEP) for entry in mask):
        fail("shuffle-mask", f"nc_stream_shuffle takes a mask of 32 entries from 0 to 31 or 255, got {mask}")
    sources = {to: _source(to, mask, src) for to in range(dst.shape[0]) if mask[to % QUADRANT] != KEEP}
    price = PRICES["nc_stream_shuffle"](core.arch, facts("vector", dst, src))
    targets = [dst[first : last + 1] for first, last in _runs(sorted(sources))]
    origins = [src[first : last + 1] for first, last in _runs(sorted(set(sources.values())))]

    def effect() -> None:
        values = src.array().reshape(src.shape[0], -1)[list(sources.values())]
        dst.target()[list(sources)] = values.reshape(len(sources), *dst.shape[1:])

    yield Step("vector", price, reads=origins, writes=targets, effect=effect)


def _source(to: int, mask: list[int], src: NkiTensor) -> int:
    """The source partition that destination partition `to` takes."""
    origin = to // QUADRANT * QUADRANT + mask[to % QUADRANT]
    if origin >= src.shape[0]:
        fail(
            "shuffle-mask", f"nc_stream_shuffle of dst partition {to} reads partition {origin}, src has {src.shape[0]}"
        )
    return origin


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """(first, last) of every run of consecutive numbers."""
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    starts = [numbers[0], *(numbers[i + 1] for i in breaks)] if numbers else []
    ends = [*(numbers[i] for i in breaks), numbers[-1]] if numbers else []
    return list(zip(starts, ends, strict=True))
