import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_neuron.arch import chip
from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using
from kernels_neuron.sim.core import NeuronCore
from kernels_neuron.sim.index import Ds
from kernels_neuron.sim.memory import MemoryRegion


def numbered(shape, buffer="sbuf", dtype="int32"):
    tensor = NeuronCore(chip("trn2"), Settings()).allocate(shape, dtype, MemoryRegion[buffer])
    tensor.array()[...] = np.arange(tensor.size).reshape(shape)
    return tensor


def refused(rule, call):
    with pytest.raises(KernelError) as caught:
        call()
    assert caught.value.rule == rule
    return str(caught.value)


def region_bytes(tensor):
    """The bytes of the allocation that region() names."""
    region, tile = tensor.region(), tensor.storage.tile
    mask = np.zeros((tile.partitions, tile.nbytes), bool)
    for start in region.starts():
        mask[region.p0 : region.p1, start : start + region.width] = True
    return mask.reshape(-1)


def touched_bytes(tensor):
    """The bytes of the allocation that the view's elements occupy."""
    mask = np.zeros(tensor.storage.tile.partitions * tensor.storage.tile.nbytes, bool)
    item = tensor.itemsize
    for index in np.ndindex(*tensor.shape):
        at = (tensor.offset + sum(i * stride for i, stride in zip(index, tensor.strides, strict=True))) * item
        mask[at : at + item] = True
    return mask


# ---- indexing


def test_a_fresh_tile_has_row_major_strides():
    tensor = numbered((128, 64))
    assert (tensor.shape, tensor.strides, tensor.offset) == ((128, 64), (64, 1), 0)
    assert tensor.is_contiguous() and tensor.get_pattern() == [[64, 128], [1, 64]]
    assert (tensor.ndim, tensor.size, len(tensor)) == (2, 128 * 64, 128)


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ((slice(0, 4),), (4, 3, 5)),
        (3, (1, 3, 5)),
        ((slice(None), 1), (8, 5)),
        ((slice(None), 1, 2), (8, 1)),
        ((0, 0, 2), (1, 1)),
        ((Ellipsis, slice(1, 5, 2)), (8, 3, 2)),
        ((slice(None), -1), (8, 5)),
        ((Ds(2, 3), Ellipsis, Ds(1, 2)), (3, 3, 2)),
        ((slice(-4, -1),), (3, 3, 5)),
    ],
)
def test_on_chip_indexing_keeps_the_partition_dim_and_two_dims(key, shape):
    tensor = numbered((8, 3, 5))
    view = tensor[key]
    assert view.shape == shape
    keys = [
        slice(k.start, k.start + k.size) if isinstance(k, Ds) else k
        for k in (key if isinstance(key, tuple) else (key,))
    ]
    np.testing.assert_array_equal(view.array().reshape(-1), tensor.array()[tuple(keys)].reshape(-1))
    assert view.storage is tensor.storage


@pytest.mark.parametrize(("key", "shape"), [(1, (3, 5)), ((1, 2), (5,)), ((1, 2, 3), (1,)), ((slice(1, 3), 0), (2, 5))])
def test_hbm_indexing_drops_dims_down_to_one(key, shape):
    tensor = numbered((8, 3, 5), "shared_hbm")
    assert tensor[key].shape == shape
    np.testing.assert_array_equal(tensor[key].array().reshape(-1), np.asarray(tensor.array()[key]).reshape(-1))


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ("out-of-bounds", slice(0, 9)),
        ("out-of-bounds", 8),
        ("out-of-bounds", -9),
        ("out-of-bounds", (slice(None), Ds(2, 4))),
        ("out-of-bounds", slice(0, 4, -1)),
        ("empty-slice", slice(4, 4)),
        ("index-type", 1.0),
        ("index-type", slice(0, 2.0)),
        ("index-type", [0, 1]),
        ("index-rank", (0, 0, 0)),
    ],
)
def test_an_index_that_leaves_the_tensor_is_refused(rule, key):
    message = refused(rule, lambda: numbered((8, 5))[key])
    assert "sbuf int32[8, 5]" in message


def test_a_tensor_is_true_whatever_it_holds():
    assert numbered((1, 1))


# ---- views


def test_reshape_of_free_dims_equals_numpy_and_never_moves_partitions():
    tensor = numbered((8, 4, 6))
    np.testing.assert_array_equal(tensor.reshape((8, 2, -1)).array(), tensor.array().reshape(8, 2, 12))
    assert "across partitions" in refused("partition-view", lambda: tensor.reshape((4, 48)))
    refused("view-reshape", lambda: tensor.reshape((8, 5, 5)))
    refused("view-reshape", lambda: tensor.permute((0, 2, 1)).reshape((8, 24)))
    assert numbered((8, 4, 6), "shared_hbm").reshape((32, 6)).shape == (32, 6)


