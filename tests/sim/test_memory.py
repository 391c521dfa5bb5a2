import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_neuron.errors import KernelError
from kernels_neuron.sim.memory import Coverage
from kernels_neuron.sim.trace import Region, Tile

TILE = Tile(1, "t", "sbuf", "uint8", (8, 24), 8, 24, 0)


def bits(region):
    mask = np.zeros((TILE.partitions, TILE.nbytes), bool)
    for start in region.starts():
        mask[region.p0 : region.p1, start : start + region.width] = True
    return mask


@st.composite
def regions(draw):
    p0 = draw(st.integers(0, 7))
    p1 = draw(st.integers(p0 + 1, 8))
    width = draw(st.integers(1, 6))
    steps, room = [], 24 - width
    for _ in range(draw(st.integers(0, 2))):
        stride = draw(st.integers(1, 8))
        count = draw(st.integers(1, 1 + room // stride))
        room -= stride * (count - 1)
        steps.append((stride, count))
    return Region(1, p0, p1, draw(st.integers(0, room)), width, tuple(sorted(steps, reverse=True)))


@settings(max_examples=300, deadline=None)
@given(st.lists(regions(), max_size=70), regions())
def test_coverage_equals_a_byte_mask(added, asked):
    coverage, mask = Coverage(TILE), np.zeros((8, 24), bool)
    for region in added:
        coverage.add(region)
        mask |= bits(region)
    wanted = bits(asked)
    assert coverage.missing_bytes() == int((~mask).sum())
    assert coverage.touches(asked) == bool((mask & wanted).any())
    assert coverage.contains(asked) == bool(mask[wanted].all())
    assert coverage.contains(asked) == bool(mask[wanted].all()), "the answer is remembered wrongly"
    assert coverage.missing_bytes() == int((~mask).sum())


@settings(max_examples=300, deadline=None)
@given(regions(), regions(), st.integers(-8, 8))
def test_regions_overlap_exactly_where_their_bytes_meet(one, other, shift):
    def cells(region, moved):
        return {(p, b + moved) for p, b in zip(*np.nonzero(bits(region)), strict=True)}

    assert one.overlaps(other, shift) == bool(cells(one, 0) & cells(other, shift))


@settings(max_examples=300, deadline=None)
@given(regions(), regions())
def test_a_region_that_says_it_covers_another_does(one, other):
    if one.covers(other):
        assert not (bits(other) & ~bits(one)).any()


def test_more_bytes_counted_than_there_are_is_not_the_whole_tile():
    # strides 3 and 2 meet: 4 * 6 intervals of one byte over 24 bytes leave holes
    coverage = Coverage(TILE)
    coverage.add(Region(1, 0, 8, 0, 1, ((3, 4), (2, 6))))
    assert not coverage.whole
    assert coverage.missing_bytes() > 0


def test_window_is_a_copy():
    coverage, region = Coverage(TILE), Region(1, 0, 8, 0, 4)
    coverage.add(Region(1, 0, 8, 0, 2))
    window = coverage.window(region)
    coverage.add(region)
    assert window[0].tolist() == [True, True, False, False]


# ---- the same through instructions


def test_reading_a_hole_of_a_strided_write_is_refused(machine):
    bench = machine()
    tile, sink = bench.empty((8, 12)), bench.empty((8, 12))
    bench.issue("memset", tile[:, ::2], 0.0)
    bench.refuses("unwritten-read", "tensor_copy", sink[:, :2], tile[:, :2])
    bench.issue("tensor_copy", sink[:, ::2], tile[:, ::2])
    bench.issue("tensor_copy", sink[:, :3], tile[:, 0:12:4])
    bench.issue("memset", tile[:, 1::2], 0.0)
    bench.issue("tensor_copy", sink, tile)


def test_reading_partitions_that_a_ragged_write_left_out_is_refused(machine):
    bench = machine()
    tile, sink = bench.empty((128, 4)), bench.empty((128, 4))
    bench.issue("memset", tile[:17], 0.0)
    bench.issue("tensor_copy", sink[:17], tile[:17])
    message = bench.refuses("unwritten-read", "tensor_copy", sink[:18], tile[:18])
    assert "sbuf float32[18, 4]" in message and "conftest.py" in message


def test_reading_through_another_dtype_looks_at_bytes(machine):
    bench = machine()
    tile, sink = bench.empty((4, 8), "uint8"), bench.empty((4, 2), "uint32")
    bench.issue("memset", tile[:, :7], 0)
    bench.refuses("unwritten-read", "tensor_copy", sink, tile.view("uint32"))
    bench.issue("tensor_copy", sink[:, :1], tile.view("uint32")[:, :1])


@pytest.mark.parametrize("count", [10, 63, 64, 65, 200])
def test_many_small_writes_add_up(machine, count):
    bench = machine()
    tile, sink = bench.empty((2, count + 1)), bench.empty((2, count + 1))
    for i in reversed(range(count)):
        bench.issue("memset", tile[:, i : i + 1], 0.0)
    bench.issue("tensor_copy", sink[:, :count], tile[:, :count])
    bench.refuses("unwritten-read", "tensor_copy", sink, tile)


@settings(max_examples=100, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 5))
def test_pieces_of_every_partition_make_a_tile_whole_in_any_order(order, gone):
    coverage, mask = Coverage(TILE), np.zeros((8, 24), bool)
    pieces = [Region(1, 0, 8, 4 * i, 4) for i in range(6)]
    for i in order:
        coverage.add(pieces[i])
        mask |= bits(pieces[i])
        assert [coverage.contains(piece) for piece in pieces] == [bool(mask[bits(piece)].all()) for piece in pieces]
    assert coverage.missing_bytes() == 0
    coverage.remove(pieces[gone], np.ones((8, 4), bool))
    assert [coverage.contains(piece) for piece in pieces] == [i != gone for i in range(6)]
    coverage.add(pieces[gone])
    assert coverage.missing_bytes() == 0


@nki.jit
def loads_then_writes(x):
    """What was loaded before the kernel writes into its argument, and the argument after that."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, two = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=tile, src=x)
    nisa.memset(dst=two, value=2.0)
    nisa.dma_copy(dst=x[:, 0:2], src=two[:, 0:2])
    nisa.dma_copy(dst=y, src=tile)
    return y


def test_a_tile_keeps_what_it_loaded_when_the_kernel_writes_into_its_argument(rng):
    x = rng.standard_normal((5, 4)).astype(np.float32)
    before = x.copy()
    np.testing.assert_array_equal(loads_then_writes(x), before)
    assert (x[:, :2] == 2).all() and (x[:, 2:] == before[:, 2:]).all()


@nki.jit
def changes_what_it_loaded(x, fails):
    """Rows 2 to 5 of x, one more; refused at the end if `fails`."""
    y = nl.ndarray((3, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((3, 4), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[2:5, 1:5])
    nisa.tensor_scalar(dst=tile[:, 0:2], data=tile[:, 0:2], op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=y, src=tile)
    if fails:
        nisa.dma_copy(dst=x, src=y)
    return y


def test_what_a_kernel_does_to_a_loaded_tile_does_not_reach_the_argument(rng):
    x = rng.standard_normal((6, 9)).astype(np.float32)
    before = x.copy()
    expected = before[2:5, 1:5] + np.array([1, 1, 0, 0], np.float32)
    np.testing.assert_array_equal(changes_what_it_loaded(x, False), expected)
    with pytest.raises(KernelError, match="equal element counts"):
        changes_what_it_loaded(x, True)
    np.testing.assert_array_equal(x, before)
