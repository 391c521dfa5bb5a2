import pytest
import torch

from kernels_neuron.tolerance import DEFAULTS, allowed_error, compare


def held(out, ref, dtype="float32", kind="elementwise"):
    ref = torch.tensor(ref, dtype=torch.float64)
    return compare(
        torch.tensor(out, dtype=getattr(torch, dtype)), ref, allowed_error(DEFAULTS[kind][dtype], ref, None, 0)
    )


def test_error_is_a_share_of_what_is_allowed():
    comparison = held([[1.0 + 5.5e-6]], [[1.0]])
    assert comparison.ok
    assert comparison.error == pytest.approx(0.5, rel=0.05)
    assert comparison.max_abs == pytest.approx(5.5e-6, rel=0.05)
    assert comparison.rel_l2 == pytest.approx(5.5e-6, rel=0.05)


def test_an_error_beyond_the_allowed_fails():
    assert not held([[1.0 + 2e-5]], [[1.0]]).ok


def test_another_shape_fails():
    comparison = held([1.0], [[1.0]])
    assert not comparison.ok
    assert comparison.problem == "shape [1], the reference has [1, 1]"


@pytest.mark.parametrize(
    ("out", "ref", "noun"),
    [
        ([[1.0, float("nan")]], [[1.0, 2.0]], "NaN"),
        ([[1.0, 2.0]], [[1.0, float("nan")]], "NaN"),
        ([[1.0, float("inf")]], [[1.0, 2.0]], "inf"),
        ([[1.0, float("-inf")]], [[1.0, float("inf")]], "inf"),
        ([[1.0, 2.0]], [[1.0, float("inf")]], "inf"),
        ([[1e-9, 0.0]], [[0.0, 0.0]], "zero"),
    ],
)
def test_what_stands_out_of_place_fails_in_words(out, ref, noun):
    comparison = held(out, ref)
    assert not comparison.ok
    assert comparison.problem.startswith(f"{noun} out of place at [0, ")


def test_what_stands_in_place_passes():
    row = [[1.0, float("nan"), float("inf"), float("-inf")], [0.0, 0.0, -0.0, 0.0]]
    assert held(row, row).ok


def test_a_value_beyond_the_dtype_has_to_be_inf():
    assert held([[1.0, float("inf")]], [[1.0, 1e6]], "float16").ok
    assert not held([[1.0, 65504.0]], [[1.0, 1e6]], "float16").ok


def test_a_single_zero_by_cancellation_may_be_off_by_the_tolerance():
    assert held([[1e-7, 1.0]], [[0.0, 1.0]]).ok


def test_an_empty_output_passes():
    assert held([], []).ok


def test_half_precision_is_held_to_the_largest_finite_value():
    ref = torch.tensor([[1.0, -4.0, float("inf")]], dtype=torch.float64)
    allowed = allowed_error(DEFAULTS["attention"]["bfloat16"], ref, None, 0)
    torch.testing.assert_close(allowed[0, :2], torch.tensor([2**-7 + 4 * 2**-8, 4 * 2**-7 + 4 * 2**-8]).double())


def test_rules_print_as_formulas():
    assert str(DEFAULTS["matmul"]["float32"]) == "(K+2) * 2^-24 * |A|@|B|"
    assert str(DEFAULTS["attention"]["float32"]) == "atol 2e-05"
    assert str(DEFAULTS["attention"]["bfloat16"]) == "rtol 0.0078 + atol 0.0039 * max|ref|"
