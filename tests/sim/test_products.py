import ml_dtypes
import nki.language as nl
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernels_neuron.sim.memory import Bytes
from kernels_neuron.sim.products import Rows, Widened, joined, rows_of

SLICES = [(0, 8), (0, 4), (4, 8), (2, 6)]


@st.composite
def programs(draw):
    """Products into parts of two PSUM tiles, among writes to their operands, clearings, looks and copies."""
    columns = st.sampled_from(SLICES)
    product = st.tuples(st.just("product"), st.integers(0, 1), columns, st.integers(0, 3), st.booleans())
    write = st.tuples(st.just("write"), st.integers(0, 3), st.integers(-3, 3))
    look = st.tuples(st.just("look"), st.integers(0, 1), columns)
    clear = st.tuples(st.just("clear"), st.integers(0, 1), columns)
    copy = st.tuples(st.sampled_from(["copy", "copy back"]), st.integers(0, 1))
    scale = st.tuples(st.just("scale"), st.integers(0, 1), columns)
    return draw(st.lists(product | product | product | write | look | clear | copy | scale, max_size=30))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_are_what_they_would_be_if_every_product_were_made_at_once(machine, dtype):
    @settings(max_examples=80, deadline=None)
    @given(program=programs())
    @example([("product", 0, (0, 8), 0, False), ("copy back", 0), ("product", 0, (0, 8), 0, True)])
    def check(program):
        play(machine(), dtype, program)

    check()


def play(bench, dtype, program):
    rng = np.random.default_rng(0)
    lefts = [bench.tile(rng.integers(-4, 5, (6, 3)), dtype) for _ in range(4)]
    # one tile that holds two operands, then two of their own
    pair = bench.tile(rng.integers(-4, 5, (6, 2, 8)), dtype)
    rights = [pair.select(1, 0), pair.select(1, 1), *(bench.tile(rng.integers(-4, 5, (6, 8)), dtype) for _ in range(2))]
    sums = [bench.tile(np.zeros((3, 8)), "float32", "psum") for _ in range(2)]
    known = [tile.array().astype(np.float64) for tile in (*lefts, *rights, *sums)]
    copies = [bench.tile(np.zeros((3, 8)), "float32") for _ in range(2)]
    copied = [np.zeros((3, 8)) for _ in range(2)]
    for action, index, *rest in program:
        if action == "write":
            bench.issue("memset", rights[index], rest[0])
            known[4 + index][...] = rest[0]
            continue
        if action == "copy":
            bench.issue("tensor_copy", copies[index], sums[index])
            copied[index][...] = known[8 + index]
            continue
        if action == "copy back":
            bench.issue("tensor_copy", sums[index], copies[index])
            known[8 + index][...] = copied[index]
            continue
        first, end = rest[0]
        if action == "scale":
            bench.issue("tensor_scalar", copies[index][:, first:end], copies[index][:, first:end], nl.multiply, 2.0)
            copied[index][:, first:end] *= 2
            continue
        part, expected = sums[index][:, first:end], known[8 + index][:, first:end]
        if action == "clear":
            bench.issue("memset", part, 0)
            expected[...] = 0
        elif action == "look":
            np.testing.assert_array_equal(part.array(), expected)
        else:
            which, adds = rest[1:]
            adds = adds and part.storage.mm_written.contains(part.region())
            bench.issue("nc_matmul", part, lefts[which], rights[which][:, first:end], accumulate=adds)
            product = known[which].T @ known[4 + which][:, first:end]
            expected[...] = product + (expected if adds else 0)
    for tile, expected in zip((*sums, *copies), (*known[8:], *copied), strict=True):
        np.testing.assert_array_equal(tile.array(), expected)


def pieces_of(base, pieces):
    """Views of the array `base` as rows in its memory."""
    buffer, first = base.data.cast("B"), base.ctypes.data
    return [Rows(buffer, each.ctypes.data - first, each.strides[0], *each.shape, each.dtype) for each in pieces]


def test_rows_at_one_distance_are_not_copied(rng):
    left, right = rng.standard_normal((12, 5)).astype(np.float32), rng.standard_normal((12, 7)).astype(np.float32)
    one_after_the_other = [np.split(operand, [4, 8, 11]) for operand in (left, right)]
    in_turn = [[operand.reshape(4, 3, -1)[:, k] for k in range(3)] for operand in (left, right)]
    for pieces in (one_after_the_other, in_turn):
        found = joined(pieces_of(left, pieces[0]), pieces_of(right, pieces[1]))
        assert np.shares_memory(found[0], left) and np.shares_memory(found[1], right)
        np.testing.assert_array_equal(found[0].T @ found[1], left.T @ right)


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
def test_both_operands_keep_one_order_of_rows_where_only_one_can_be_seen_without_a_copy(rng, kind):
    left, right = rng.integers(-4, 5, (12, 5)).astype(kind), rng.integers(-4, 5, (12, 7)).astype(np.float32)
    in_turn = pieces_of(right, [right.reshape(4, 3, -1)[:, k] for k in range(3)])
    alone = [rows_of(np.array(left.reshape(4, 3, -1)[:, k])) for k in range(3)]
    for pieces in ((alone, in_turn), (in_turn, alone)):
        left_rows, right_rows = joined(*pieces)
        pairs = [[each.array().astype(np.float64) for each in pair] for pair in zip(*pieces, strict=True)]
        np.testing.assert_array_equal(left_rows.T @ right_rows, sum(a.T @ b for a, b in pairs))


def test_operands_of_different_heights_are_put_one_after_the_other(rng):
    lefts, rights = (
        [rng.integers(-4, 5, (rows, columns)).astype(np.float32) for rows in (4, 4, 3)] for columns in (5, 7)
    )
    left, right = joined(*[[rows_of(piece) for piece in side] for side in (lefts, rights)])
    np.testing.assert_array_equal(left, np.concatenate(lefts))
    np.testing.assert_array_equal(right, np.concatenate(rights))


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3])
def test_an_input_read_more_than_once_over_is_widened_as_a_whole(machine, rng, kind):
    values = rng.standard_normal((6, 8)).astype(kind)
    bench, widened = machine(), Widened()
    tile = bench.tile(values, values.dtype)
    there = Bytes(values.view(np.uint8).data.cast("B").toreadonly(), 0, 8 * values.itemsize, shared=True)
    part, expected = tile[2:5, 1:7], values[2:5, 1:7].astype(np.float32)
    dtypes = []
    for _ in range(4):  # 18 elements at a time, of 48
        rows = widened.rows(part, there)
        dtypes.append(rows.dtype)
        np.testing.assert_array_equal(rows.array().astype(np.float32), expected)
    assert dtypes == [kind, kind, np.float32, np.float32]


def test_what_a_kernel_wrote_is_not_kept_widened(machine, rng):
    bench, widened = machine(), Widened()
    tile = bench.tile(rng.standard_normal((4, 4)), "bfloat16")
    assert {widened.rows(tile, tile.storage.look()).dtype for _ in range(4)} == {np.dtype(ml_dtypes.bfloat16)}


def test_more_sums_than_banks_and_longer_ones_than_are_kept_are_made(machine, rng):
    bench = machine()
    ones = bench.tile(np.ones((4, 4)))
    tiles = [bench.empty((4, 4), buffer="psum") for _ in range(20)]
    for _ in range(70):
        for tile in tiles:
            bench.issue("nc_matmul", tile, ones, ones)
    assert all((tile.array() == 4 * 70).all() for tile in tiles)
