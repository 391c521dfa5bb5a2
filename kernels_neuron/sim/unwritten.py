"""Instructions that read bytes nothing has written: what they compute from them counts as unwritten too.

A kernel may copy lanes of a ragged tile that it never uses, so such a read is no error; an error is a result, an
address or a register that depends on one. What depends on them is found by trying: the step runs twice, over two
different fillings of the unwritten bytes, and the bytes that come out different are unwritten.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernels_neuron.dtypes import ROWS

from .locate import caller, fail
from .memory import Coverage
from .random import Xorwow
from .tensor import NkiTensor

if TYPE_CHECKING:
    from .core import NeuronCore, Step

State = tuple[list[np.ndarray], dict[str, np.ndarray], dict[str, Xorwow]]

HINT = "write the whole region first, or read a shorter slice"


@dataclass(frozen=True)
class UnknownSums:
    """Accumulator registers that depend on unwritten memory: the read it came from, partitions by engine."""

    origin: str
    rows: dict[str, np.ndarray]


def is_unwritten(tensor: NkiTensor) -> bool:
    """Whether the view covers a byte that nothing has written."""
    return bool(tensor.size) and not tensor.storage.written.contains(tensor.region())


def written_elements(tensor: NkiTensor) -> np.ndarray | None:
    """Which elements of the view were written, in its shape; None where all were."""
    if not is_unwritten(tensor):
        return None
    table = tensor.storage.written.table()
    strides = [stride * tensor.itemsize for stride in tensor.strides]
    return np.ndarray(tensor.shape, bool, table.data, tensor.offset * tensor.itemsize, strides).copy()


def only_fetches(core: NeuronCore, step: Step) -> bool:
    """Whether a later step of the same instruction computes with what this one reads."""
    return not step.writes and step.effect is None and core.switches["unwritten_read"] == "track"


def require_written(core: NeuronCore, name: str, tensor: NkiTensor) -> None:
    """Refuse to read bytes that nothing has written, where their values decide what happens next."""
    if is_unwritten(tensor):
        fail("unwritten-read", _describe(core, name, tensor), HINT)


def _describe(core: NeuronCore, name: str, tensor: NkiTensor) -> str:
    allocated = core.trace.where(tensor.storage.tile.where)
    return f"{name} reads bytes of {tensor!r} that nothing has written (allocated at {allocated})"


def run_over_unwritten(core: NeuronCore, name: str, step: Step, unwritten: Sequence[NkiTensor]) -> UnknownSums | None:
    """Run a step that reads `unwritten` operands, and take what depends on them out of what is written.

    Returns which accumulator registers depend on them, for the step that reads them out; a later instruction finds NaN.
    """
    if not step.writes or core.switches["unwritten_read"] == "refuse":
        fail("unwritten-read", _describe(core, name, unwritten[0]), HINT)
    file, line = caller()
    origin = unwritten[0].storage.unwritten_read or (
        f"{file.rsplit('/', 1)[-1]}:{line}: {_describe(core, name, unwritten[0])}"
    )
    if not core.settings.execute or step.effect is None:
        for tensor in step.writes:
            tensor.storage.written.add(tensor.region())
        return None
    holes = [~tensor.storage.written.window(tensor.region()) for tensor in unwritten]
    before = _state(core, step)
    _fill(unwritten, holes, 0)
    step.effect()
    with_zeros = _state(core, step)
    _restore(core, step, before)
    _fill(unwritten, holes, 255)
    step.effect()
    with_ones = _state(core, step)
    for tensor, first, second in zip(step.writes, with_zeros[0], with_ones[0], strict=True):
        _forget(tensor, first != second, origin, step.marks)
    rows = {
        engine: with_zeros[1][engine].view(np.uint32) != values.view(np.uint32)
        for engine, values in with_ones[1].items()
    }
    return UnknownSums(origin, rows)


def forget_readout(step: Step, unknown: UnknownSums) -> None:
    """Take out of what is written the rows that a step without operands read from `unknown` registers."""
    rows = unknown.rows.get(step.engine)
    if rows is None or step.reads or not rows.any():
        return
    for tensor in step.writes:
        first = tensor.start_partition
        mask = rows[first : first + tensor.shape[0]].reshape(-1, *[1] * (tensor.ndim - 1))
        forget_elements(tensor, np.broadcast_to(mask, tensor.shape))
        tensor.storage.unwritten_read = unknown.origin


def _state(core: NeuronCore, step: Step) -> State:
    written = [_bytes(tensor).copy() for tensor in step.writes]
    sums = {engine: values.copy() for engine, values in core.accumulators.items()}
    return written, sums, copy.deepcopy(core.generators)


def _restore(core: NeuronCore, step: Step, state: State) -> None:
    for tensor, values in zip(step.writes, state[0], strict=True):
        _bytes(tensor)[...] = values
    for engine, values in state[1].items():
        core.accumulators[engine][...] = values
    core.generators = copy.deepcopy(state[2])


def _fill(tensors: Sequence[NkiTensor], holes: Sequence[np.ndarray], value: int) -> None:
    for tensor, hole in zip(tensors, holes, strict=True):
        # all ones is NaN or -1; a bool has no such byte
        filling = min(value, 1) if ROWS[tensor.dtype].kind == "bool" else value
        target = _bytes(tensor)
        np.copyto(target, np.uint8(filling), where=hole.reshape(target.shape))


def _bytes(tensor: NkiTensor) -> np.ndarray:
    """The bytes of the view's region, writable, as Coverage lays them out."""
    tensor.storage.make_writable()
    return Coverage.select(tensor.storage.table(), tensor.region())


def _forget(tensor: NkiTensor, differs: np.ndarray, origin: str, marks: bool) -> None:
    storage, region = tensor.storage, tensor.region()
    if marks:
        storage.written.add(region)
    if differs.any():
        item = tensor.itemsize
        elements = differs.reshape(*differs.shape[:-1], -1, item).any(axis=-1, keepdims=True)
        storage.written.remove(region, np.broadcast_to(elements, (*elements.shape[:-1], item)).reshape(differs.shape))
        storage.unwritten_read = origin


def forget_elements(tensor: NkiTensor, unknown: np.ndarray) -> None:
    """Count the view as written, but for the elements where `unknown`, in its shape, says so."""
    written = tensor.storage.written
    written.add(tensor.region())
    table = np.zeros((tensor.storage.tile.partitions, tensor.storage.tile.nbytes), bool)
    strides = [stride * tensor.itemsize for stride in tensor.strides]
    for byte in range(tensor.itemsize):
        view = np.ndarray(tensor.shape, bool, table.data, tensor.offset * tensor.itemsize + byte, strides)
        view[...] = unknown
    written.remove(tensor.region(), Coverage.select(table, tensor.region()).copy())
