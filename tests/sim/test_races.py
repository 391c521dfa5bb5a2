from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_neuron.sim.races import _meeting
from kernels_neuron.sim.trace import Region

NBYTES = 96


@st.composite
def regions(draw):
    width = draw(st.sampled_from([1, 2, 4, 8, 12]))
    room, steps = NBYTES - width, []
    for _ in range(draw(st.integers(0, 2))):
        stride = draw(st.sampled_from([2, 4, 8, 16, 24]))
        count = draw(st.integers(1, 1 + room // stride))
        room -= stride * (count - 1)
        steps.append((stride, count))
    return Region(1, 0, 1, draw(st.integers(0, room // 2)) * 2 if room > 1 else 0, width, tuple(steps))


@given(st.sets(regions(), min_size=1, max_size=4), st.sets(regions(), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_regions_that_share_a_byte_are_found_whatever_the_size_of_the_pieces(written, touched):
    expected = {region for region in touched if any(region.overlaps(mine) for mine in written)}
    assert set(_meeting(NBYTES, written, touched)) == expected
