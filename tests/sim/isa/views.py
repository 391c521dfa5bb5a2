"""Properties of instructions: on any views they equal a float64 model, and nothing around the destination changes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

FLOATS = ("float32", "bfloat16", "float16")
DTYPES = (*FLOATS, "int8", "uint8", "int16", "int32")
PARTITIONS = (1, 7, 32, 50, 64, 128)
ALLOWED = {"float32": 4e-6, "bfloat16": 2.0**-7, "float16": 2.0**-9}


@dataclass(frozen=True)
class Operand:
    """A tile of an instruction: its width from the n of the call, and what it may hold."""

    width: Callable[[int], int] = lambda n: n
    dtypes: tuple[str, ...] = FLOATS
    buffers: tuple[str, ...] = ("sbuf", "psum")
    low: float = -4.0
    high: float = 4.0
    distinct: bool = False


SOURCE, COLUMN = Operand(), Operand(lambda n: 1, ("float32",))
RESULT = Operand(dtypes=DTYPES)
ON_SBUF = Operand(buffers=("sbuf",))


@dataclass(frozen=True)
class Property:
    """What an instruction computes.

    model    (float64 values of the sources, [partitions, width] each, with what is given) to those of each result
    given    other arguments, drawn; "axis" is filled in where a model asks for it
    """

    name: str
    operands: Mapping[str, Operand]
    results: tuple[str, ...]
    model: Callable[[dict[str, Any]], dict[str, np.ndarray]]
    given: Mapping[str, Any] = field(default_factory=dict)
    arch: str = "trn2"
    partitions: tuple[int, ...] = PARTITIONS
    counts: tuple[int, int] = (1, 12)
    reduces: bool = False

    def __str__(self) -> str:
        return self.name

    def holds(self, machine: Callable[..., Any], examples: int = 12) -> None:
        """The instruction equals the model in `examples` drawn calls."""

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.data())
        def check(data: Any) -> None:
            bench = machine(self.arch)
            partitions, n = data.draw(st.sampled_from(self.partitions)), data.draw(st.integers(*self.counts))
            tiles = {
                name: data.draw(views(bench, partitions, operand.width(n), operand))
                for name, operand in self.operands.items()
            }
            other = {name: data.draw(strategy) for name, strategy in self.given.items()}
            if self.reduces:
                other["axis"] = tuple(range(1, tiles["data"].ndim))
            known = {name: flat(tile) for name, tile in tiles.items()} | other
            around = {name: outside(tiles[name]) for name in self.results}
            bench.issue(self.name, **tiles, **other)
            for name, expected in self.model(known).items():
                np.testing.assert_array_equal(outside(tiles[name]), around[name])
                equal(tiles[name], expected)

        check()


@st.composite
def views(draw: Any, bench: Any, partitions: int, count: int, operand: Operand = RESULT) -> Any:
    """A view of `count` elements on `partitions` partitions of a written tile: strided, offset, split and permuted."""
    step, offset = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    start = draw(st.sampled_from([0, 32, 64, 96] if partitions <= 32 else [0, 64] if partitions <= 64 else [0]))
    dtype, buffer = draw(st.sampled_from(operand.dtypes)), draw(st.sampled_from(operand.buffers))
    rng, shape = np.random.default_rng(draw(st.integers(0, 2**16))), (128, offset + count * step)
    values = rng.uniform(operand.low, operand.high, shape)
    if operand.distinct:
        values = rng.permuted(np.broadcast_to(np.arange(shape[1], dtype=np.float64), shape), axis=1)
    if dtype.startswith("u"):
        values = np.abs(values)
    view = bench.tile(values, dtype, buffer)[start : start + partitions, offset : offset + count * step : step]
    factor = draw(st.sampled_from([size for size in range(1, count + 1) if count % size == 0]))
    view = view.reshape_dim(1, (factor, count // factor))
    return view.permute((0, 2, 1)) if draw(st.booleans()) else view


def flat(view: Any) -> np.ndarray:
    """The values in float64, [partitions, elements per partition]."""
    return view.array().astype(np.float64).reshape(view.shape[0], -1)


def outside(view: Any) -> np.ndarray:
    """The bytes of the allocation with those of the view zeroed."""
    data, region = view.storage.table().copy(), view.region()
    grid = data.reshape(view.storage.tile.partitions, view.storage.tile.nbytes)
    for first in region.starts():
        grid[region.p0 : region.p1, first : first + region.width] = 0
    return grid


def equal(view: Any, expected: np.ndarray) -> None:
    """The view holds the values as its dtype rounds them: a step of an integer, or the rounding of a float."""
    dtype = str(view.dtype)
    if dtype in ALLOWED:
        if dtype == "float16":  # whose range a function may leave
            with np.errstate(over="ignore"):
                expected = expected.astype(np.float16).astype(np.float64)
        wide = np.max(np.abs(expected), initial=1.0, where=np.isfinite(expected))
        np.testing.assert_allclose(flat(view), expected, rtol=ALLOWED[dtype], atol=ALLOWED[dtype] * wide)
    else:
        info = np.iinfo(dtype)
        np.testing.assert_allclose(flat(view), np.clip(np.rint(expected), info.min, info.max), rtol=0, atol=1)
