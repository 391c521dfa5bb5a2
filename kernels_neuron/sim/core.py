"""NeuronCore: allocates tiles, issues the steps of instructions, keeps the trace."""

from __future__ import annotations

import functools
import math
import operator
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
from .layout import Layout, row_major
from .locate import caller, calling_frame, fail
from .memory import FRESH, Bytes, MemoryRegion, Storage
from .products import Products
from .programs import MAX_STEPS
from .random import Xorwow
from .show import shown
from .tensor import NkiTensor
from .trace import Price, Record, Tile, Trace
from .turns import ALONE, Seat
from .unwritten import UnknownSums, forget_readout, is_unwritten, only_fetches, run_over_unwritten

MAX_TENSOR_DIMS = 5

# without the call of Python code that a named tuple's own constructor makes
_new_record = functools.partial(tuple.__new__, Record)
_new_tile = functools.partial(tuple.__new__, Tile)


@dataclass(slots=True)
class Step:
    """What an instruction asks of one engine: its price, what it reads and writes, and the effect on those bytes.

    An instruction that does the same again, as passes of TensorE do, yields the same object again.

    macs    multiply-accumulates, for TensorE steps
    matmul  True when `writes` come from the matmul data path, which PSUM accumulation rules look at
    marks   False when the instruction marks the bytes it wrote itself, because the data decides which they are
    hands_on  True when the instruction says itself which of the bytes it passes on were never written
    meets   True where the step waits for another program: accesses to what it `writes` are ordered around it
    record   what is noted of the step; set when it is issued, unless it reads unwritten bytes
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
    record: Record | None = None


class _Kind:
    """What allocations of one shape, dtype and memory have in common.

    partitions, nbytes  on chip: partitions, and bytes of each; in HBM: 1, and all bytes
    """

    def __init__(self, shape: tuple[int, ...], dtype: DType, buffer: MemoryRegion) -> None:
        self.shape = shape
        self.strides = row_major(shape)
        self.dtype = dtype
        self.buffer = buffer
        self.memory: str = buffer.value
        item, on_chip = ROWS[dtype].itemsize, buffer.on_chip
        self.partitions = shape[0] if on_chip else 1
        self.nbytes = math.prod(shape[1:] if on_chip else shape) * item
        self.layout: Layout | None = None

    def whole(self, storage: Storage) -> NkiTensor:
        """The view of a whole allocation of this kind."""
        tensor = NkiTensor(storage, self.shape, self.strides, 0, self.dtype, self.layout)
        if self.layout is None:
            self.layout = tensor.layout
        return tensor


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
    steps         those of the run so far where it is to become a program; see programs.py
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
        self.steps: list[Step] | None = None
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
        self._kinds: dict[tuple[object, ...], _Kind] = {}  # by the shape, dtype and memory that a kernel asks for
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
        try:
            # 8.0 is equal to 8 and no size
            kind = self._kinds[tuple(map(operator.index, shape)), dtype, buffer]
        except (KeyError, TypeError):  # a new one, or one that cannot be
            kind = self._kind(shape, dtype, buffer)
            self._kinds[kind.shape, dtype, buffer] = kind
        if buffer is MemoryRegion.shared_hbm and self._next_shared < len(self._shared):
            return self._adopt_shared(kind)
        storage = self._new_storage(kind, name, address, None)
        if self.settings.execute:
            storage.due = FRESH
        if buffer is MemoryRegion.shared_hbm:
            self._shared.append(storage)
            self._next_shared += 1
        return kind.whole(storage)

    def _kind(self, shape: Sequence[int], dtype: Any, buffer: MemoryRegion) -> _Kind:
        shape = _checked_shape(shape, buffer)
        dtype = as_dtype(dtype)
        if not isinstance(buffer, MemoryRegion):
            fail("buffer-type", f"buffer takes nl.sbuf, nl.psum or an HBM region, got {buffer!r}")
        if buffer.on_chip and shape[0] > self.arch.partitions:
            fail(
                "partition-limit",
                f"a {buffer.value} tile has at most {self.arch.partitions} partitions, got {list(shape)}",
                "split the partition axis into tiles of nl.tile_size.pmax",
            )
        return _Kind(shape, dtype, buffer)

    def _adopt_shared(self, kind: _Kind) -> NkiTensor:
        storage = self._shared[self._next_shared]
        self._next_shared += 1
        if storage.tile.shape != kind.shape or storage.dtype != kind.dtype:
            fail(
                "lnc-divergence",
                f"program {self.program} allocates shared_hbm {kind.dtype}{list(kind.shape)} "
                f"where program 0 allocated {storage.tile}",
            )
        self.trace.tiles[storage.tile.id] = storage.tile
        return kind.whole(storage)

    def _new_storage(
        self,
        kind: _Kind,
        name: str,
        address: tuple[int, int] | None,
        there: Bytes | None,
        is_input: bool = False,
    ) -> Storage:
        number = self._next_tile
        self._next_tile += 1
        size = kind.partitions, kind.nbytes, self.line(), address
        tile = self.trace.tiles[number] = _new_tile((number, name, kind.memory, kind.dtype, kind.shape, *size))
        return Storage(tile, kind.buffer, kind.dtype, there, is_input=is_input)

    def bind_input(
        self, array: np.ndarray, dtype: DType, name: str, buffer: MemoryRegion = MemoryRegion.shared_hbm
    ) -> Storage:
        """A kernel argument or constant in HBM over the bytes of `array`, which is contiguous and stays unchanged."""
        return self._new_storage(_Kind(array.shape, dtype, buffer), name, None, Bytes.of(array), is_input=True)

    def adopt_input(self, storage: Storage) -> None:
        """Share an argument bound by program 0."""
        self.trace.tiles[storage.tile.id] = storage.tile

    # ---- execution

    @property
    def has_values(self) -> bool:
        """Whether a step finds values when it runs: now, or later in a program."""
        return self.settings.execute or self.steps is not None

    def repeats(self) -> bool:
        """Whether other values make the steps so far no others."""
        return self.steps is not None and not (self.dynamic or self.indirect)

    def runs_once(self) -> None:
        """The run depends on values: it will be no program."""
        self.steps = None

    def line(self) -> int:
        """The index in trace.lines of the kernel's line that is running."""
        frame = sys._getframe(4)  # the kernel's, where it called an instruction or made a tile itself
        known = self._lines.get((id(frame.f_code), frame.f_lasti))
        if known is None:
            frame = calling_frame(beyond=4)
            code, place = frame.f_code, (id(frame.f_code), frame.f_lasti)
            # the line of a frame is found by walking a table, so once for each place; `code` is kept, its id stays
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
        fetched: Sequence[NkiTensor] = ()  # unwritten operands of steps that only fetch, such as loads of weights
        for step in steps:
            if step.record is not None:
                trace.records.append(step.record)
                continue
            reads, writes = step.reads, step.writes
            unwritten: Sequence[NkiTensor] = ()
            for tensor in reads:
                if not tensor.storage.written.whole and is_unwritten(tensor):
                    unwritten = (*unwritten, tensor)
            if unwritten and only_fetches(self, step):
                fetched, unwritten = unwritten, ()
            elif fetched:
                fetched, unwritten = (), (*unwritten, *fetched)
            if unwritten and not step.hands_on:
                unknown = run_over_unwritten(self, name, step, unwritten)
            elif execute and step.effect is not None:
                step.effect()
            marks = step.marks and (not unwritten or step.hands_on)
            for tensor in writes:
                storage = tensor.storage
                storage.stored = True
                if marks and not storage.written.whole:
                    storage.written.add(tensor.region())
                if step.matmul and not storage.mm_written.whole:
                    storage.mm_written.add(tensor.region())
            if unknown is not None and not unwritten:
                forget_readout(step, unknown)
            record = _new_record(
                (
                    name,
                    step.engine,
                    step.price,
                    reads[0].regions() if len(reads) == 1 else tuple([tensor.region() for tensor in reads]),
                    writes[0].regions() if len(writes) == 1 else tuple([tensor.region() for tensor in writes]),
                    instruction,
                    where,
                    step.macs,
                )
            )
            trace.records.append(record)
            if not unwritten and not fetched:
                step.record = record
            if self.steps is not None:
                self._keep(step, depends=bool(unwritten or fetched))
            if step.meeting:
                trace.meetings[len(trace.records) - 1] = step.meeting
            if self.programs > 1:
                self._note_for_races(step)
            if self.settings.watch:
                self._show_watched(name, writes)
        return instruction

    def _keep(self, step: Step, depends: bool) -> None:
        """Keep a step for a program, or none any more where what a step does `depends` on values or on other cores."""
        assert self.steps is not None
        if depends or not step.marks or step.hands_on or step.meets or step.meeting or len(self.steps) == MAX_STEPS:
            self.steps = None
        else:
            self.steps.append(step)

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


def whole(storage: Storage) -> NkiTensor:
    """The view of a whole allocation."""
    return NkiTensor(storage, storage.tile.shape, row_major(storage.tile.shape), 0, storage.dtype)
