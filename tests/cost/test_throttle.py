import pytest

from kernels_neuron.arch import chip
from kernels_neuron.cost.throttle import Throttle

TRN2 = chip("trn2")
WINDOW = TRN2.throttle_window_ns


def test_a_busy_engine_recovers_after_one_window():
    throttle = Throttle(TRN2, 0.0)
    assert throttle.stream(0.0, WINDOW * 1.2) == pytest.approx(WINDOW)
    assert throttle.at(WINDOW) == 1.0
    assert throttle.stream(WINDOW, 2400) == pytest.approx(WINDOW + 1000)


def test_a_window_below_three_eighths_is_followed_by_half_rate():
    for share, rate in ((0.37, 0.5), (0.38, 1.0)):
        throttle = Throttle(TRN2, 0.0)
        throttle.stream(0.0, share * WINDOW * 2.4)
        assert throttle.at(WINDOW) == rate


def test_an_idle_window_throttles_again():
    throttle = Throttle(TRN2, 0.0)
    throttle.stream(0.0, WINDOW * 1.2)
    assert throttle.at(5.5 * WINDOW) == 0.5


def test_the_phase_moves_the_borders():
    throttle = Throttle(TRN2, 0.25)
    assert throttle.border == pytest.approx(0.75 * WINDOW)


def test_trn1_has_no_throttle():
    assert Throttle(chip("trn1"), 0.0).stream(0.0, 2800) == pytest.approx(1000)
