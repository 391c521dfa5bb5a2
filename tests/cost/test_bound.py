import pytest

from kernels_neuron.arch import chip
from kernels_neuron.cost.bound import bandwidth_gbps, hbm_bytes, roofline

TRN2 = chip("trn2")


def test_a_matmul_is_bound_by_flops_and_a_copy_by_bytes():
    assert roofline(2 * 2048**3, 3 * 2048**2 * 2, "bfloat16", TRN2).us == pytest.approx(218.6, rel=0.01)
    assert roofline(0, 435_200_000, "float32", TRN2).us == pytest.approx(1000)


def test_two_cores_have_twice_the_flops_and_share_hbm():
    one, two = (roofline(1e12, 1e9, "bfloat16", TRN2, cores) for cores in (1, 2))
    assert one.compute_us == pytest.approx(2 * two.compute_us)
    assert bandwidth_gbps(TRN2, 2) == pytest.approx(716)
    assert one.memory_us < 2 * two.memory_us


def test_bytes_of_a_tensor_count_once_however_often_it_is_read(trace_of, kernels):
    trace = trace_of(kernels.rows_doubled, (256, 64))
    assert hbm_bytes([trace]) == 2 * 256 * 64 * 4
    assert hbm_bytes([trace, trace]) == 2 * 256 * 64 * 4
