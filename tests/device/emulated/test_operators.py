"""Copies, views, sizes and storages: what a neuron tensor is made of."""

import pytest
import torch

N = "neuron"


def test_a_tensor_is_a_plain_tensor_with_memory_of_its_own():
    here = torch.ones(3)
    there = here.to(N)
    here.zero_()
    assert type(there) is torch.Tensor and there.is_neuron and there.tolist() == [1, 1, 1]
    back = there.cpu()
    there.zero_()
    assert back.tolist() == [1, 1, 1]


def test_a_copy_goes_every_way_and_converts():
    there = torch.empty(2, device=N)
    there.copy_(torch.tensor([1, 2]))
    assert torch.empty(2, dtype=torch.bfloat16).copy_(there).tolist() == [1, 2]
    assert torch.empty(2, 2, device=N).copy_(there).tolist() == [[1, 2], [1, 2]]
    assert torch.ones(2).neuron().device == there.device
    assert there.to(N) is there


def test_views_share_memory_version_and_storage():
    x = torch.zeros(3, 4, device=N)
    view = x.t()[1:].unsqueeze(0)
    view.fill_(5)
    assert x[:, 1:].cpu().eq(5).all() and x[:, 0].cpu().eq(0).all()
    assert view._base is x and view._version == x._version == 1
    assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert x[1].data_ptr() == x.data_ptr() + 16


@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex64])
def test_bytes_are_seen_as_another_dtype(dtype):
    x = torch.arange(8, device=N, dtype=torch.uint8)
    if dtype is torch.bool:
        x = x % 2
    assert x.view(dtype).device.type == N
    assert x.view(dtype).view(torch.uint8).tolist() == x.tolist()


def test_resize_within_the_storage_and_beyond_keeps_the_values():
    x = torch.arange(4.0, device=N)
    assert x.resize_(2).tolist() == [0, 1]
    assert x.resize_(6)[:4].tolist() == [0, 1, 2, 3]
    assert x.untyped_storage().nbytes() == 24


def test_resize_of_a_shared_storage_is_refused_not_faked():
    x = torch.arange(4.0, device=N)
    view = x[1:]
    with pytest.raises(RuntimeError, match="grows only a storage of one tensor"):
        view.resize_(10)
    with pytest.raises(NotImplementedError):
        x.untyped_storage().resize_(0)
    assert view.tolist() == [1, 2, 3]


def test_set_points_at_another_tensors_memory_or_is_refused():
    x, y = torch.zeros(2, device=N), torch.ones(3, device=N)
    x.set_(y)
    x[0] = 4
    assert y.tolist() == [4, 1, 1] and x.is_set_to(y) and not x.is_set_to(y.clone())
    assert x.set_().shape == (0,) and x.device.type == N
    with pytest.raises(RuntimeError, match="set_ of a neuron tensor to a storage on cpu"):
        x.set_(torch.ones(2))
    with pytest.raises(RuntimeError):
        torch.ones(2).set_(y)


def test_data_of_another_device_is_refused():
    parameter = torch.nn.Parameter(torch.ones(2, device=N))
    parameter.data = torch.zeros(3, device=N)
    assert parameter.tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        parameter.data = torch.ones(2)


def test_shapes_without_memory_come_from_neuron_tensors_too():
    x = torch.ones(2, 3, device=N)
    assert x.to("meta").shape == (2, 3)
    assert torch.empty_like(x, device="cpu").device.type == "cpu"
    assert torch.empty_like(torch.ones(2), device=N).device.type == N
    assert torch.empty(0, 3, device=N).sum(0).tolist() == [0, 0, 0]


def test_memory_goes_when_the_tensor_goes():
    import psutil

    def resident():
        return psutil.Process().memory_info().rss

    def work(times):
        for _ in range(times):
            x = torch.ones(1 << 18, device=N)
            x.view(512, 512)[1:].t().add_(1)

    work(20)
    before = resident()
    work(200)  # a megabyte each
    assert resident() - before < 50 * 2**20


def test_the_default_device_may_be_neuron():
    with torch.device(N):
        assert torch.zeros(2).device.type == N and torch.nn.Linear(2, 2).weight.device.type == N


def test_a_data_loader_that_pins_gives_plain_tensors():
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    batches = [batch for (batch,) in torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True)]
    assert not batches[0].is_pinned()
    assert torch.cat(batches).to(N).tolist() == [0, 1, 2, 3]