def test_reshape_dim_and_flatten_dims_are_inverse():
    tensor = numbered((8, 24))
    split = tensor.reshape_dim(1, (2, -1, 4))
    np.testing.assert_array_equal(split.array(), tensor.array().reshape(8, 2, 3, 4))
    np.testing.assert_array_equal(split.flatten_dims(1, 3).array(), tensor.array())
    refused("view-flatten", lambda: split.permute((0, 2, 1, 3)).flatten_dims(1, 2))
    refused("partition-view", lambda: split.flatten_dims(0, 1))
    refused("view-reshape", lambda: tensor.reshape_dim(1, (5, 5)))


def test_permute_broadcast_expand_and_squeeze():
    tensor = numbered((8, 3, 1, 5))
    np.testing.assert_array_equal(tensor.permute((0, 3, 1, 2)).array(), tensor.array().transpose(0, 3, 1, 2))
    wide = tensor.broadcast(2, 4)
    np.testing.assert_array_equal(wide.array(), np.broadcast_to(tensor.array(), (8, 3, 4, 5)))
    assert wide.region() == tensor.region()
    assert tensor.squeeze_dim(2).shape == (8, 3, 5)
    assert tensor.expand_dim(1).shape == (8, 1, 3, 1, 5)
    refused("view-broadcast", lambda: tensor.broadcast(1, 4))
    refused("view-squeeze", lambda: tensor.squeeze_dim(1))
    refused("view-permute", lambda: tensor.permute((1, 0, 2, 3)))
    refused("view-permute", lambda: tensor.permute((0, 1, 2)))
    refused("partition-view", lambda: tensor.expand_dim(0))
    refused("view-rank", lambda: tensor.expand_dim(1).expand_dim(1))
    refused("view-dim", lambda: tensor.squeeze_dim(7))


def test_slice_and_select_agree_with_indexing():
    tensor = numbered((8, 3, 6))
    np.testing.assert_array_equal(tensor.slice(2, 1, 6, 2).array(), tensor.array()[:, :, 1:6:2])
    np.testing.assert_array_equal(tensor.select(1, 2).array(), tensor.array()[:, 2])
    refused("partition-view", lambda: tensor.select(0, 1))
    refused("dynamic-offset", lambda: tensor.select(1, tensor))


def test_view_reads_the_same_bytes_as_another_dtype():
    tensor = numbered((4, 6), dtype="uint32")
    np.testing.assert_array_equal(tensor.view("uint8").array(), tensor.array().view(np.uint8))
    assert tensor.view("uint8").view("uint32").shape == (4, 6)
    assert tensor[:, 2:4].view("uint16").array().tolist() == tensor.array()[:, 2:4].copy().view(np.uint16).tolist()
    refused("view-dtype", lambda: tensor.view("uint8")[:, 1:5].view("uint32"))
    refused("view-dtype", lambda: tensor[:, ::2].view("uint8"))


def test_ap_addresses_the_allocation():
    tensor = numbered((8, 16))
    view = tensor.ap([[16, 8], [4, 3], [1, 2]], offset=1)
    expected = tensor.array()[:, [[1, 2], [5, 6], [9, 10]]]
    np.testing.assert_array_equal(view.array(), expected)
    np.testing.assert_array_equal(tensor[:, 3:].ap([[16, 8], [1, 2]]).array(), tensor.array()[:, 3:5])
    np.testing.assert_array_equal(
        tensor.ap([[32, 8], [1, 4]], dtype="uint16").array(), tensor.array().view(np.uint16)[:, :4]
    )
    refused("ap-partition", lambda: tensor.ap([[8, 8], [1, 2]]))
    refused("out-of-bounds", lambda: tensor.ap([[16, 8], [-1, 2]], offset=15))
    refused("dynamic-dim", lambda: tensor.ap([[16, 8], [1, 2]], vector_offset=tensor))


@pytest.mark.parametrize(("pattern", "offset"), [([[16, 8], [1, 2]], 15), ([[16, 9], [1, 2]], 0)])
def test_a_pattern_that_leaves_the_allocation_may_be_made_and_not_be_used(pattern, offset):
    # public kernels describe the operand of a last tile before they find that there is none
    view = numbered((8, 16)).ap(pattern, offset=offset)
    assert view.shape == tuple(count for _, count in pattern)
    for use in (view.array, view.region, view[:, :1].region, lambda: view.view("uint8"), lambda: view.ap([[16, 8]])):
        assert f"with offset {offset} leaves sbuf int32[8, 16]" in refused("out-of-bounds", use)


@pytest.mark.parametrize(("meaning", "columns"), [(None, slice(4, 6)), ("view", slice(4, 6)), ("storage", slice(1, 3))])
def test_an_ap_offset_on_a_view_counts_from_the_view_unless_a_switch_says_otherwise(meaning, columns):
    tensor = numbered((8, 16))
    with using(settings=Settings(switches={"ap_view_offset": meaning} if meaning else {})):
        view = tensor[:, 3:].ap([[16, 8], [1, 2]], offset=1)
    np.testing.assert_array_equal(view.array(), tensor.array()[:, columns])


