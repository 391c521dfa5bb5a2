"""Timing with a stand-in clock: what is waited for, what is left out, what is made of it."""

import pytest

from kernels_neuron.measure.timing import Timer, time_calls


class StandIn:
    """A device whose calls take the given times one after another, and which finishes only when waited for."""

    def __init__(self, *seconds):
        self.seconds, self.now, self.pending, self.calls = list(seconds), 0.0, 0.0, 0

    def call(self):
        self.pending += self.seconds[min(self.calls, len(self.seconds) - 1)]
        self.calls += 1

    def synchronize(self):
        self.now, self.pending = self.now + self.pending, 0.0

    def timer(self, **options):
        return Timer(clock=lambda: self.now, **options)


def test_the_median_and_the_spread_leave_the_warm_up_out():
    device = StandIn(5.0, 5.0, 1e-6, 4e-6, 2e-6)  # the first two compile
    timing = time_calls(device.call, device.synchronize, device.timer(warmup=2, repetitions=3))
    assert (timing.median_us, timing.min_us, timing.max_us) == pytest.approx((2.0, 1.0, 4.0))
    assert timing.count == 3 and device.calls == 5


def test_the_first_call_which_compiles_is_reported_apart():
    device = StandIn(5.0, 1e-6)
    timing = time_calls(device.call, device.synchronize, device.timer(warmup=3, repetitions=100))
    assert timing.first_us == pytest.approx(5e6) and timing.max_us == pytest.approx(1.0)


def test_every_call_is_waited_for():
    device = StandIn(3e-6)
    timing = time_calls(device.call, device.synchronize, device.timer(warmup=1, repetitions=4))
    assert timing.min_us == pytest.approx(3.0) and device.pending == 0


def test_one_call_at_least_warms_up():
    device = StandIn(5.0, 1e-6)
    timing = time_calls(device.call, device.synchronize, device.timer(warmup=0, repetitions=1))
    assert timing.median_us == pytest.approx(1.0)
