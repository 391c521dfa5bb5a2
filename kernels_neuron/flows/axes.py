"""Axes of the pages' pictures: where values stand on a logarithmic one, and which values it names."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


def log_position(value: float, low: float, high: float) -> float:
    """Where a value stands between two others on a logarithmic axis, 0 to 1."""
    return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))


def decades(low: float, high: float) -> list[float]:
    """The powers of ten from low to high."""
    return [10.0**power for power in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]


@dataclass(frozen=True)
class LogAxis:
    """A logarithmic axis over some values, `length` units long, with room at both ends.

    turned  values grow towards 0, as they do upwards in a picture
    """

    low: float
    high: float
    length: float
    turned: bool = False

    @classmethod
    def over(cls, values: Sequence[float], length: float, turned: bool = False) -> "LogAxis":
        """The axis that all of these positive values fit on."""
        return cls(min(values) / 1.3, max(values) * 1.3, length, turned)

    def at(self, value: float) -> float:
        """Where a value stands."""
        share = log_position(value, self.low, self.high)
        return self.length * (1 - share if self.turned else share)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """(position, text) of powers of ten, and of twice and five times these where they are few."""
        values = [factor * power for power in decades(self.low / 10, self.high) for factor in (1, 2, 5)]
        inside = [value for value in values if self.low <= value <= self.high]
        if len(inside) > 10:
            inside = decades(self.low, self.high)
        return [(self.at(value), f"{value:g}") for value in inside]
