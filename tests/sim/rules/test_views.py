"""Rules of indexing, of views and of grids, each with a legal twin."""

import numpy as np
import pytest
from twins import Twin

from kernels_neuron.sim import shim

shim.install()
import nki.language as nl  # noqa: E402


def tile(b):
    return b.empty((8, 4, 6))


def hbm(b):
    return b.empty((8, 4, 6), buffer="shared_hbm")


def of(view):
    """An act on a tile of [8, 4, 6]."""
    return lambda b: view(tile(b))


TWINS = [
    Twin("index-rank", "4 indices", of(lambda t: t[0, 0, 0]), of(lambda t: t[0, 0, 0, 0])),
    Twin("index-type", "as indices, got float", of(lambda t: t[:, 1]), of(lambda t: t[:, 1.0])),
    Twin("index-type", "whole numbers in slices, got 1.5", of(lambda t: t[:, 0:1]), of(lambda t: t[:, 0:1.5])),
    Twin("index-type", "takes ints and slices", lambda b: grid(b)[0], lambda b: grid(b)["0"]),
    Twin("empty-slice", "holds no element", of(lambda t: t[:, 1:2]), of(lambda t: t[:, 1:1])),
    Twin("out-of-bounds", "slice 0:5:1 leaves dim 1", of(lambda t: t[:, 0:4]), of(lambda t: t[:, 0:5])),
    Twin("out-of-bounds", "index 6 is outside dim 2", of(lambda t: t[:, :, 5]), of(lambda t: t[:, :, 6])),
    Twin("out-of-bounds", "index 2 is outside", lambda b: grid(b)[1], lambda b: grid(b)[2]),
    Twin("view-dim", "dim 3 is outside", of(lambda t: t.slice(2, 0, 1)), of(lambda t: t.slice(3, 0, 1))),
    Twin(
        "view-rank",
        "1 to 5 dims",
        of(lambda t: t.expand_dim(1).expand_dim(1)),
        of(lambda t: t.expand_dim(1).expand_dim(1).expand_dim(1)),
    ),
    Twin("view-rank", "has at most 5 dims", lambda b: b.empty((2, 1, 1, 1, 4)), lambda b: b.empty((2, 1, 1, 1, 1, 4))),
    Twin(
        "view-dtype",
        "a multiple of 4 bytes",
        lambda b: b.empty((8, 8), "uint8").view("float32"),
        lambda b: b.empty((8, 6), "uint8").view("float32"),
    ),
    Twin(
        "view-dtype",
        "the last dim must be contiguous",
        lambda b: b.empty((8, 8), "uint8")[:, :4].view("float32"),
        lambda b: b.empty((8, 8), "uint8")[:, ::2].view("float32"),
    ),
    Twin("view-reshape", "has 200", of(lambda t: t.reshape_dim(2, (2, 3))), of(lambda t: t.reshape((8, 25)))),
    Twin(
        "view-reshape",
        "without a copy",
        of(lambda t: t[:, :2].reshape((8, 12))),
        of(lambda t: t[:, :, :5].reshape((8, 20))),
    ),
    Twin(
        "view-flatten",
        "are not contiguous",
        of(lambda t: t.flatten_dims(1, 2)),
        of(lambda t: t[:, :, ::2].permute((0, 2, 1)).flatten_dims(1, 2)),
    ),
    Twin("view-permute", "keeps dim 0 first", of(lambda t: t.permute((0, 2, 1))), of(lambda t: t.permute((1, 0, 2)))),
    Twin(
        "view-permute",
        "a permutation of 3 dims",
        of(lambda t: t.permute((0, 1, 2))),
        of(lambda t: t.permute((0, 1, 1))),
    ),
    Twin(
        "view-broadcast",
        "needs a dim of size 1",
        of(lambda t: t[:, :1].broadcast(1, 4)),
        of(lambda t: t.broadcast(1, 4)),
    ),
    Twin(
        "view-broadcast",
        "a shape of 3 dims",
        of(lambda t: nl.broadcast_to(t[:, :1], (8, 4, 6))),
        of(lambda t: nl.broadcast_to(t[:, :1], (8, 24))),
    ),
    Twin(
        "view-squeeze", "needs a dim of size 1", of(lambda t: t[:, :1].squeeze_dim(1)), of(lambda t: t.squeeze_dim(1))
    ),
    Twin(
        "rearrange",
        "the same names in both",
        of(lambda t: t.rearrange(("p", "a", "b"), ("p", "b", "a"))),
        of(lambda t: t.rearrange(("p", "a", "b"), ("p", "b", "c"))),
    ),
    Twin(
        "rearrange",
        "needs the sizes of all but one",
        of(lambda t: t.rearrange(("p", ("a", "b"), "c"), ("p", "a", "b", "c"), {"a": 2})),
        of(lambda t: t.rearrange(("p", ("a", "b"), "c"), ("p", "a", "b", "c"))),
    ),
    Twin(
        "partition-view",
        "moves elements across partitions",
        of(lambda t: t.reshape((8, 24))),
        of(lambda t: t.reshape((4, 48))),
    ),
    Twin(
        "partition-view",
        "cannot change the partition axis",
        lambda b: hbm(b).flatten_dims(0, 1),
        of(lambda t: t.flatten_dims(0, 1)),
    ),
    Twin(
        "ap-partition",
        "the partition step 24",
        of(lambda t: t.ap([[24, 8], [1, 6]])),
        of(lambda t: t.ap([[12, 8], [1, 6]])),
    ),
    Twin(
        "ap-view-offset",
        "read differently by two NKI documents",
        of(lambda t: t[:, 1:].ap([[24, 8], [1, 6]], offset=1)),
        of(lambda t: t[:, 1:].ap([[24, 8], [1, 6]], offset=1)),
        broken_settings={"switches": {"ap_view_offset": "refuse"}},
    ),
    Twin(
        "grid-shape",
        "2 or more positive integers",
        lambda b: nl.tiles(hbm(b), tile_shape=(2, 3)),
        lambda b: nl.tiles(hbm(b), tile_shape=(2, 0)),
    ),
    Twin(
        "grid-shape",
        "tiles every dim of an on-chip tensor",
        lambda b: nl.tiles(tile(b), tile_shape=(8, 2, 3)),
        lambda b: nl.tiles(tile(b), tile_shape=(2, 3)),
    ),
    Twin("grid-data", "with gaps between them", lambda b: grid(b)[:, 0:2].data, lambda b: grid(b)[:, 0:3:2].data),
]


def grid(b):
    return nl.tiles(b.tile(np.ones((4, 9))), tile_shape=(2, 3))


@pytest.mark.parametrize("twin", TWINS, ids=str)
def test_a_legal_view_is_made_and_its_broken_twin_is_refused(machine, twin):
    twin.holds(machine)
