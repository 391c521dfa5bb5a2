"""Saving, loading, copying: everything that goes through a storage."""

import copy
import io
import pickle

import pytest
import torch

N = "neuron"


def saved(value, **how):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True, **how)


def test_what_was_saved_on_the_device_loads_on_the_device():
    model = torch.nn.Linear(3, 2).to(N)
    state = saved(model.state_dict())
    assert {tensor.device.type for tensor in state.values()} == {N}
    fresh = torch.nn.Linear(3, 2)
    fresh.load_state_dict(state)
    assert fresh.weight.equal(model.weight.cpu())


def test_a_map_location_moves_between_the_devices():
    assert saved(torch.ones(2, device=N), map_location="cpu").device.type == "cpu"
    assert saved(torch.ones(2), map_location=N).device.type == N
    assert saved(torch.ones(2), map_location=torch.device(N, 0)).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="device 1"):
        saved(torch.ones(2), map_location="neuron:1")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.int64, torch.bool])
def test_every_dtype_survives(dtype):
    x = torch.tensor([0, 1, 1, 0], device=N).to(dtype)
    back = saved(x)
    assert back.dtype is dtype and back.view(torch.uint8).tolist() == x.view(torch.uint8).tolist()


def test_tensors_that_share_memory_share_it_after_loading():
    x = torch.zeros(3, 4, device=N)
    whole, part = saved([x, x[1:, :2]])
    part[0, 0] = 7
    assert whole[1, 0].item() == 7 and part.stride() == (4, 1)


@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))])
def test_tensors_and_parameters_are_copied(again):
    for value in (torch.arange(3.0, device=N), torch.nn.Parameter(torch.ones(2, device=N))):
        twin = again(value)
        assert type(twin) is type(value) and twin.equal(value) and twin.device == value.device
        assert twin.requires_grad == value.requires_grad


def test_a_deep_copy_of_a_module_keeps_its_ties():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).to(N)
    model[1].weight = model[0].weight
    twin = copy.deepcopy(model)
    assert twin[1].weight is twin[0].weight is not model[0].weight


def test_storages_are_made_cloned_and_kept_apart():
    storage = torch.UntypedStorage(4, device=N).fill_(1)
    clone = storage.clone().fill_(2)
    assert (storage.device, clone.device) == (torch.device(N, 0),) * 2
    assert list(storage.cpu()) == [1] * 4 and list(clone.cpu()) == [2] * 4
    assert list(torch.UntypedStorage([3, 4], device=N).cpu()) == [3, 4]
    assert torch.UntypedStorage(4).device.type == "cpu" and torch.UntypedStorage(4, device="meta").nbytes() == 4
    with pytest.raises(RuntimeError, match="there is no neuron:1"):
        torch.UntypedStorage(4, device="neuron:1")


def test_memory_is_not_handed_to_another_process():
    from multiprocessing.reduction import ForkingPickler

    with pytest.raises(RuntimeError, match="only available on CPU"):
        ForkingPickler.dumps(torch.ones(2, device=N))
