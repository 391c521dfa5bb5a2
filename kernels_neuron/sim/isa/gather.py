"""GpSimdE instructions that gather along the free axis, reduce over partitions, and look for elements."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels_neuron.dtypes import ROWS
from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.tensor import NkiTensor

from .ops import Op
from .prices import PRICES, facts
from .rules import (
    SBUF,
    mark_taken,
    require_dtype,
    require_generation,
    require_integer,
    require_op,
    require_same_extent,
    require_tile,
)
from .table import instruction
from .vector import write

CORE_PARTITIONS = 16  # partitions of one of GpSimdE's 8 processors
_PIECES = (1, 2, 4, 8, 16, 32)
_MAX_INDICES = 4096
_PARTITION_OPS = ("add", "average", "maximum", "bitwise_or", "bitwise_and")


def _require_cores(name: str, operand: str, tensor: NkiTensor) -> None:
    if tensor.shape[0] % CORE_PARTITIONS:
        fail("gpsimd-cores", f"{name} takes {operand} of a multiple of {CORE_PARTITIONS} partitions, got {tensor!r}")


@instruction
def local_gather(
    core: NeuronCore,
    dst: NkiTensor,
    src_buffer: NkiTensor,
    index: NkiTensor,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> Iterator[Step]:
    """dst[p, i, e] = src_buffer[p, index_i + e], the indices being those of p's group of 16 partitions.

    index_i of a group is index[16 g + i % 16, i // 16]; the first num_valid_indices count, all by default.
    Operands: SBUF; dst, src_buffer of one dtype; index uint16 on as many partitions as src_buffer, a multiple of 16;
    num_elem_per_idx 1, 2, 4, 8, 16 or 32; at most 4096 indices per group; dst has num_valid * num_elem elements per
    partition. Indices that leave src_buffer are refused, their effect is not documented.
    Engines: GpSimdE. Source: NKI ISA reference, local_gather.
    """
    for operand, tensor in (("dst", dst), ("src_buffer", src_buffer), ("index", index)):
        require_tile("local_gather", operand, tensor, core, SBUF)
    _require_cores("local_gather", "src_buffer", src_buffer)
    require_dtype("local_gather", "index", index, ("uint16",))
    require_dtype("local_gather", "dst", dst, (src_buffer.dtype,))
    if num_elem_per_idx not in _PIECES:
        fail("gather-piece", f"local_gather takes num_elem_per_idx of {_PIECES}, got {num_elem_per_idx!r}")
    partitions, total = src_buffer.shape[0], CORE_PARTITIONS * index.free_size
    valid = total if num_valid_indices is None else num_valid_indices
    if not isinstance(valid, (int, np.integer)) or not 1 <= valid <= min(total, _MAX_INDICES):
        fail("gather-count", f"local_gather takes 1 to {min(total, _MAX_INDICES)} valid indices, got {valid!r}")
    if (
        index.shape[0] != partitions
        or dst.shape[0] != partitions
        or dst.free_size != valid * num_elem_per_idx
        or src_buffer.free_size < num_elem_per_idx
    ):
        fail(
            "operand-extent",
            f"local_gather of {valid} indices into {src_buffer!r} gives [{partitions}, {valid}, {num_elem_per_idx}] "
            f"with index on as many partitions, dst is {dst!r} and index is {index!r}",
        )
    price = PRICES["local_gather"](
        core.arch, facts("gpsimd", dst, src_buffer, op=str(num_elem_per_idx))._replace(n=valid * num_elem_per_idx)
    )

    def effect() -> None:
        source = src_buffer.array().reshape(partitions, -1)
        wanted = index.array().reshape(partitions, -1)
        out = np.empty((partitions, valid, num_elem_per_idx), source.dtype)
        for first in range(0, partitions, CORE_PARTITIONS):
            group = slice(first, first + CORE_PARTITIONS)
            places = wanted[group].T.reshape(-1)[:valid].astype(np.int64)[:, None] + np.arange(num_elem_per_idx)
            _require_inside("local_gather", places, src_buffer)
            out[group] = source[group][:, places]
        dst.target()[...] = out.reshape(dst.shape)

    yield Step("gpsimd", price, reads=(src_buffer, index), writes=(dst,), effect=effect)


def _require_inside(name: str, places: np.ndarray, data: NkiTensor) -> None:
    if places.size and not 0 <= int(places.min()) <= int(places.max()) < data.free_size:
        bad = int(places.max() if places.max() >= data.free_size else places.min())
        fail("gather-index", f"{name} reaches element {bad} of the {data.free_size} per partition of {data!r}")


@instruction
def nc_n_gather(
    core: NeuronCore, dst: NkiTensor, data: NkiTensor, indices: NkiTensor, name: str | None = None
) -> Iterator[Step]:
    """dst[p, i] = data[p, indices[p, i]], the free dims of data read as one.

    Operands: SBUF; dst of data's dtype; indices uint32, as many as dst has elements, all inside data.
    Engines: GpSimdE. Source: NKI ISA reference, nc_n_gather.
    """
    for operand, tensor in (("dst", dst), ("data", data), ("indices", indices)):
        require_tile("nc_n_gather", operand, tensor, core, SBUF)
    require_dtype("nc_n_gather", "indices", indices, ("uint32",))
    require_dtype("nc_n_gather", "dst", dst, (data.dtype,))
    require_same_extent("nc_n_gather", dst=dst, indices=indices)
    if data.shape[0] != dst.shape[0]:
        fail("operand-extent", f"nc_n_gather takes one partition count, dst is {dst!r} and data is {data!r}")
    price = PRICES["nc_n_gather"](core.arch, facts("gpsimd", dst, data))

    def effect() -> None:
        places = indices.array().reshape(dst.shape[0], -1).astype(np.int64)
        _require_inside("nc_n_gather", places, data)
        out = np.take_along_axis(data.array().reshape(dst.shape[0], -1), places, axis=1)
        dst.target()[...] = out.reshape(dst.shape)

    yield Step("gpsimd", price, reads=(data, indices), writes=(dst,), effect=effect)


@instruction
def nonzero_with_count(
    core: NeuronCore,
    dst: NkiTensor,
    src: NkiTensor,
    index_offset: int = 0,
    padding_val: int = -1,
    name: str | None = None,
) -> Iterator[Step]:
    """dst[p] = indices of the elements of src[p] that are not 0, plus index_offset; padding_val; their number.

    Only partitions 0, 16, 32, .. are read and written. Operands: SBUF; src [P, T] float32 or int32; dst [P, T + 1]
    int32, whose last column is the number. trn2 on. Engines: GpSimdE.
    Source: NKI ISA reference, nonzero_with_count.
    """
    require_generation("nonzero_with_count", core, 3)
    require_tile("nonzero_with_count", "dst", dst, core, SBUF)
    require_tile("nonzero_with_count", "src", src, core, SBUF)
    require_dtype("nonzero_with_count", "src", src, ("float32", "int32"))
    require_dtype("nonzero_with_count", "dst", dst, ("int32",))
    for operand, value in (("index_offset", index_offset), ("padding_val", padding_val)):
        if not isinstance(value, (int, np.integer)):
            fail("operand-type", f"nonzero_with_count takes an integer as {operand}, got {value!r}")
    if dst.shape[0] != src.shape[0] or dst.free_size != src.free_size + 1:
        fail(
            "operand-extent",
            f"nonzero_with_count of {src!r} gives [{src.shape[0]}, {src.free_size + 1}], dst is {dst!r}",
        )
    price = PRICES["nonzero_with_count"](core.arch, facts("gpsimd", dst, src))
    lanes = [slice(first, first + 1) for first in range(0, src.shape[0], CORE_PARTITIONS)]

    def effect() -> None:
        for lane in lanes:
            found = np.flatnonzero(src.array()[lane].reshape(-1))
            row = np.full(src.free_size + 1, padding_val, np.int32)
            row[: len(found)] = found + index_offset
            row[-1] = len(found)
            target = dst.target()[lane]
            target[...] = row.reshape(target.shape)

    yield Step(
        "gpsimd", price, reads=[src[lane] for lane in lanes], writes=[dst[lane] for lane in lanes], effect=effect
    )


@instruction
def sequence_bounds(
    core: NeuronCore, dst: NkiTensor, segment_ids: NkiTensor, name: str | None = None
) -> Iterator[Step]:
    """dst[0, 0, i], dst[0, 1, i] = first element of the run of equal ids that i lies in, and one past its last.

    An id of 0 is padding: (n, -1). Operands: SBUF; segment_ids [1, n], dst [1, 2, n], float32 or int32, ids >= 0.
    Engines: GpSimdE. Source: NKI ISA reference, sequence_bounds.
    """
    for operand, tensor in (("dst", dst), ("segment_ids", segment_ids)):
        require_tile("sequence_bounds", operand, tensor, core, SBUF)
        require_dtype("sequence_bounds", operand, tensor, ("float32", "int32"))
    n = segment_ids.free_size
    if segment_ids.shape[0] != 1 or dst.shape[0] != 1 or dst.free_size != 2 * n:
        fail("operand-extent", f"sequence_bounds takes [1, n] and gives [1, 2, n], got {segment_ids!r} and {dst!r}")
    price = PRICES["sequence_bounds"](core.arch, facts("gpsimd", dst, segment_ids))

    def effect() -> None:
        ids = segment_ids.array().reshape(-1)
        edges = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1], [True]]))
        run = np.searchsorted(edges, np.arange(n), side="right") - 1
        bounds = np.stack([np.where(ids == 0, n, edges[run]), np.where(ids == 0, -1, edges[run + 1])])
        dst.target()[...] = bounds.reshape(dst.shape)

    yield Step("gpsimd", price, reads=(segment_ids,), writes=(dst,), effect=effect)


@instruction
def topk(
    core: NeuronCore, val_dst: NkiTensor, idx_dst: NkiTensor, src: NkiTensor, n: int, name: str | None = None
) -> Iterator[Step]:
    """The K largest of the first n elements of every group of 16 partitions, ascending, and where they were.

    Element e of a group lies at partition 16 g + e % 16, column e // 16, and so do the results: only the first
    ceil(K / 16) columns of the [P, K] outputs are written.
    Operands: SBUF; P a multiple of 16; src, val_dst bfloat16; idx_dst uint32; K the free size of both outputs;
    8 <= n < 65536, K <= n, K < 32768. Engines: GpSimdE.
    Source: NKI ISA reference, topk; layout of the results from the kernel library's documentation.
    """
    for operand, tensor, dtype in (
        ("val_dst", val_dst, "bfloat16"),
        ("idx_dst", idx_dst, "uint32"),
        ("src", src, "bfloat16"),
    ):
        require_tile("topk", operand, tensor, core, SBUF)
        require_dtype("topk", operand, tensor, (dtype,))
        _require_cores("topk", operand, tensor)
    require_same_extent("topk", val_dst=val_dst, idx_dst=idx_dst)
    count = val_dst.free_size
    if not isinstance(n, (int, np.integer)) or not 8 <= n < 65536 or src.free_size * CORE_PARTITIONS < n:
        fail("topk-count", f"topk takes n from 8 to 65535 inside src, got {n!r} of {src!r}")
    if not count <= n or count >= 32768:
        fail("topk-count", f"topk finds at most n and fewer than 32768 elements, got {count} of {n}")
    if src.shape[0] != val_dst.shape[0]:
        fail("operand-extent", f"topk takes one partition count, src is {src!r} and val_dst is {val_dst!r}")
    price = PRICES["topk"](core.arch, facts("gpsimd", val_dst, src)._replace(n=4 * n + count))

    def effect() -> None:
        columns = -(-count // CORE_PARTITIONS)
        values, places = (
            np.zeros((groups_of(src), columns * CORE_PARTITIONS), kind) for kind in (np.float32, np.uint32)
        )
        snake = (
            src.f32().reshape(groups_of(src), CORE_PARTITIONS, -1).transpose(0, 2, 1).reshape(groups_of(src), -1)[:, :n]
        )
        order = np.argsort(snake, axis=1, kind="stable")[:, n - count :]
        values[:, :count], places[:, :count] = np.take_along_axis(snake, order, axis=1), order
        written = np.zeros((src.shape[0], count), bool)
        written[:, :columns] = _unsnake(np.broadcast_to(np.arange(columns * CORE_PARTITIONS) < count, values.shape))
        for tensor, results in ((val_dst, values), (idx_dst, places)):
            full = np.zeros((src.shape[0], count), results.dtype)
            full[:, :columns] = _unsnake(results)
            taken = written.reshape(tensor.shape)
            np.copyto(tensor.target(), full.reshape(tensor.shape).astype(tensor.dtype.numpy), where=taken)
            mark_taken(tensor, taken)

    yield Step("gpsimd", price, reads=(src,), writes=(val_dst, idx_dst), effect=effect, marks=not core.has_values)


def groups_of(src: NkiTensor) -> int:
    """Groups of 16 partitions in `src`."""
    return src.shape[0] // CORE_PARTITIONS


def _unsnake(results: np.ndarray) -> np.ndarray:
    """[groups, 16 c] in snake order as [16 groups, c]."""
    groups = len(results)
    return results.reshape(groups, -1, CORE_PARTITIONS).transpose(0, 2, 1).reshape(groups * CORE_PARTITIONS, -1)


@instruction
def tensor_partition_reduce(
    core: NeuronCore, dst: NkiTensor, op: Op, data: NkiTensor, name: str | None = None
) -> Iterator[Step]:
    """dst[0, f] = op over all partitions p of data[p, f], in float32.

    Operands: SBUF; dst of one partition and as many elements per partition as data. op add, average, maximum, or
    bitwise_or, bitwise_and on integers of one width. Engines: GpSimdE.
    Source: NKI ISA reference, tensor_partition_reduce.
    """
    require_tile("tensor_partition_reduce", "dst", dst, core, SBUF)
    require_tile("tensor_partition_reduce", "data", data, core, SBUF)
    if require_op("tensor_partition_reduce", "op", op).name not in _PARTITION_OPS:
        fail("op-kind", f"tensor_partition_reduce takes {', '.join(_PARTITION_OPS)}, got {op!r}")
    if dst.shape[0] != 1 or dst.free_size != data.free_size:
        fail("operand-extent", f"tensor_partition_reduce of {data!r} gives [1, {data.free_size}], dst is {dst!r}")
    if op.bitvec:
        require_integer("tensor_partition_reduce", dst=dst, data=data)
        if ROWS[dst.dtype].itemsize != ROWS[data.dtype].itemsize:
            fail("bitvec-dtype", f"tensor_partition_reduce of bits keeps the width, got {data.dtype} and {dst.dtype}")
    price = PRICES["tensor_partition_reduce"](core.arch, facts("gpsimd", dst, data))

    def effect() -> None:
        if op.bitvec:
            assert op.reduce is not None
            bits: Any = op.reduce.reduce(data.array().reshape(data.shape[0], -1), axis=0)
            dst.target()[...] = bits.view(dst.dtype.numpy).reshape(dst.shape)
            return
        values = data.f32()
        reduce: Any = {"add": np.sum, "average": np.mean, "maximum": np.max}[op.name]
        result = reduce(values, axis=0)
        write(core, dst, result.astype(np.float32, copy=False))

    yield Step("gpsimd", price, reads=(data,), writes=(dst,), effect=effect)
