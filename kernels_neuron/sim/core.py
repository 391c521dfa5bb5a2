"""NeuronCore: allocates tiles, issues the steps of instructions, keeps the trace."""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np

from kernels_neuron.arch import Arch
from kernels_neuron.dtypes import ROWS, DType
from kernels_neuron.dtypes import dtype as as_dtype
from kernels_neuron.settings import Settings

from . import switches
from .index import whole_numbers
from .locate import caller, calling_frame, fail
from .memory import Bytes, MemoryRegion, Storage
from .products import Products
from .random import Xorwow
from .show import shown
from .tensor import NkiTensor, row_major
from .trace import Price, Record, Region, Tile, Trace
from .turns import ALONE, Seat
from .unwritten import UnknownSums, forget_readout, is_unwritten, only_fetches, run_over_unwritten

MAX_TENSOR_DIMS = 5


@dataclass(slots=True)
class Step:
    """What an instruction asks of one engine: its price, what it reads and writes, and the effect on those bytes.

    macs    multiply-accumulates, for TensorE steps
    matmul  True when `writes` come from the matmul data path, which PSUM accumulation rules look at
    marks   False when the instruction marks the bytes it wrote itself, because the data decides which they are
    hands_on  True when the instruction says itself which of the bytes it passes on were never written
    meets   True where the step waits for another program: accesses to what it `writes` are ordered around it
    meeting  what the step meets other programs for and who takes part, () for none; see Trace.meetings
    """

    engine: str
    price: Price
    reads: Sequence[NkiTensor] = ()
    writes: Sequence[NkiTensor] = ()
    effect: Callable[[], None] | None = None
    macs: int = 0
    matmul: bool = False
    marks: bool = True
    hands_on: bool = False
    meets: bool = False
    meeting: tuple[object, ...] = ()


