"""Products of TensorE that wait until somebody looks at their sum in PSUM: those of one region are then made as one.

The processor's matrix product is much quicker on one large pair of operands than on the pairs of 128 rows that TensorE
takes, and a sum that is made once need not be read and written again for each of them.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from kernels_neuron.dtypes import ROWS

from . import array
from .layout import Layout, row_major
from .memory import FRESH, Bytes, Storage
from .tensor import NkiTensor

_MAX_STORAGES = 16  # PSUM has eight banks; what a kernel never reads is made when that many others have come
_MAX_PAIRS = 64  # so many operands are kept for one sum at most
_MAX_WIDENED_BYTES = 64 << 20  # larger inputs are widened tile by tile
_F32 = np.dtype(np.float32)

Operand = tuple[NkiTensor, Bytes]  # a view, and where it lay when the product was asked for


class _Sum(NamedTuple):
    """What one region of PSUM waits for: dst (+)= the sum of left.T @ right over the pairs."""

    dst: NkiTensor
    adds: bool
    lefts: list[Operand]
    rights: list[Operand]


class Products:
    """The sums of one core that nobody has looked at.

    Of the operands it is kept where they lie. Who writes to a tile that has a `reader`, or looks at one whose bytes are
    `due`, has all or its own sums made first: see Storage.
    """

    def __init__(self) -> None:
        self._waiting: dict[Storage, tuple[Bytes, dict[object, _Sum]]] = {}
        self._widened = Widened()

    def add(self, dst: NkiTensor, adds: bool, stationary: NkiTensor, moving: NkiTensor) -> None:
        """dst = or += stationary.T @ moving, in float32, when somebody looks."""
        left, right = stationary.storage, moving.storage
        left_there, right_there = left.look(), right.look()
        into = self._sum(dst, adds)
        into.lefts.append((stationary, left_there))
        into.rights.append((moving, right_there))
        left.reader = right.reader = self

    def _sum(self, dst: NkiTensor, adds: bool) -> _Sum:
        """The sum that a product for `dst` goes into; sums that it ends or covers are made first."""
        storage = dst.storage
        if storage in self._waiting:
            sums = self._waiting[storage][1]
            known = sums.get(dst.layout)
            if known is not None and adds and len(known.lefts) < _MAX_PAIRS:
                return known
            if known is not None or any(dst.region().overlaps(other.dst.region()) for other in sums.values()):
                self.make(storage)
        if storage not in self._waiting:
            if len(self._waiting) == _MAX_STORAGES:
                self.make(next(iter(self._waiting)))
            lent = storage.look().shared and not adds
            if lent and dst.shape[0] == storage.tile.partitions and dst.covers_partitions():
                FRESH.make(storage)  # nothing of what is there will be left
            storage.make_writable()
            self._waiting[storage] = (storage.look(), {})
            storage.bytes, storage.due = None, self
        new = self._waiting[storage][1][dst.layout] = _Sum(dst, adds, [], [])
        return new

    def make(self, storage: Storage) -> None:
        """Make the sums that wait for `storage`."""
        there, sums = self._waiting.pop(storage)
        storage.lie_on(there)
        for each in sums.values():
            self._make(each)

    def forget(self, storage: Storage) -> None:
        """Never make the sums that wait for `storage`."""
        self._waiting.pop(storage, None)

    def make_all(self) -> None:
        """Make every sum that waits."""
        for storage in list(self._waiting):
            self.make(storage)

    def _make(self, wanted: _Sum) -> None:
        target = wanted.dst.array()
        left, right = self._operands(wanted)
        if wanted.adds or not target.flags.c_contiguous:
            product = (left.T @ right).reshape(target.shape)
            if wanted.adds:
                target += product
            else:
                target[...] = product
        else:
            np.matmul(left.T, right, out=target.reshape(left.shape[1], right.shape[1]))

    def _operands(self, wanted: _Sum) -> list[np.ndarray] | tuple[np.ndarray, np.ndarray]:
        """All rows of both sides."""
        pairs = wanted.lefts + wanted.rights
        if len(pairs) == 2:
            arrays = [tensor.array_at(there) for tensor, there in pairs]
            if all(each.dtype == _F32 for each in arrays):
                return [each.reshape(len(each), -1) for each in arrays]
        return joined(*[[self._widened.rows(*operand) for operand in side] for side in (wanted.lefts, wanted.rights)])


# ---- where operands lie in the host's memory


class Rows(NamedTuple):
    """An operand as `high` rows in memory: `columns` elements of `dtype` each, from byte `start` on, `step` apart."""

    buffer: Any
    start: int
    step: int
    high: int
    columns: int
    dtype: np.dtype

    def array(self) -> np.ndarray:
        """[high, columns]."""
        strides = (self.step, self.dtype.itemsize)
        return np.ndarray((self.high, self.columns), self.dtype, self.buffer, self.start, strides)


# without the call of Python code that a named tuple's own constructor makes
_new_rows = functools.partial(tuple.__new__, Rows)


def rows_of(values: np.ndarray) -> Rows:
    """The rows of a contiguous array."""
    count, columns = values.shape
    return Rows(values.view(np.uint8).data, 0, columns * values.itemsize, count, columns, values.dtype)


_Form = tuple[int, int, int, int, np.dtype]  # Rows without the buffer, `start` from that of the Bytes
_SCATTERED: _Form = (0, 0, 0, 0, _F32)  # the elements of a row do not follow each other


def _form(tensor: NkiTensor, there: Bytes) -> _Form:
    start, strides = tensor.within(there)
    dtype, shape = ROWS[tensor.dtype].numpy, tensor.shape
    if strides[-1] != dtype.itemsize or (len(shape) > 2 and tensor.strides[1:] != row_major(shape[1:])):
        return _SCATTERED
    return start - there.start, strides[0], shape[0], tensor.free_size, dtype


class Widened:
    """Float32 copies of those of the caller's arrays, which stay as they are, that are read more than once over."""

    def __init__(self) -> None:
        self._read: dict[tuple[int, np.dtype], int] = {}  # bytes so far, by buffer and dtype
        self._copies: dict[tuple[int, np.dtype], tuple[Any, memoryview]] = {}  # with the buffer, so that its id stays
        self._forms: dict[tuple[Layout, int], _Form] = {}  # of operands of one layout and pitch

    def rows(self, tensor: NkiTensor, there: Bytes) -> Rows:
        """The operand as rows, of float32 where a copy is at hand."""
        kind = (tensor.layout, there.pitch)
        form = self._forms.get(kind)
        if form is None:
            form = self._forms[kind] = _form(tensor, there)
        if form is _SCATTERED:
            start, strides = tensor.within(there)
            values = np.ndarray(tensor.shape, ROWS[tensor.dtype].numpy, there.buffer, start, strides)
            return rows_of(np.array(values.reshape(tensor.shape[0], -1), _F32, order="C"))
        rows = _new_rows((there.buffer, there.start + form[0], *form[1:]))
        return self._widened(rows) if there.shared and rows.dtype != _F32 else rows

    def _widened(self, rows: Rows) -> Rows:
        buffer, start, step, high, columns, dtype = rows
        item, key = dtype.itemsize, (id(buffer), dtype)
        if key not in self._copies:
            size = buffer.nbytes
            read = self._read[key] = self._read.get(key, 0) + high * columns * item
            if read <= size or size > _MAX_WIDENED_BYTES or size % item or start % item or step % item:
                return rows
            # kept as float32 from now on
            self._copies[key] = (buffer, array.f32(np.frombuffer(buffer, dtype)).data)
        elif start % item or step % item:
            return rows
        return Rows(self._copies[key][1], start // item * 4, step // item * 4, high, columns, _F32)


def joined(lefts: list[Rows], rights: list[Rows]) -> tuple[np.ndarray, np.ndarray]:
    """Both operands with all their rows in one order, as float32; views where the rows lie at one distance."""
    if len(lefts) == 1:
        return array.f32(lefts[0].array()), array.f32(rights[0].array())
    in_turn = False
    left, right = _view(lefts, in_turn), _view(rights, in_turn)
    if left is None and right is None:
        left, right = _view(lefts, in_turn=True), _view(rights, in_turn=True)
        in_turn = left is not None or right is not None
    return _copied(lefts, in_turn) if left is None else left, _copied(rights, in_turn) if right is None else right


def _copied(pieces: list[Rows], in_turn: bool) -> np.ndarray:
    """The rows of all pieces: one piece after the other, or row 0 of each, then row 1 of each (`in_turn`)."""
    columns = pieces[0].columns
    if in_turn:
        turns = np.empty((pieces[0].high, len(pieces), columns), np.float32)
        for index, piece in enumerate(pieces):
            array.widen(piece.array(), turns[:, index])
        return turns.reshape(-1, columns)
    rows = np.empty((sum(piece.high for piece in pieces), columns), np.float32)
    first = 0
    for piece in pieces:
        array.widen(piece.array(), rows[first : first + piece.high])
        first += piece.high
    return rows


def _view(pieces: list[Rows], in_turn: bool) -> np.ndarray | None:
    """The same without a copy, None where memory does not hold the rows that way."""
    buffer, address, step, rows, columns, dtype = pieces[0]
    count = len(pieces)
    if dtype != _F32 or (in_turn and step % count):
        return None
    total = 0
    for piece in pieces:
        if piece.buffer is not buffer or piece.start != address or piece.step != step or piece.dtype is not dtype:
            return None
        if in_turn and piece.high != rows:
            return None
        total += piece.high
        address += step // count if in_turn else piece.high * step
    return Rows(buffer, pieces[0].start, step // count if in_turn else step, total, columns, dtype).array()
