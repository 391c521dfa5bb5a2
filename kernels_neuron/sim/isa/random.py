"""Random numbers: raw bits, uniform values, dropout, and the state behind them."""

from collections.abc import Iterator

import numpy as np

from kernels_neuron.dtypes import ROWS
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.random import WORDS, Xorwow, uniform
from kernels_neuron.sim.tensor import NkiTensor

from .enums import engine as Engine
from .prices import PRICES, facts
from .reduce import FLOATS, lanes
from .rules import (
    SBUF,
    require_buffer,
    require_dtype,
    require_enum,
    require_generation,
    require_same_extent,
    require_scalar,
    require_tile,
)
from .table import instruction
from .vector import Scalar, scalar_value, tensors, write

# xorwow states of a lane; architecture guide 4
STREAMS = {"vector": 4, "gpsimd": 1}
_INTEGERS = tuple(name for name, row in ROWS.items() if row.kind in ("int", "uint"))
_UNIFORM = tuple(name for name in (*FLOATS, *_INTEGERS))


def generator(core: NeuronCore, engine: str) -> Xorwow:
    """The generator of an engine, seeded by Settings.seed and by which core it is until a kernel says otherwise."""
    found = core.generators.get(engine)
    if found is None:
        which = sorted(STREAMS).index(engine)
        seeds = (core.settings.seed, core.seat.rank, core.program, which)
        found = core.generators[engine] = Xorwow(core.arch.partitions, STREAMS[engine], *seeds)
    return found


def _random_engine(name: str, core: NeuronCore, engine: Engine, first: dict[str, int]) -> str:
    """The engine's name, after checking that this chip has the instruction there."""
    require_enum(name, "engine", engine, Engine)
    if engine.name not in first:
        fail("engine", f"{name} runs on {', '.join(first)}, got {engine.name}")
    require_generation(name, core, first[engine.name], f"{name} on {engine.name}")
    return engine.name


@instruction
def rng(core: NeuronCore, dst: NkiTensor, engine: Engine = Engine.vector, name: str | None = None) -> Iterator[Step]:
    """dst = 32 random bits per element, of which narrower integers keep the lowest.

    Operands: dst of integers in SBUF or PSUM (GpSimdE: SBUF). Engines: VectorE; GpSimdE from trn2 on.
    The bits are not documented: see switch random_bits. Source: NKI ISA reference, rng.
    """
    chosen = _random_engine("rng", core, engine, {"vector": 2, "gpsimd": 3})
    require_tile("rng", "dst", dst, core, SBUF if chosen == "gpsimd" else (*SBUF, MemoryRegion.psum))
    require_dtype("rng", "dst", dst, _INTEGERS)
    price = PRICES["rng"](core.arch, facts(chosen, dst))

    def effect() -> None:
        words = generator(core, chosen).draw(lanes(dst), dst.free_size)
        unsigned = words.astype(f"uint{dst.itemsize * 8}")
        dst.target()[...] = unsigned.view(dst.dtype.numpy).reshape(dst.shape)

    yield Step(chosen, price, writes=(dst,), effect=effect)


@instruction
def rand2(core: NeuronCore, dst: NkiTensor, min: Scalar, max: Scalar, name: str | None = None) -> Iterator[Step]:
    """dst = uniform float32 values from min[p] to max[p], rounded into dst's dtype.

    Operands: dst in SBUF or PSUM; min < max, numbers or float32 [P, 1] tiles. trn3 on. Engines: VectorE.
    Source: NKI ISA reference, rand2.
    """
    require_generation("rand2", core, 4)
    require_tile("rand2", "dst", dst, core)
    require_dtype("rand2", "dst", dst, _UNIFORM)
    for operand, value in (("min", min), ("max", max)):
        require_scalar("rand2", operand, value, dst.shape[0], core)
    numbers = not isinstance(min, NkiTensor) and not isinstance(max, NkiTensor)
    if numbers and not min < max:  # type: ignore[operator]
        fail("random-range", f"rand2 takes min below max, got {min!r} and {max!r}")
    price = PRICES["rand2"](core.arch, facts("vector", dst))

    def effect() -> None:
        low, high = scalar_value(min), scalar_value(max)
        values = low + (high - low) * uniform(generator(core, "vector").draw(lanes(dst), dst.free_size))
        write(core, dst, values.astype(np.float32))

    yield Step("vector", price, reads=tensors(min, max), writes=(dst,), effect=effect)


