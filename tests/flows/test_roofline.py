"""Rooflines and axes: what stands where, and that no mark covers another."""

import itertools
import math

import pytest

from kernels_neuron.flows.axes import LogAxis, decades, log_position
from kernels_neuron.flows.roofline import HEIGHT, RADIUS, WIDTH, Point, Roofline, chart


def drawn(points, roofs=(("TensorE", 78600.0),)):
    named = [Point(f"point {i}", "", per_byte, gops, mark=str(i)) for i, (per_byte, gops) in enumerate(points)]
    return chart(Roofline(named, list(roofs), 435.0))


def test_marks_at_one_place_do_not_cover_each_other_and_keep_a_dot_there():
    found = drawn([(10.0, 1000.0)] * 30)
    for one, other in itertools.combinations(found.marks, 2):
        assert math.hypot(one.circle_x - other.circle_x, one.circle_y - other.circle_y) >= 2 * RADIUS - 1e-6
    assert [mark.is_aside for mark in found.marks] == [False, *[True] * 29]
    assert len({(mark.x, mark.y) for mark in found.marks}) == 1
    assert all(0 <= mark.circle_x <= WIDTH and 0 <= mark.circle_y <= HEIGHT for mark in found.marks)


def test_marks_do_not_cover_the_names_of_roofs():
    found = drawn([(1e5, 78600.0 * factor) for factor in (0.9, 1.0, 1.1, 1.2, 1.3)])
    [(name, _, _, y)] = found.roofs
    for mark in found.marks:
        assert mark.circle_x < WIDTH - 7 * len(name) or not y - 14 - RADIUS < mark.circle_y < y + 2 + RADIUS


def test_a_mark_with_room_stands_at_its_place():
    assert not any(mark.is_aside for mark in drawn([(1.0, 10.0), (100.0, 10000.0)]).marks)


def test_the_slope_ends_where_the_highest_roof_begins_and_its_name_follows_it():
    found = drawn([(1.0, 10.0)], roofs=[("bfloat16", 78600.0), ("float32", 19650.0)])
    _, x, y, _ = found.roofs[0]
    assert found.slope[2:] == pytest.approx((x, y))
    rise = math.tan(math.radians(found.slope_angle)) * (found.slope[2] - found.slope[0])
    assert rise == pytest.approx(found.slope[3] - found.slope[1]) and found.slope_angle < 0
    assert found.slope_text == "HBM, 435 GB/s"


def test_what_does_nothing_has_no_roofline():
    assert drawn([]) is None and drawn([(1.0, 1.0)], roofs=[]) is None


def test_a_logarithmic_axis_has_its_ends_decades_and_finer_ticks_where_they_are_few():
    assert log_position(10.0, 1.0, 100.0) == pytest.approx(0.5)
    assert decades(0.5, 100.0) == [1.0, 10.0, 100.0]
    axis = LogAxis.over([0.5, 2.0], 100.0)
    assert [text for _, text in axis.ticks] == ["0.5", "1", "2"]
    assert axis.at(1.0) == pytest.approx(50.0)
    turned = LogAxis.over([1.0, 1e5], 100.0, turned=True)
    assert turned.at(1.0) > turned.at(10.0)
    assert [text for _, text in turned.ticks] == ["1", "10", "100", "1000", "10000", "100000"]
