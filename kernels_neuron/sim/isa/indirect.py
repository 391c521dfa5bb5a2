"""Tensor indirection of trn3: operands whose columns an index tile picks while an instruction streams them.

Column i of partition p is the element index[g + i % G, i // G] of p, where G partitions share their indices, g is the
first of p's group, and G is 16, or 32 on TensorE. A source gathers, a destination scatters.
Source: NKI language reference, NkiTensor.indirect; NKI samples, tensor indirection tutorial; NKI ISA reference, the
operands each instruction may have so. An instruction is priced as on a plain tile; no price is published.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_neuron.errors import NotSimulated
from kernels_neuron.sim.context import current_core
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.dynamic import DynamicTensor
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.unwritten import require_written

from .rules import PSUM, SBUF, mark_taken, require_buffer, require_dtype, require_generation, require_tensor

_GROUP, _MATMUL_GROUP, _QUADRANT = 16, 32, 32
# operands that may be indirect, by instruction
OPERANDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("activate2", "activation", "activation_reduce"), ("dst", "data")),
    **dict.fromkeys(("tensor_reduce", "tensor_scalar", "tensor_scalar_reduce"), ("dst", "data")),
    **dict.fromkeys(("exponential", "tensor_copy", "tensor_scalar_cumulative"), ("dst", "src")),
    "nc_matmul": ("stationary", "moving"),
    "tensor_copy_predicated": ("dst", "predicate"),
    "tensor_tensor": ("dst", "data1"),
}
_MATMUL_DTYPES = ("float16", "bfloat16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn")


class IndirectTensor(NkiTensor):
    """`base` with the columns that `index` names, [P, num_elem]. It is an operand, and no view is made of it."""

    __slots__ = ("base", "index")

    def __init__(self, base: NkiTensor, index: NkiTensor, count: int) -> None:
        super().__init__(base.storage, (base.shape[0], count), (base.strides[0], 1), base.offset, base.dtype)
        self.base = base
        self.index = index

    def _like(self, *_: Any) -> NkiTensor:
        fail("indirect-operand", f"no view is made of {self!r}", "slice the tile or its index tile first")

    def array(self) -> np.ndarray:
        fail("indirect-operand", f"{self!r} is gathered or scattered by an instruction alone")

    def is_indirect(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"indirect {super().__repr__()}"


def indirect(tensor: NkiTensor, index: Any, num_elem: int | None) -> IndirectTensor:
    """`tensor.indirect(index, num_elem)`."""
    core = current_core("NkiTensor.indirect")
    require_generation("NkiTensor.indirect", core, 4)
    require_buffer("indirect", "its tensor", tensor, SBUF + PSUM)
    require_buffer("indirect", "index", require_tensor("indirect", "index", index), SBUF)
    require_dtype("indirect", "index", index, ("uint16",))
    if isinstance(tensor, IndirectTensor | DynamicTensor) or isinstance(index, IndirectTensor | DynamicTensor):
        fail("indirect-operand", f"indirect takes plain tiles, got {tensor!r} and {index!r}")
    if index.shape[0] != tensor.shape[0] or tensor.shape[0] % _GROUP or index.start_partition % _QUADRANT:
        fail(
            "indirect-index",
            f"indirect takes an index for each partition of the tensor, a multiple of {_GROUP} of them from partition "
            f"0, 32, 64 or 96 on, got {index!r} from {index.start_partition} on for {tensor!r}",
        )
    count = index.size if num_elem is None else num_elem
    if not isinstance(count, (int, np.integer)) or not 1 <= count <= index.size:
        fail("indirect-index", f"indirect takes num_elem from 1 to {index.size}, the size of its index, got {count!r}")
    core.indirect = True
    return IndirectTensor(tensor, index, int(count))


# ---- operands of an instruction


@dataclass(frozen=True)
class Stream:
    """An indirect operand while its instruction runs: a plain tile takes its place.

    columns  the elements it stands for, [P, num_elem] in the flattened free axis; None in a price-only run
    """

    operand: str
    of: IndirectTensor
    stand_in: NkiTensor
    columns: np.ndarray | None

    def _places(self) -> tuple[np.ndarray, ...]:
        assert self.columns is not None
        partitions = np.arange(self.of.shape[0])[:, None]
        return (partitions, *np.unravel_index(self.columns, self.of.base.shape[1:]))

    def gather(self) -> None:
        """Fill the stand-in."""
        self.stand_in.target()[...] = self.of.base.array()[self._places()]

    def scatter(self) -> None:
        """Write what the instruction left in the stand-in, and mark these elements alone as written."""
        places = self._places()
        self.of.base.target()[places] = self.stand_in.array()
        taken = np.zeros(self.of.base.shape, bool)
        taken[places] = True
        mark_taken(self.of.base, taken)


def settled(
    core: NeuronCore, name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], list[Stream]]:
    """The arguments with a plain tile in place of every indirect operand."""
    named = dict(zip(signature.parameters, args, strict=False)) | kwargs
    streams: dict[int, Stream] = {}
    for operand, value in named.items():
        if isinstance(value, IndirectTensor):
            streams[id(value)] = _stream(core, name, operand, value, named)
    if not streams:
        return args, kwargs, []

    def stand_in(value: Any) -> Any:
        return streams[id(value)].stand_in if isinstance(value, IndirectTensor) else value

    return tuple(map(stand_in, args)), {key: stand_in(value) for key, value in kwargs.items()}, list(streams.values())


def _stream(core: NeuronCore, name: str, operand: str, value: IndirectTensor, named: dict[str, Any]) -> Stream:
    if name == "nc_matmul_mx" or (name == "nc_matmul" and operand == "dst"):
        raise NotSimulated(
            f"{name} with an indirect {operand} is not supported by this simulator: how it goes with PSUM groups and "
            "MX scales is not documented",
            hint="gather with tensor_copy first",
        )
    if operand not in OPERANDS.get(name, ()):
        allowed = ", ".join(OPERANDS.get(name, ())) or "no operand"
        fail("indirect-operand", f"{name} takes indirect {allowed}, got {operand} {value!r}")
    if name == "nc_matmul":
        require_dtype(name, operand, value, _MATMUL_DTYPES)
        if any(named.get("tile_position") or ()) or (operand == "moving" and named.get("is_transpose")):
            fail("indirect-operand", f"nc_matmul takes an indirect {operand} neither tiled nor transposed")
    index, base = value.index, value.base
    if operand != "dst" and base.start_partition != index.start_partition:
        fail(
            "indirect-index",
            f"{name} takes index and {operand} from one partition on, got {index.start_partition} and "
            f"{base.start_partition}",
        )
    require_written(core, name, index)
    columns = _columns(name, value, _MATMUL_GROUP if name == "nc_matmul" else _GROUP) if core.settings.execute else None
    if operand == "dst" and columns is not None:
        ordered = np.sort(columns, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            fail("indirect-index", f"{name} writes an element of {base!r} twice, in no order that is documented")
    tile = base.storage.tile
    tiles = core.allocate((tile.partitions, value.shape[1]), base.dtype, MemoryRegion(tile.buffer))
    stand_in = tiles[base.start_partition : base.start_partition + base.shape[0]]
    stand_in.storage.written.add(tiles.region())
    return Stream(operand, value, stand_in, columns)


def _columns(name: str, value: IndirectTensor, group: int) -> np.ndarray:
    """The element that each column of each partition stands for."""
    partitions, count = value.shape
    indices = value.index.array().reshape(partitions, -1)
    if partitions % group or count > group * indices.shape[1]:
        fail(
            "indirect-index",
            f"{name} reads the indices of {group} partitions at a time: {partitions} partitions hold at most "
            f"{group * indices.shape[1]} of them, got {count}",
            "pass num_elem",
        )
    order, first = np.arange(count), np.arange(partitions) // group * group
    columns = indices[first[:, None] + order % group, order // group].astype(np.int64)
    if columns.max() >= value.base.free_size:
        partition, column = map(int, np.argwhere(columns >= value.base.free_size)[0])
        fail(
            "out-of-bounds",
            f"{name} reaches element {columns[partition, column]} of the {value.base.free_size} per partition of "
            f"{value.base!r}, by index {column} of partition {partition}",
        )
    return columns


def streamed(steps: Iterator[Step], streams: Sequence[Stream]) -> Iterator[Step]:
    """`steps` on the tensors behind the stand-ins: gathered before, scattered after each effect."""
    behind = {id(stream.stand_in.storage): stream.of.base for stream in streams}
    indices = tuple(stream.of.index for stream in streams)
    for step in steps:
        written = {id(each.storage) for each in step.writes}
        scattered = [each for each in streams if each.operand == "dst" and id(each.stand_in.storage) in written]
        if step.engine == "scalar" and any(stream.of.buffer is MemoryRegion.psum for stream in scattered):
            fail("indirect-operand", "ScalarE scatters into SBUF alone", "scatter from SBUF with VectorE")
        step.reads = (*(behind.get(id(each.storage), each) for each in step.reads), *indices)
        whole = [each for each in step.writes if id(each.storage) not in behind] if step.marks else []
        step.writes = tuple(behind.get(id(each.storage), each) for each in step.writes)
        step.hands_on = False
        if step.effect is not None and all(stream.columns is not None for stream in streams):
            step.effect = functools.partial(_run, step.effect, streams, scattered, whole)
            step.marks = step.marks and not scattered
        yield step


def _run(
    effect: Callable[[], None], streams: Sequence[Stream], scattered: Sequence[Stream], whole: Sequence[NkiTensor]
) -> None:
    """The effect of a step on stand-ins. What is scattered is marked element by element, the rest here as a whole."""
    for stream in streams:
        stream.gather()
    effect()
    for stream in scattered:
        stream.scatter()
    if scattered:
        for tensor in whole:
            tensor.storage.written.add(tensor.region())
