import random
from dataclasses import dataclass

import pytest

from kernels_neuron.cost.residents import Residents
from kernels_neuron.sim.trace import Region


@dataclass(frozen=True)
class Guest:
    name: int
    box: Region


def cells(guest):
    return {(p, byte) for p in range(guest.box.p0, guest.box.p1) for byte in range(guest.box.lo, guest.box.hi)}


@pytest.mark.parametrize("seed", range(10))
def test_former_tiles_are_those_of_a_table_of_bytes(seed):
    rng, residents, at = random.Random(seed), Residents(), {}
    for name in range(60):
        p0, lo = rng.choice([0, 0, 2]), rng.randrange(0, 24, 4)
        guest = Guest(name, Region(0, p0, p0 + rng.choice([2, 4]), lo, rng.choice([4, 8, 16])))
        box, expected = guest.box, set()
        for byte in range(box.lo, box.hi):
            expected |= {other for other in at.get(byte, []) if other.box.overlaps(box)}
            stays = [other for other in at.get(byte, []) if other.box.p0 < box.p0 or box.p1 < other.box.p1]
            at[byte] = [guest, *stays]
        former = residents.move_in(guest)
        assert len(former) == len(set(former)) and set(former) == expected
        assert all(cells(other) & cells(guest) for other in former)
