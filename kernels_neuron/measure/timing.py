"""Timing calls on a device: warm-up, repetitions, and what came out of them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Timer:
    """How a call is timed. The first calls of a new shape compile, so at least one warms up.

    clock  seconds, as time.perf_counter; tests put a stand-in here
    """

    warmup: int = 10
    repetitions: int = 100
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True)
class Timing:
    """Times of single calls in us, from before the call to the end of all work on the device.

    first_us  the very first call, which compiles; it is in none of the others
    """

    first_us: float
    median_us: float
    min_us: float
    max_us: float
    count: int


def time_calls(call: Callable[[], object], synchronize: Callable[[], object], timer: Timer) -> Timing:
    """Call over and over, waiting for the device each time."""

    def once() -> float:
        began = timer.clock()
        call()
        synchronize()
        return (timer.clock() - began) * 1e6

    first, *_ = [once() for _ in range(max(1, timer.warmup))]
    times = [once() for _ in range(max(1, timer.repetitions))]
    return Timing(first, median(times), min(times), max(times), len(times))