class NeuronCore:
    """One physical core running one program of a launch grid.

    shared        the launch's shared-HBM allocations in order: every program gets the tensors the first one made
    seat          how it meets the other programs of the launch
    loops         the dynamic loops that are running, outermost first
    pinned        how many nl.no_reorder blocks are open
    dynamic       whether any operand may have an address or value that is known only when an instruction runs
    indirect      whether any operand may be an indirect one, see isa/indirect.py
    accumulators  the registers of VectorE and ScalarE, which survive from one reducing instruction to the next
    generators    the random numbers of the engines, by engine, from first use on
    identities    nl.shared_identity_matrix by size and dtype, from first use on
    answers       what the rules said about operands, by their layout; see rules.once_per_layout
    products      matrix products that nobody has looked at yet
    prepared      the collective whose first half has run and whose second half has not; see isa/split.py
    defined       which of these registers hold a value that a document defines
    """

    def __init__(
        self,
        arch: Arch,
        settings: Settings,
        program: int = 0,
        programs: int = 1,
        shared: list[Storage] | None = None,
        seat: Seat = ALONE,
    ) -> None:
        self.arch = arch
        self.settings = settings
        self.switches = switches.resolve(settings.switches)
        self.program = program
        self.programs = programs
        self.seat = seat
        self.dynamic = self.indirect = False
        self.loops: tuple[int, ...] = ()
        self.pinned = 0
        self.trace = Trace(arch.name, program, seat.rank)
        self.answers = _answers(arch, settings)
        self._lines: dict[tuple[int, int], tuple[CodeType, int]] = {}  # by place in a code object's instructions
        # running sums of the reducing instructions, one float32 per partition and engine
        self.accumulators = {engine: np.zeros(arch.partitions, np.float32) for engine in ("scalar", "vector")}
        self.defined = {engine: np.zeros(arch.partitions, bool) for engine in ("scalar", "vector")}
        self.generators: dict[str, Xorwow] = {}
        self.identities: dict[tuple[int, DType], NkiTensor] = {}
        self.prepared: Any = None
        self.products = Products()
        self._shared = shared if shared is not None else []
        self._next_shared = 0
        self._shapes: dict[tuple[int, ...], tuple[int, ...]] = {}  # one object for the many tiles of one shape
        self._next_tile = seat.index << 32  # programs share HBM tensors, never tile ids

    # ---- allocation

    def allocate(
        self,
        shape: Sequence[int],
        dtype: Any,
        buffer: MemoryRegion,
        name: str = "",
        address: tuple[int, int] | None = None,
    ) -> NkiTensor:
        """A new tensor whose bytes are unwritten."""
        shape = _checked_shape(shape, buffer)
        shape = self._shapes.setdefault(shape, shape)
        dtype = as_dtype(dtype)
        if not isinstance(buffer, MemoryRegion):
            fail("buffer-type", f"buffer takes nl.sbuf, nl.psum or an HBM region, got {buffer!r}")
        if buffer.on_chip and shape[0] > self.arch.partitions:
            fail(
                "partition-limit",
                f"a {buffer.value} tile has at most {self.arch.partitions} partitions, got {list(shape)}",
                "split the partition axis into tiles of nl.tile_size.pmax",
            )
        if buffer is MemoryRegion.shared_hbm and self._next_shared < len(self._shared):
            return self._adopt_shared(shape, dtype)
        storage = self._new_storage(shape, dtype, buffer, name, address)
        if buffer is MemoryRegion.shared_hbm:
            self._shared.append(storage)
            self._next_shared += 1
        return _whole(storage, shape)

    def _adopt_shared(self, shape: tuple[int, ...], dtype: DType) -> NkiTensor:
        storage = self._shared[self._next_shared]
        self._next_shared += 1
        if storage.tile.shape != shape or storage.dtype != dtype:
            fail(
                "lnc-divergence",
                f"program {self.program} allocates shared_hbm {dtype}{list(shape)} "
                f"where program 0 allocated {storage.tile}",
            )
        self.trace.tiles[storage.tile.id] = storage.tile
        return _whole(storage, shape)

    def _new_storage(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        buffer: MemoryRegion,
        name: str,
        address: tuple[int, int] | None,
        data: np.ndarray | None = None,
    ) -> Storage:
        item = ROWS[dtype].itemsize
        partitions, nbytes = (shape[0], math.prod(shape[1:]) * item) if buffer.on_chip else (1, math.prod(shape) * item)
        tile = Tile(
            self._next_tile,
            name,
            buffer.value,
            dtype,
            shape,
            partitions,
            nbytes,
            self.line(),
            address,
        )
        self._next_tile += 1
        is_input = data is not None
        there: Bytes | None = None
        if data is not None:
            there = Bytes(data.data.toreadonly(), 0, nbytes, shared=True)
        elif self.settings.execute:
            there = Bytes(np.empty(partitions * nbytes, np.uint8).data, 0, nbytes)
        storage = Storage(tile, buffer, dtype, there, is_input=is_input)
        self.trace.tiles[tile.id] = tile
        return storage

    def bind_input(
        self, array: np.ndarray, dtype: DType, name: str, buffer: MemoryRegion = MemoryRegion.shared_hbm
    ) -> Storage:
        """A kernel argument or constant in HBM over the bytes of `array`, which is contiguous and stays unchanged."""
        flat = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
        return self._new_storage(array.shape, dtype, buffer, name, None, flat)

    def adopt_input(self, storage: Storage) -> None:
        """Share an argument bound by program 0."""
        self.trace.tiles[storage.tile.id] = storage.tile

    # ---- execution

    def line(self) -> int:
        """The index in trace.lines of the kernel's line that is running."""
        frame = calling_frame(beyond=3)  # this one, and two at least that lead here
        code = frame.f_code
        # the line of a frame is found by walking a table, so once for each place; `code` is kept, its id stays its own
        place = (id(code), frame.f_lasti)
        known = self._lines.get(place)
        if known is None:
            known = self._lines[place] = (code, self.trace.line_id(code.co_filename, frame.f_lineno))
        return known[1]

    def issue(self, name: str, steps: Iterable[Step]) -> int:
        """Run the steps of one instruction in order and record them; the instruction's index."""
        trace, execute = self.trace, self.settings.execute
        where = self.line()
        instruction = trace.instructions
        trace.instructions += 1
        unknown: UnknownSums | None = None
        fetched: list[NkiTensor] = []  # unwritten operands of steps that only fetch, such as loads of weights
        for step in steps:
            unwritten = [tensor for tensor in step.reads if not tensor.storage.written.whole and is_unwritten(tensor)]
            if unwritten and only_fetches(self, step):
                fetched, unwritten = unwritten, []
            elif fetched:
                fetched, unwritten = [], [*unwritten, *fetched]
            if unwritten and not step.hands_on:
                unknown = run_over_unwritten(self, name, step, unwritten)
            elif execute and step.effect is not None:
                step.effect()
            marks = step.marks and (not unwritten or step.hands_on)
            for tensor in step.writes:
                storage = tensor.storage
                if marks and not storage.written.whole:
                    storage.written.add(tensor.region())
                if step.matmul and not storage.mm_written.whole:
                    storage.mm_written.add(tensor.region())
            if unknown is not None and not unwritten:
                forget_readout(step, unknown)
            reads, writes = _regions(step.reads), _regions(step.writes)
            trace.records.append(
                Record._make((name, step.engine, step.price, reads, writes, instruction, where, step.macs))
            )
            if step.meeting:
                self.trace.meetings[len(self.trace.records) - 1] = step.meeting
            if self.programs > 1:
                self._note_for_races(step)
            if self.settings.watch:
                self._show_watched(name, step.writes)
        return instruction

    def _note_for_races(self, step: Step) -> None:
        """Note barriers, and what the step left in HBM: two programs that store the same values there are no race."""
        if step.meets:
            self.trace.barriers[len(self.trace.records) - 1] = step.writes[0].storage.tile.id if step.writes else None
            return
        for tensor in step.writes:
            if not tensor.on_chip:
                digest = zlib.crc32(tensor.array().tobytes()) if self.settings.execute else 0
                self.trace.hbm_digests[len(self.trace.records) - 1] = digest

    def _show_watched(self, name: str, tensors: Sequence[NkiTensor]) -> None:
        for tensor in tensors:
            tile = tensor.storage.tile
            if self.settings.execute and not {tile.name, self.trace.where(tile.where)}.isdisjoint(self.settings.watch):
                file, line = caller()
                sys.stdout.write(f"{file.rsplit('/', 1)[-1]}:{line}: {name} wrote {shown(tensor)}\n")


