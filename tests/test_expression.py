import pytest

from kernels_neuron.expression import evaluate, holds, names_in


@pytest.mark.parametrize(
    ("comparison", "truth"),
    [
        ("a * b <= 6", True),
        ("a < b < 3", False),
        ("b % a != 0", True),
        ("1 <= a", True),
        ("b == 3", True),
        ("a > b", False),
    ],
)
def test_a_comparison_is_true_or_not(comparison, truth):
    assert holds(comparison, {"a": 2, "b": 3}) is truth


@pytest.mark.parametrize("text", ["a", "a and b", "a in b", "a <", "a <= 1 // 0", "c < 1", "a < open('x')"])
def test_anything_but_a_comparison_of_sizes_is_refused(text):
    with pytest.raises(ValueError):
        holds(text, {"a": 2, "b": 3})


def test_a_comparison_is_no_size():
    with pytest.raises(ValueError, match="none of letters"):
        evaluate("a < 3", {"a": 2})


def test_names_come_once_each():
    assert names_in("tile_m * 2 <= M + tile_m") == ["tile_m", "M"]
