import pytest
import torch

from kernels_neuron.inputs import LAYOUTS, Tensor, default_fill, fill_problem, layout_problem, make


def one(shape, layout="contiguous", fill="normal", dtype="float32"):
    return make([Tensor("x", shape, dtype, layout, fill)], "label", 0)["x"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_layout_moves_no_value(layout, dtype):
    plain = one((2, 3, 5, 4), dtype=dtype)
    laid = one((2, 3, 5, 4), layout, dtype=dtype)
    assert laid.shape == plain.shape
    assert torch.equal(laid, plain[:1].expand(plain.shape) if layout == "expanded" else plain)


@pytest.mark.parametrize(
    ("layout", "strides"),
    [
        ("contiguous", (60, 20, 4, 1)),
        ("transposed", (60, 20, 1, 5)),
        ("strided", (120, 40, 8, 2)),
        ("padded", (105, 35, 7, 1)),
        ("offset", (60, 20, 4, 1)),
        ("expanded", (0, 20, 4, 1)),
        ("channels_last", (60, 1, 12, 3)),
        ("bshd", (60, 4, 12, 1)),
        ("packed", (180, 4, 36, 1)),
    ],
)
def test_a_layout_has_its_strides(layout, strides):
    assert one((2, 3, 5, 4), layout).stride() == strides


def test_offset_starts_after_the_allocation():
    assert one((2, 3), "offset").storage_offset() == 1


@pytest.mark.parametrize("layout", ["strided", "padded", "offset", "packed"])
def test_memory_between_the_elements_is_poison(layout):
    x = one((2, 3), layout)
    whole = torch.empty(0).set_(x.untyped_storage())
    assert int(torch.isnan(whole).sum()) == whole.numel() - x.numel()


def test_packed_inputs_of_one_shape_share_a_buffer():
    tensors = [Tensor(name, (2, 3, 5, 4), "float32", "packed", "normal") for name in "qkv"]
    made = make(tensors, "label", 0)
    assert len({tensor.untyped_storage().data_ptr() for tensor in made.values()}) == 1
    assert [tensor.storage_offset() for tensor in made.values()] == [0, 12, 24]
    assert not torch.isnan(torch.empty(0).set_(made["q"].untyped_storage())).any()


def test_fills_have_their_values():
    assert one((2, 2), fill="zeros").eq(0).all()
    assert one((2, 2), fill="ones").eq(1).all()
    assert one((2, 2), fill="constant value=2.5").eq(2.5).all()
    assert one((2, 3), fill="arange").tolist() == [[0, 1, 2], [3, 4, 5]]
    uniform = one((100, 10), fill="uniform lo=2 hi=3")
    assert 2 <= uniform.min() < uniform.max() <= 3
    rows = one((100, 100), fill="rows mean=1e4 std=1")
    assert abs(rows.mean() - 1e4) < 0.1
    assert 0.9 < rows.std() < 1.1


def test_arange_starts_again_where_the_dtype_ends():
    assert one((300,), fill="arange", dtype="bfloat16")[256:258].tolist() == [0, 1]
    assert one((300,), fill="arange", dtype="float16")[299] == 299


def test_masks():
    assert one((3, 4), fill="mask lengths=1,4", dtype="bool").tolist() == [
        [True, False, False, False],
        [True] * 4,
        [True, False, False, False],
    ]
    sparse = one((50, 20), fill="mask keep=0.01", dtype="bool")
    assert sparse.any(-1).all()
    assert sparse.float().mean() < 0.1
    empty = one((4, 9), fill="mask empty_row", dtype="bool")
    assert empty.any(-1).tolist() == [False, True, True, True]


def test_a_value_does_not_depend_on_the_dtype():
    assert torch.equal(one((4, 4)).to(torch.bfloat16), one((4, 4), dtype="bfloat16"))


@pytest.mark.parametrize(
    ("fill", "dtype", "expected"),
    [
        ("norml", "float32", "unknown fill 'norml', did you mean 'normal'"),
        ("rows mean=x", "float32", "mean of rows has to be a number, got 'x'"),
        ("uniform lo=1", "float32", "uniform needs hi=..."),
        ("normal", "bool", "normal does not fill bool"),
        ("mask keep=0.5", "float32", "mask does not fill float32"),
        ("mask", "bool", "mask needs keep=..., lengths=... or empty_row"),
        ("mask lengths=1,2", "bool", None),
        ("normal", "bfloat16", None),
    ],
)
def test_fills_are_checked(fill, dtype, expected):
    assert fill_problem(fill, dtype) == expected


def test_layouts_are_checked_against_the_number_of_axes():
    assert layout_problem("bshd", 3) == "bshd needs exactly 4 axes, this input has 3"
    assert layout_problem("transposed", 1) == "transposed needs at least 2 axes, this input has 1"
    assert layout_problem("padded", 2) is None


def test_default_fills():
    assert [default_fill(name) for name in ("bfloat16", "int32", "bool")] == ["normal", "arange", "ones"]
