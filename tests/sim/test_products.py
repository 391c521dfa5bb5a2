import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_neuron.sim.products import _joined

SLICES = [(0, 8), (0, 4), (4, 8), (2, 6)]


@st.composite
def programs(draw):
    """Products into parts of two PSUM tiles, among writes to their operands, clearings and looks."""
    columns = st.sampled_from(SLICES)
    product = st.tuples(st.just("product"), st.integers(0, 1), columns, st.integers(0, 3), st.booleans())
    write = st.tuples(st.just("write"), st.integers(0, 3), st.integers(-3, 3))
    look = st.tuples(st.just("look"), st.integers(0, 1), columns)
    clear = st.tuples(st.just("clear"), st.integers(0, 1), columns)
    return draw(st.lists(product | product | product | write | look | clear, max_size=30))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_are_what_they_would_be_if_every_product_were_made_at_once(machine, dtype):
    @settings(max_examples=80, deadline=None)
    @given(program=programs())
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
    for action, index, *rest in program:
        if action == "write":
            bench.issue("memset", rights[index], rest[0])
            known[4 + index][...] = rest[0]
            continue
        first, end = rest[0]
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
    for tile, expected in zip(sums, known[8:], strict=True):
        np.testing.assert_array_equal(tile.array(), expected)


def test_rows_at_one_distance_are_not_copied(rng):
    left, right = rng.standard_normal((12, 5)).astype(np.float32), rng.standard_normal((12, 7)).astype(np.float32)
    one_after_the_other = [np.split(operand, [4, 8, 11]) for operand in (left, right)]
    in_turn = [[operand.reshape(4, 3, -1)[:, k] for k in range(3)] for operand in (left, right)]
    for pieces in (one_after_the_other, in_turn):
        joined = _joined(*pieces)
        assert np.shares_memory(joined[0], left) and np.shares_memory(joined[1], right)
        np.testing.assert_array_equal(joined[0].T @ joined[1], left.T @ right)


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
def test_both_operands_keep_one_order_of_rows_where_only_one_can_be_seen_without_a_copy(rng, kind):
    left, right = rng.integers(-4, 5, (12, 5)).astype(kind), rng.integers(-4, 5, (12, 7)).astype(np.float32)
    in_turn = [right.reshape(4, 3, -1)[:, k] for k in range(3)]
    alone = [np.array(left.reshape(4, 3, -1)[:, k]) for k in range(3)]
    for pieces in ((alone, in_turn), (in_turn, alone)):
        joined = _joined(*pieces)
        expected = sum(a.astype(np.float64).T @ b.astype(np.float64) for a, b in zip(*pieces, strict=True))
        np.testing.assert_array_equal(joined[0].T @ joined[1], expected)


def test_operands_of_different_heights_are_put_one_after_the_other(rng):
    lefts, rights = (
        [rng.integers(-4, 5, (rows, columns)).astype(np.float32) for rows in (4, 4, 3)] for columns in (5, 7)
    )
    left, right = _joined(lefts, rights)
    np.testing.assert_array_equal(left, np.concatenate(lefts))
    np.testing.assert_array_equal(right, np.concatenate(rights))


def test_more_sums_than_banks_and_longer_ones_than_are_kept_are_made(machine, rng):
    bench = machine()
    ones = bench.tile(np.ones((4, 4)))
    tiles = [bench.empty((4, 4), buffer="psum") for _ in range(20)]
    for _ in range(70):
        for tile in tiles:
            bench.issue("nc_matmul", tile, ones, ones)
    assert all((tile.array() == 4 * 70).all() for tile in tiles)
