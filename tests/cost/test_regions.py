from kernels_neuron.cost.regions import APART, COVERS, TOUCHES, Space, overlap
from kernels_neuron.sim.trace import Place, Region


def test_rows_of_one_pitch_with_columns_apart_do_not_overlap():
    left = Region(0, 0, 1, 0, 64, ((256, 1000),))
    right = Region(0, 0, 1, 64, 64, ((256, 1000),))
    assert not overlap(left, right) and not overlap(right, left)
    assert overlap(left, right._replace(lo=60)) and overlap(right._replace(lo=60), left)
    assert overlap(left, Region(0, 0, 1, 256 * 999, 4)) and not overlap(left, Region(0, 0, 1, 256 * 999 + 64, 4))


def test_a_region_has_one_number_per_address():
    space = Space()
    low, high = Region(1, 0, 128, 0, 64), Region(2, 0, 128, 32, 64)
    assert space.number(low, Place("sbuf", 0, 96)) == space.number(high, Place("sbuf", 0, 64))
    assert space.number(low, Place("sbuf", 0, 0)) == space.number(low, None) != space.number(high, None)


def test_regions_cover_touch_or_are_apart():
    space = Space()
    whole, left, right, rows = (
        space.number(Region(0, *box), None)
        for box in ((0, 128, 0, 64), (0, 128, 0, 32), (0, 128, 32, 32), (0, 64, 16, 4, ((8, 4),)))
    )
    assert [space.relation(whole, other) for other in (whole, left, right, rows)] == [COVERS] * 4
    assert [space.relation(other, whole) for other in (left, right, rows)] == [TOUCHES] * 3
    assert space.relation(left, right) == APART and space.relation(right, rows) == TOUCHES