@instruction
def dropout(core: NeuronCore, dst: NkiTensor, data: NkiTensor, prob: Scalar, name: str | None = None) -> Iterator[Step]:
    """dst = data with each element set to 0 with probability prob[p]; nothing is scaled up for it.

    Operands: SBUF or PSUM, one extent, one dtype; prob a number from 0 to 1 or a float [P, 1] tile (float32 for integer
    data). Engines: VectorE. Source: NKI ISA reference, dropout.
    """
    require_tile("dropout", "dst", dst, core)
    require_tile("dropout", "data", data, core)
    require_same_extent("dropout", dst=dst, data=data)
    require_dtype("dropout", "dst", dst, (data.dtype,))
    require_scalar("dropout", "prob", prob, data.shape[0], core, FLOATS if ROWS[data.dtype].is_float else ("float32",))
    if not isinstance(prob, NkiTensor) and not 0 <= prob <= 1:  # type: ignore[operator]
        fail("random-range", f"dropout takes a probability from 0 to 1, got {prob!r}")
    price = PRICES["dropout"](core.arch, facts("vector", dst, data, pointer=isinstance(prob, NkiTensor)))

    def effect() -> None:
        drop = uniform(generator(core, "vector").draw(lanes(dst), dst.free_size)) < scalar_value(prob)
        values = data.array().reshape(dst.shape).copy()
        values[drop.reshape(dst.shape)] = 0
        dst.target()[...] = values

    yield Step("vector", price, reads=(data, *tensors(prob)), writes=(dst,), effect=effect)


@instruction
def set_rng_seed(core: NeuronCore, src_seeds: NkiTensor, name: str | None = None) -> Iterator[Step]:
    """Restart VectorE's random numbers from a seed: what follows is the same in every run.

    Operands: src_seeds [1, 1] of 32 bits in SBUF or PSUM. Engines: VectorE.
    Source: NKI ISA reference, set_rng_seed.
    """
    require_tile("set_rng_seed", "src_seeds", src_seeds, core)
    require_dtype("set_rng_seed", "src_seeds", src_seeds, ("int32", "uint32", "float32"))
    if src_seeds.size != 1:
        fail("operand-extent", f"set_rng_seed takes a [1, 1] tile, got {src_seeds!r}")
    price = PRICES["set_rng_seed"](core.arch, facts("vector", src_seeds))

    def effect() -> None:
        generator(core, "vector").seed(int(np.ascontiguousarray(src_seeds.array()).view(np.uint32).reshape(-1)[0]))

    yield Step("vector", price, reads=(src_seeds,), effect=effect)


def _require_state(name: str, operand: str, tensor: NkiTensor, core: NeuronCore, engine: str) -> None:
    require_tile(name, operand, tensor, core)
    if engine == "gpsimd" or core.arch.generation < 4 or name == "rand_set_state":
        require_buffer(name, operand, tensor, SBUF)
    require_dtype(name, operand, tensor, ("uint32",))
    words = STREAMS[engine] * WORDS
    if tensor.ndim != 2 or tensor.free_size != words:
        fail("operand-extent", f"{name} on {engine} takes {words} words per partition, got {tensor!r}")


@instruction
def rand_set_state(
    core: NeuronCore, src_seeds: NkiTensor, engine: Engine = Engine.gpsimd, name: str | None = None
) -> Iterator[Step]:
    """State of the random numbers of src_seeds' partitions = src_seeds.

    Operands: src_seeds uint32 [P, 6] (GpSimdE) or [P, 24] (VectorE) in SBUF.
    Engines: GpSimdE from trn2 on, VectorE from trn3 on. Source: NKI ISA reference, rand_set_state.
    """
    chosen = _random_engine("rand_set_state", core, engine, {"gpsimd": 3, "vector": 4})
    _require_state("rand_set_state", "src_seeds", src_seeds, core, chosen)
    price = PRICES["rand_set_state"](core.arch, facts(chosen, src_seeds))

    def effect() -> None:
        state = generator(core, chosen).state[lanes(src_seeds)]
        state[...] = src_seeds.array().reshape(state.shape)

    yield Step(chosen, price, reads=(src_seeds,), effect=effect)


@instruction
def rand_get_state(
    core: NeuronCore, dst: NkiTensor, engine: Engine = Engine.gpsimd, name: str | None = None
) -> Iterator[Step]:
    """dst = state of the random numbers of dst's partitions.

    Operands: dst uint32 [P, 6] (GpSimdE) or [P, 24] (VectorE) in SBUF, for VectorE in PSUM too.
    Engines: GpSimdE from trn2 on, VectorE from trn3 on. Source: NKI ISA reference, rand_get_state.
    """
    chosen = _random_engine("rand_get_state", core, engine, {"gpsimd": 3, "vector": 4})
    _require_state("rand_get_state", "dst", dst, core, chosen)
    price = PRICES["rand_get_state"](core.arch, facts(chosen, dst))

    def effect() -> None:
        dst.target()[...] = generator(core, chosen).state[lanes(dst)].reshape(dst.shape)

    yield Step(chosen, price, writes=(dst,), effect=effect)