def _regions(tensors: Sequence[NkiTensor]) -> tuple[Region, ...]:
    return tensors[0].regions() if len(tensors) == 1 else tuple([tensor.region() for tensor in tensors])


_ANSWERS: dict[tuple[object, ...], tuple[Arch, dict[Any, Any]]] = {}
_MAX_ANSWERS = 16


def _answers(arch: Arch, settings: Settings) -> dict[Any, Any]:
    """What rules.once_per_layout remembers for runs with this chip and these settings."""
    # `arch` is kept, so that its id stays its own
    key = (id(arch), settings.nki, *sorted(settings.switches.items()))
    if key not in _ANSWERS:
        if len(_ANSWERS) >= _MAX_ANSWERS:
            _ANSWERS.clear()
        _ANSWERS[key] = (arch, {})
    return _ANSWERS[key][1]


def _checked_shape(shape: Sequence[int], buffer: Any) -> tuple[int, ...]:
    sizes = whole_numbers("shape", (shape,) if isinstance(shape, (int, np.integer)) else shape)
    if not sizes or min(sizes) < 1:
        fail("shape-empty", f"a tensor has at least one element, got shape {list(sizes)}")
    if len(sizes) > MAX_TENSOR_DIMS and getattr(buffer, "on_chip", False):
        fail("view-rank", f"an on-chip tensor has at most {MAX_TENSOR_DIMS} dims, got {list(sizes)}")
    if len(sizes) < 2 and getattr(buffer, "on_chip", False):
        fail(
            "tile-rank",
            f"an on-chip tensor has a partition and a free axis, got shape {list(sizes)}",
            "use shape (1, n) or (n, 1)",
        )
    return sizes


def _whole(storage: Storage, shape: tuple[int, ...]) -> NkiTensor:
    return NkiTensor(storage, shape, row_major(shape), 0, storage.dtype)


def whole(storage: Storage) -> NkiTensor:
    """The view of a whole allocation."""
    return _whole(storage, storage.tile.shape)