def test_an_ap_offset_on_a_view_can_be_refused():
    with using(settings=Settings(switches={"ap_view_offset": "refuse"})):
        refused("ap-view-offset", lambda: numbered((8, 16))[:, 3:].ap([[16, 8], [1, 2]], offset=1))


def test_ap_counts_a_view_in_the_dtype_it_is_read_as():
    tensor = numbered((8, 16))
    halves = tensor[:, 3:].ap([[32, 8], [1, 4]], dtype="uint16")
    np.testing.assert_array_equal(halves.array(), tensor.array().view(np.uint16)[:, 6:10])


def test_the_partition_step_of_a_pattern_may_be_that_of_the_view():
    # a TensorView of the vendor's library takes the strides of what it wraps from its shape alone
    tensor = numbered((8, 16))
    view = tensor.ap([[16, 8], [1, 8]], offset=8)
    np.testing.assert_array_equal(view.ap([[8, 8], [2, 4]], offset=0).array(), tensor.array()[:, 8::2])
    refused("ap-partition", lambda: view.ap([[4, 8], [1, 4]]))


def test_hbm_ap_takes_any_pattern_inside_the_tensor():
    tensor = numbered((8, 16), "shared_hbm")
    np.testing.assert_array_equal(tensor.ap([[1, 16], [16, 8]]).array(), tensor.array().T)
    np.testing.assert_array_equal(tensor.ap([[0, 4], [1, 16]]).array(), np.broadcast_to(tensor.array()[0], (4, 16)))
    refused("out-of-bounds", tensor.ap([[16, 8], [1, 17]]).array)


# ---- any chain of views


@st.composite
def chains(draw):
    """A tile and a chain of legal views of it, each with what numpy makes of it."""
    shape = (draw(st.sampled_from([1, 3, 8])), *draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    tensor = numbered(
        shape, draw(st.sampled_from(["sbuf", "psum", "shared_hbm"])), draw(st.sampled_from(["int32", "int16"]))
    )
    expected = tensor.array()
    for _ in range(draw(st.integers(1, 4))):
        first = 1 if tensor.on_chip else 0
        kind = draw(st.sampled_from(["slice", "permute", "flatten", "split", "broadcast"]))
        dims = list(range(first, tensor.ndim))
        if kind == "slice":
            dim = draw(st.integers(0, tensor.ndim - 1))
            start = draw(st.integers(0, tensor.shape[dim] - 1))
            stop = draw(st.integers(start + 1, tensor.shape[dim]))
            step = draw(st.integers(1, 3)) if dim or not tensor.on_chip else 1
            key = (slice(None),) * dim + (slice(start, stop, step),)
            tensor, expected = tensor[key], expected[key]
        elif kind == "permute":
            order = (*range(first), *draw(st.permutations(dims)))
            tensor, expected = tensor.permute(order), expected.transpose(order)
        elif kind == "flatten" and tensor.is_contiguous() and len(dims) > 1:
            tensor = tensor.flatten_dims(first, tensor.ndim - 1)
            expected = expected.reshape(*expected.shape[:first], -1)
        elif kind == "split" and tensor.ndim < 5:
            dim = draw(st.sampled_from(dims))
            factor = draw(st.sampled_from([n for n in range(1, 7) if tensor.shape[dim] % n == 0]))
            parts = (factor, tensor.shape[dim] // factor)
            tensor, expected = (
                tensor.reshape_dim(dim, parts),
                expected.reshape(*expected.shape[:dim], *parts, *expected.shape[dim + 1 :]),
            )
        elif kind == "broadcast" and 1 in [tensor.shape[dim] for dim in dims]:
            dim = next(dim for dim in dims if tensor.shape[dim] == 1)
            tensor = tensor.broadcast(dim, 3)
            expected = np.broadcast_to(expected, (*expected.shape[:dim], 3, *expected.shape[dim + 1 :]))
    return tensor, expected


@settings(max_examples=300, deadline=None)
@given(chains())
def test_a_chain_of_views_equals_numpy_and_knows_its_bytes(chain):
    tensor, expected = chain
    np.testing.assert_array_equal(tensor.array(), expected)
    np.testing.assert_array_equal(region_bytes(tensor), touched_bytes(tensor))


# ---- allocation


@pytest.mark.parametrize(
    ("rule", "shape", "buffer"),
    [
        ("partition-limit", (129, 4), "sbuf"),
        ("shape-empty", (128, 0), "sbuf"),
        ("shape-empty", (), "sbuf"),
        ("tile-rank", (128,), "psum"),
        ("view-rank", (2, 2, 2, 2, 2, 2), "sbuf"),
        ("shape-type", None, "sbuf"),
    ],
)
def test_an_impossible_allocation_is_refused(rule, shape, buffer):
    core = NeuronCore(chip("trn2"), Settings())
    refused(rule, lambda: core.allocate(shape, "float32", MemoryRegion[buffer]))


def test_a_buffer_is_an_object_not_a_string():
    refused("buffer-type", lambda: NeuronCore(chip("trn2"), Settings()).allocate((8, 8), "float32", "sbuf"))
