import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_neuron.sim.isa.search import matches


def test_max8_matches_numpy(machine, rng):
    bench = machine()
    values = rng.standard_normal((17, 100)).astype(np.float32)
    values[3, 5] = -np.inf
    out = bench.empty((17, 8))
    bench.issue("max8", out, bench.tile(values))
    np.testing.assert_array_equal(out.array(), -np.sort(-values, axis=1)[:, :8])


def test_max8_price(machine):
    bench = machine()
    (record,) = bench.issue("max8", bench.empty((128, 8)), bench.tile(np.zeros((128, 512))))
    assert record.price.issue_ns == pytest.approx(512 / 0.96 + 70)


def test_nc_find_index8_matches_numpy(machine, rng):
    bench = machine()
    data = rng.permuted(np.tile(np.arange(50, dtype=np.float32), (17, 1)), axis=1)
    vals = rng.permuted(data, axis=1)[:, :8]
    out = bench.empty((17, 8), "uint32")
    bench.issue("nc_find_index8", out, bench.tile(data), bench.tile(vals))
    np.testing.assert_array_equal(np.take_along_axis(data, out.array().astype(np.int64), axis=1), vals)


@pytest.mark.parametrize(("dtype", "missing"), [("uint16", 0xFFFF), ("uint32", 0xFFFFFFFF)])
def test_nc_find_index8_gives_duplicates_in_order_and_all_ones_for_missing(machine, dtype, missing):
    bench = machine()
    data = bench.tile(np.array([[7.0, 1.0, 7.0, 2.0, 7.0, 3.0, 4.0, 5.0]]))
    vals, out = bench.tile(np.array([[7.0, 9.0, 7.0, 5.0, 7.0, 7.0, 1.0, 2.0]])), bench.empty((1, 8), dtype)
    bench.issue("nc_find_index8", out, data, vals)
    assert out.array().tolist() == [[0, missing, 2, 7, 4, missing, 1, 3]]


def test_nc_find_index8_price(machine):
    bench = machine()
    data, vals = bench.tile(np.zeros((128, 512))), bench.tile(np.zeros((128, 8)))
    (record,) = bench.issue("nc_find_index8", bench.empty((128, 8), "uint16"), data, vals)
    assert record.price.issue_ns == pytest.approx(512 / 0.96 + 70)


def test_nc_match_replace8_matches_numpy(machine):
    # the worked example of the NKI reference: slots are visited from 7 down to 0
    bench = machine()
    data = np.array([[1.0, 2.0, 3.0, 4.0] + [8.0] * 7])
    vals, out = bench.tile(np.array([[3.0] + [8.0] * 7])), bench.empty((1, 11))
    where = bench.empty((1, 8), "uint32")
    bench.issue("nc_match_replace8", out, bench.tile(data), vals, -1.0, dst_idx=where)
    assert where.array().tolist() == [[2, 10, 9, 8, 7, 6, 5, 4]]
    assert out.array().tolist() == [[1.0, 2.0, -1.0, 4.0] + [-1.0] * 7]


def test_nc_match_replace8_leaves_unmatched_data(machine):
    bench = machine()
    data, vals, out = bench.tile(np.arange(8.0)[None]), bench.tile(np.full((1, 8), 99.0)), bench.empty((1, 8))
    bench.issue("nc_match_replace8", out, data, vals, -1.0)
    np.testing.assert_array_equal(out.array(), np.arange(8.0)[None])


def test_nc_match_replace8_price(machine):
    bench = machine()
    data, vals = bench.tile(np.zeros((128, 512))), bench.tile(np.zeros((128, 8)))
    (record,) = bench.issue("nc_match_replace8", bench.empty((128, 512)), data, vals, 0.0)
    assert record.price.issue_ns == pytest.approx(512 / 0.96 + 70)


ELEMENTS = st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, np.inf, -np.inf, np.nan])


@given(st.data(), st.integers(1, 3), st.sampled_from([8, 40]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_value_is_found_where_a_search_from_the_left_finds_it(data, rows, columns, backwards):
    drawn = lambda count: np.array(data.draw(st.lists(ELEMENTS, min_size=count, max_size=count)), np.float32)  # noqa: E731
    elements, vals = drawn(rows * columns).reshape(rows, columns), drawn(rows * 8).reshape(rows, 8)
    order = range(7, -1, -1) if backwards else range(8)
    found = matches(elements, vals, order)
    for row in range(rows):
        left = elements[row].tolist()
        for slot in order:
            value = vals[row, slot]
            expected = next((index for index, element in enumerate(left) if element == value), -1)
            if expected >= 0:
                left[expected] = np.nan
            assert found[row, slot] == expected
