"""torch.neuron and torch.accelerator."""

import pytest
import torch

N = "neuron"


def test_the_namespace_answers_for_one_device():
    assert torch.neuron.is_available() and torch.neuron.is_initialized() and torch.neuron.is_bf16_supported()
    assert (torch.neuron.device_count(), torch.neuron.current_device()) == (1, 0)
    assert "emulated" in torch.neuron.get_device_name()
    for device in (None, 0, "neuron", "neuron:0", torch.device(N)):
        torch.neuron.synchronize(device)
    torch.neuron.empty_cache()
    torch.neuron.init()


@pytest.mark.parametrize("device", [1, "neuron:1", torch.device(N, 2)])
def test_another_device_is_refused(device):
    for call in (torch.neuron.set_device, torch.neuron.synchronize, torch.neuron.device):
        with pytest.raises(RuntimeError, match="the emulated neuron device has one core, neuron:0"):
            call(device)
    with pytest.raises(ValueError, match="expected a neuron device, got cpu"):
        torch.neuron.set_device("cpu")


def test_it_is_importable_and_the_current_accelerator():
    import torch.neuron as namespace

    assert namespace is torch.neuron
    assert torch.accelerator.current_accelerator() == torch.device(N)
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    with torch.neuron.device(0):
        assert torch.accelerator.current_device_index() == 0


def test_random_state_is_forked_and_restored():
    torch.manual_seed(0)
    with torch.random.fork_rng(device_type=N):
        inside = torch.rand(2, device=N)
    assert torch.rand(2, device=N).equal(inside)
    assert len(torch.neuron.get_rng_state_all()) == 1
