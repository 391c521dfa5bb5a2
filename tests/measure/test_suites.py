import pytest

from kernels_neuron.errors import FileProblems, UsageError
from kernels_neuron.measure.suites import read_suite


def test_a_suite_lists_parts_with_filters(tmp_path):
    (tmp_path / "smoke.toml").write_text('[[part]]\nkernels = ["gemm"]\narchs = ["trn2"]\nlncs = [1]\n')
    (part,) = read_suite(tmp_path, "smoke")
    assert part.kernels == ("gemm",) and part.keep.archs == ("trn2",) and part.keep.lncs == (1,)
    assert part.keep.workloads is None


def test_an_unknown_suite_or_key_is_refused(tmp_path):
    (tmp_path / "smoke.toml").write_text('[[part]]\nkernel = ["gemm"]\n')
    with pytest.raises(UsageError, match="did you mean 'smoke'"):
        read_suite(tmp_path, "smok")
    with pytest.raises(FileProblems, match="kernel"):
        read_suite(tmp_path, "smoke")
