"""Products of TensorE that wait until somebody looks at their sum in PSUM: those of one region are then made as one.

The processor's matrix product is much quicker on one large pair of operands than on the pairs of 128 rows that TensorE
takes, and a sum that is made once need not be read and written again for each of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from . import array
from .memory import Bytes, Storage
from .tensor import NkiTensor

_MAX_STORAGES = 16  # PSUM has eight banks; what a kernel never reads is made when that many others have come
_MAX_PAIRS = 64  # so many operands are kept for one sum at most


class _Sum(NamedTuple):
    """What one region of PSUM waits for: dst (+)= the sum of left.T @ right over the pairs."""

    dst: NkiTensor
    adds: bool
    lefts: list[np.ndarray]
    rights: list[np.ndarray]


class Products:
    """The sums of one core that nobody has looked at.

    The operands are kept as views of their tiles. Who writes to a tile that has a `reader`, or looks at one whose
    bytes are `due`, has all or its own sums made first: see Storage.
    """

    def __init__(self) -> None:
        self._waiting: dict[Storage, tuple[Bytes, dict[object, _Sum]]] = {}

    def add(self, dst: NkiTensor, adds: bool, stationary: NkiTensor, moving: NkiTensor) -> None:
        """dst = or += stationary.T @ moving, in float32, when somebody looks."""
        left, right = (tile.array().reshape(tile.shape[0], -1) for tile in (stationary, moving))
        into = self._sum(dst, adds)
        into.lefts.append(left)
        into.rights.append(right)
        stationary.storage.reader = moving.storage.reader = self

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
            storage.make_writable()
            self._waiting[storage] = (storage.look(), {})
            storage.bytes, storage.due = None, self
        new = self._waiting[storage][1][dst.layout] = _Sum(dst, adds, [], [])
        return new

    def make(self, storage: Storage) -> None:
        """Make the sums that wait for `storage`."""
        storage.bytes, sums = self._waiting.pop(storage)
        storage.due = None
        for each in sums.values():
            _make(each)

    def make_all(self) -> None:
        """Make every sum that waits."""
        for storage in list(self._waiting):
            self.make(storage)


def _make(wanted: _Sum) -> None:
    target = wanted.dst.array()
    left, right = _joined(wanted.lefts, wanted.rights)
    if wanted.adds or not target.flags.c_contiguous:
        product = (left.T @ right).reshape(target.shape)
        if wanted.adds:
            target += product
        else:
            target[...] = product
    else:
        np.matmul(left.T, right, out=target.reshape(left.shape[1], right.shape[1]))


def _joined(lefts: list[np.ndarray], rights: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Both operands with all their rows in one order, as float32; views where the rows lie at one distance."""
    if len(lefts) == 1:
        return array.f32(lefts[0]), array.f32(rights[0])
    in_turn = False
    left, right = _view(lefts, in_turn), _view(rights, in_turn)
    if left is None and right is None:
        left, right = _view(lefts, in_turn=True), _view(rights, in_turn=True)
        in_turn = left is not None or right is not None
    return _copied(lefts, in_turn) if left is None else left, _copied(rights, in_turn) if right is None else right


def _copied(pieces: list[np.ndarray], in_turn: bool) -> np.ndarray:
    """The rows of all pieces: one piece after the other, or row 0 of each, then row 1 of each (`in_turn`)."""
    columns = pieces[0].shape[1]
    if in_turn:
        turns = np.empty((len(pieces[0]), len(pieces), columns), np.float32)
        for index, piece in enumerate(pieces):
            turns[:, index] = piece
        return turns.reshape(-1, columns)
    rows = np.empty((sum(map(len, pieces)), columns), np.float32)
    first = 0
    for piece in pieces:
        rows[first : first + len(piece)] = piece
        first += len(piece)
    return rows


def _view(pieces: list[np.ndarray], in_turn: bool) -> np.ndarray | None:
    """The same without a copy, None where memory does not hold the rows that way."""
    first, count = pieces[0], len(pieces)
    step, item = first.strides
    if first.dtype != np.float32 or item != 4 or (in_turn and step % count):
        return None
    address = first.ctypes.data
    for piece in pieces:
        if piece.ctypes.data != address or piece.strides != first.strides or piece.dtype != first.dtype:
            return None
        if in_turn and len(piece) != len(first):
            return None
        address += step // count if in_turn else len(piece) * step
    shape, distance = (sum(map(len, pieces)), first.shape[1]), step // count if in_turn else step
    return np.lib.stride_tricks.as_strided(first, shape, (distance, item), writeable=False)
