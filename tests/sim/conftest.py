"""A NeuronCore on a bench: tiles with values in them, instructions one at a time."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kernels_neuron.arch import chip
from kernels_neuron.dtypes import dtype as as_dtype
from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import Scope, running
from kernels_neuron.sim.core import NeuronCore
from kernels_neuron.sim.isa import TABLE
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.tensor import NkiTensor

# what a value may be off after rounding into a dtype, relative to its magnitude
ROUNDING = {"float32": 2e-6, "bfloat16": 2.0**-8, "float16": 2.0**-11}


class Machine:
    """One core outside a kernel."""

    def __init__(self, arch: str = "trn2", **settings: Any) -> None:
        # refusing at the first read shows which bytes an instruction has left unwritten
        settings["switches"] = {"unwritten_read": "refuse", **settings.get("switches", {})}
        self.settings = Settings(**settings)
        self.core = NeuronCore(chip(arch), self.settings)

    def empty(self, shape: tuple[int, ...], dtype: Any = "float32", buffer: str = "sbuf", start: int = 0) -> NkiTensor:
        """An unwritten tile; `start` is its first partition."""
        region = MemoryRegion[buffer]
        if start:
            return self.core.allocate((128, *shape[1:]), dtype, region)[start : start + shape[0]]
        return self.core.allocate(shape, dtype, region)

    def tile(self, values: Any, dtype: Any = None, buffer: str = "sbuf", start: int = 0) -> NkiTensor:
        """A tile that holds `values`, rounded to `dtype`."""
        values = np.asarray(values)
        if dtype is None:
            dtype = "float32" if values.dtype == np.float64 else values.dtype
        dtype = as_dtype(dtype)
        tile = self.empty(values.shape, dtype, buffer, start)
        if self.settings.execute:
            tile.array()[...] = values.astype(dtype.numpy)
        tile.storage.written.add(tile.region())
        return tile

    def issue(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Run one instruction; its records."""
        before = len(self.core.trace.records)
        with running(self.core, Scope(self.core.arch, self.settings)):
            TABLE[name](*args, **kwargs)
        return self.core.trace.records[before:]

    def inside(self) -> Any:
        """A context in which views and registers are made as in a kernel that runs on this core."""
        return running(self.core, Scope(self.core.arch, self.settings))

    def refuses(self, rule: str, name: str, *args: Any, **kwargs: Any) -> str:
        """Run one instruction that must break `rule` before it has any effect; the message."""
        before = len(self.core.trace.records)
        with pytest.raises(KernelError) as caught:
            self.issue(name, *args, **kwargs)
        assert caught.value.rule == rule, str(caught.value)
        assert len(self.core.trace.records) == before
        return str(caught.value)


@pytest.fixture
def machine():
    return Machine


@pytest.fixture
def rng():
    return np.random.default_rng(20260801)


def float64(tile: NkiTensor) -> np.ndarray:
    return tile.array().astype(np.float64).reshape(tile.shape[0], -1)


def as_stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """float64 results as a tile of `dtype` holds them, in float64."""
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        return np.clip(np.nan_to_num(np.rint(values), nan=0.0, posinf=info.max, neginf=info.min), info.min, info.max)
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(as_dtype(dtype).numpy).astype(np.float64)


@pytest.fixture
def close():
    """close(tile, float64 values): equal up to the rounding of the tile's dtype; NaN and infinities in place.

    slack      multiplies the allowed relative error
    magnitude  size of the terms of a sum, to which its rounding error is relative
    """

    def check(tile: NkiTensor, expected: np.ndarray, slack: float = 1.0, magnitude: float = 1e-6) -> None:
        got, expected = float64(tile), np.asarray(expected, np.float64).reshape(tile.shape[0], -1)
        stored = as_stored(expected, str(tile.dtype))
        np.testing.assert_array_equal(np.isnan(got), np.isnan(stored))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(stored))
        finite = np.isfinite(stored)
        allowed = ROUNDING.get(str(tile.dtype), 0.0) * slack
        np.testing.assert_allclose(got[finite], stored[finite], rtol=allowed, atol=allowed * magnitude)

    return check


@pytest.fixture
def hostile(rng):
    """hostile(shape, dtype): random values with NaN, infinities, signed zeros and large magnitudes among them."""

    def make(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
        if dtype.startswith(("int", "uint")):
            info = np.iinfo(dtype)
            low, high = max(info.min, -(2**23)), min(info.max, 2**23)
            return rng.integers(low, high, shape, endpoint=True).astype(dtype)
        values = rng.standard_normal(shape).astype(np.float32)
        specials = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e4, -3e4, 1e-30]
        flat = values.reshape(-1)
        places = rng.choice(flat.size, min(len(specials), flat.size), replace=False)
        flat[places] = specials[: len(places)]
        kind = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
        return values.astype(kind)

    return make
