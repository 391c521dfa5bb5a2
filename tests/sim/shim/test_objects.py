"""nl.NKIObject: fields and constructors."""

from dataclasses import dataclass, field

import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.sim.shim.objects import NKIObject


def test_every_plain_class_attribute_is_a_field_annotated_or_not():
    @dataclass
    class Section(NKIObject):
        index = None
        size: int = 512

    section = Section(index=3)
    assert (section.index, section.size) == (3, 512)


def test_the_dataclass_decorator_is_optional():
    class Tile(NKIObject):
        rows: int
        columns: int = 4

        def area(self):
            return self.rows * self.columns

    assert Tile(2).area() == 8
    assert Tile(rows=2, columns=5).area() == 10


def test_a_field_left_out_is_an_error_once_it_is_read():
    @dataclass
    class Sizes(NKIObject):
        rows: int
        columns: int = 4

    sizes = Sizes(columns=2)
    assert sizes.columns == 2
    for use in (lambda: sizes.rows + 1, lambda: sizes.rows < 3, lambda: bool(sizes.rows), lambda: sizes.rows == 4):
        with pytest.raises(KernelError, match=r"Sizes\.rows has no value") as caught:
            use()
        assert caught.value.rule == "field-left-out"


def test_a_constructor_of_its_own_is_kept():
    class Counter(NKIObject):
        start = 1

        def __init__(self, value):
            self.value = value

    assert Counter(7).value == 7


def test_default_factories_and_methods_survive():
    @dataclass
    class Holder(NKIObject):
        items: list = field(default_factory=list)
        limit = 3

        @property
        def full(self):
            return len(self.items) >= self.limit

    first, second = Holder(), Holder()
    first.items.append(1)
    assert second.items == [] and not first.full
