"""Grids of tiles and blocks: which elements a coordinate stands for."""

import numpy as np
import pytest

from kernels_neuron.errors import KernelError, NotSimulated
from kernels_neuron.settings import Settings
from kernels_neuron.sim import shim
from kernels_neuron.sim.run import simulate

shim.install()
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

X = np.arange(300 * 500, dtype=np.float32).reshape(300, 500)


def looked_at(look, x=X, **settings):
    """What `look` finds when it is given the HBM tensor x inside a run."""
    found = []

    def kernel(x):
        found.append(look(x))
        return x

    simulate(kernel, x, settings=Settings(**settings))
    return found[0]


def test_a_copy_tile_by_tile_moves_every_element_of_a_ragged_tensor():
    def kernel(src):
        dst = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.shared_hbm)
        sources, targets = (nl.tiles(tensor, tile_shape=(128, 256)) for tensor in (src, dst))
        for i in range(sources.shape[0]):
            for j in range(sources.shape[1]):
                tile = nl.ndarray(sources[i, j].element_shape, dtype=src.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile.data, src=sources[i, j].data)
                nisa.dma_copy(dst=targets[i, j].data, src=tile.data)
        return dst

    np.testing.assert_array_equal(simulate(kernel, X), X)


def test_a_tile_grid_counts_tiles_and_clamps_the_last_ones():
    def look(x):
        grid = nl.tiles(x, tile_shape=(128, 256))
        corner, column, some = grid[2, -1], grid[:, 1], grid[::2, 0]
        return [
            (each.shape, each.element_shape, each.is_remainder, each.index_step_elements)
            for each in (grid, corner, column, grid[1, 0])
        ] + [some.is_data_representable, some.element_shape, corner.data.get_pattern(), grid.dtype, grid.buffer]

    assert looked_at(look) == [
        ((3, 2), (300, 500), True, (128, 256)),
        ((), (44, 244), True, ()),
        ((3,), (300, 244), True, (128,)),
        ((), (128, 256), False, ()),
        False,
        (128 + 44, 256),
        [[500, 44], [1, 244]],
        "float32",
        nl.hbm,
    ]


def test_a_block_holds_tiles_and_gives_them_again():
    def look(x):
        grid = nl.blocks(x, tile_shape=(64, 100), block_shape=(2, 2))
        block = grid[1, 2]
        inner = nl.tiles(block)
        regrouped = nl.blocks(nl.tiles(x, tile_shape=(64, 100)), block_shape=(5, 5))
        return grid.shape, block.element_shape, block.block_shape, inner.shape, inner[1, 0].data.offset, regrouped.shape

    assert looked_at(look) == ((3, 3), (128, 100), (2, 2), (2, 1), (128 + 64) * 500 + 400, (1, 1))


def test_dims_before_the_tiled_ones_are_taken_slab_by_slab():
    def look(x):
        grid = nl.tiles(x, tile_shape=(4, 5))
        return grid.shape, grid[1, 0, 1].element_shape, grid[1, 0, 1].data.shape, grid[1].shape

    assert looked_at(look, np.zeros((3, 8, 10), np.float32)) == ((3, 2, 2), (4, 5), (4, 5), (2, 2))


def test_new_storage_comes_in_tiles_and_blocks():
    def look(x):
        shapes = {"tile_shape": (2, 4), "element_shape": (3, 8), "dtype": nl.float32, "buffer": nl.sbuf}
        tiles, blocks = nl.alloc_tiles(**shapes), nl.alloc_blocks(block_shape=(2, 1), **shapes)
        like = nl.empty_like(nl.tiles(x, tile_shape=(128, 256))[0, 0], buffer=nl.sbuf, name="like")
        turned = nl.empty_like(x[:16, :64], nl.bfloat16, nl.sbuf, transpose_axes=(1, 0), address=(0, 4096))
        return tiles.shape, blocks.shape, blocks.buffer, like.shape, like.data.shape, like.data.name, turned.shape

    assert looked_at(look) == ((2, 2), (1, 2), nl.sbuf, (1, 1), (128, 256), "like", (64, 16))


def packed():
    """300 rows in tiles of 128 on chip."""
    return nl.alloc_tiles(tile_shape=(128, 40), element_shape=(300, 100), buffer=nl.sbuf, dtype=nl.float32)


