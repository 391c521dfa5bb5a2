import numpy as np
import pytest

from kernels_neuron.cost.profile import profile


def test_bytes_and_descriptors_of_a_copy(kernels):
    found = profile(kernels.copy, np.ones((128, 2048), np.float32)).dma
    assert found.total.transfers == 2
    assert found.total.nbytes == 2 * 128 * 2048 * 4
    # a row of 8 KiB is two descriptors of 4 KiB
    assert found.total.descriptors == 2 * 128 * 2 and found.total.mean_descriptor_bytes == 4096
    assert found.total.small_share == 0
    assert sum(moved.nbytes for moved in found.lines.values()) == found.total.nbytes


def test_descriptors_below_the_efficient_size_are_counted(kernels):
    found = profile(kernels.copy, np.ones((128, 128), np.float32)).dma
    assert found.total.mean_descriptor_bytes == 512 < found.efficient_bytes
    assert found.total.small_share == 1.0


def test_the_share_of_peak_is_bytes_over_what_sixteen_engines_move_in_the_body(kernels):
    profiled = profile(kernels.copy, np.ones((128, 2048), np.float32))
    found, arch = profiled.dma, profiled.arch
    assert found.peak_gbps == 16 * arch.dma_engine_bytes_per_ns
    assert found.share_of_peak == pytest.approx(found.total.nbytes / (profiled.timeline.body_ns * found.peak_gbps))
    assert found.share_of_peak < found.busy_share_of_peak <= 1


def test_small_descriptors_cost_the_engines_time(kernels):
    small = profile(kernels.copy, np.ones((128, 64), np.float32)).dma
    large = profile(kernels.copy, np.ones((128, 2048), np.float32)).dma
    assert small.busy_share_of_peak < large.busy_share_of_peak


def test_json_lists_the_lines_by_bytes(kernels):
    lines = profile(kernels.copy, np.ones((128, 64), np.float32)).to_json()["dma"]["lines"]
    assert {line["direction"] for line in lines} == {"load", "store"}
    assert all(line["where"].startswith("kernels.py:") and line["bytes"] == 128 * 64 * 4 for line in lines)