def test_more_rows_than_partitions_are_packed_tile_beside_tile():
    def look(x):
        grid = packed()
        last, row = grid[2, 2].data, grid[1].data
        block = nl.blocks(grid, block_shape=(2, 2))[1, 0]
        return (
            grid.shape,
            last.shape,
            row.shape,
            row.offset,
            last.offset,
            nl.tiles(block)[0, 1].data.offset,
            block.element_shape,
        )

    shapes, last, row, row_at, last_at, inner_at, block = looked_at(look)
    assert (shapes, last, row, block) == ((3, 3), (44, 20), (128, 100), (44, 80))
    assert (row_at, last_at, inner_at) == (120, 2 * 120 + 80, 2 * 120 + 40)


def test_a_tensor_of_many_rows_goes_through_packed_tiles_unharmed():
    def doubled(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        held = nl.alloc_tiles(tile_shape=(128, 40), element_shape=x.shape, buffer=nl.sbuf, dtype=x.dtype)
        source, target = nl.tiles(x, tile_shape=(128, 40)), nl.tiles(out, tile_shape=(128, 40))
        for i in range(held.shape[0]):
            for j in range(held.shape[1]):
                nisa.dma_copy(dst=held[i, j].data, src=source[i, j].data)
        for i in range(held.shape[0]):
            nisa.tensor_scalar(dst=held[i].data, data=held[i].data, op0=nl.multiply, operand0=2.0)
            nisa.dma_copy(dst=target[i].data, src=held[i].data)
        return out

    x = np.random.default_rng(2).standard_normal((300, 100)).astype(np.float32)
    np.testing.assert_array_equal(simulate(doubled, x), 2 * x)


@pytest.mark.parametrize(
    ("rule", "look"),
    [
        ("grid-shape", lambda x: nl.tiles(x, tile_shape=(128,))),
        ("grid-shape", lambda x: nl.tiles(x, tile_shape=(128, 0))),
        ("grid-shape", lambda x: nl.tiles(x, tile_shape=(2, 128, 4))),
        ("grid-shape", lambda x: nl.tiles(nl.zeros((4, 2, 6), nl.float32), tile_shape=(2, 6))),
        ("grid-shape", lambda x: nl.blocks(x, tile_shape=(4, 4), block_shape=(2, 2, 2))),
        ("grid-data", lambda x: nl.tiles(x, tile_shape=(10, 10))[::2].data),
        ("out-of-bounds", lambda x: nl.tiles(x, tile_shape=(128, 256))[3]),
        ("out-of-bounds", lambda x: nl.tiles(x, tile_shape=(128, 256))[3:4]),
        ("index-rank", lambda x: nl.tiles(x, tile_shape=(128, 256))[0, 0, 0]),
        ("index-type", lambda x: nl.tiles(x, tile_shape=(128, 256))["a"]),
        ("view-permute", lambda x: nl.empty_like(x, transpose_axes=(0, 1))),
        (
            "not-simulated",
            lambda x: nl.alloc_tiles(
                tile_shape=(2, 128, 8), element_shape=(2, 256, 8), buffer=nl.sbuf, dtype=nl.float32
            ),
        ),
        ("grid-data", lambda x: packed().data),
        ("grid-data", lambda x: packed()[:, 0].data),
        ("grid-shape", lambda x: nl.tiles(packed(), tile_shape=(64, 40))),
    ],
)  # fmt: skip
def test_a_grid_refuses(rule, look):
    with pytest.raises(KernelError) as caught:
        looked_at(look)
    assert caught.value.rule == rule
    assert isinstance(caught.value, NotSimulated) == (rule == "not-simulated")


@pytest.mark.parametrize(
    "look",
    [
        lambda x: nl.tiles(x, tile_shape=(128, 256)),
        lambda x: nl.blocks(x, tile_shape=(2, 2), block_shape=(2, 2)),
        lambda x: nl.empty_like(x, address=(0, 0)),
    ],
)
def test_grids_come_with_nki_0_7(look):
    with pytest.raises(KernelError, match=r"exists from NKI 0\.7 on") as caught:
        looked_at(look, nki="0.6")
    assert caught.value.rule == "api-version"
