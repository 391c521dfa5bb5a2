"""Our own kernelize on a model that lives on the emulated device."""

import warnings

import pytest
import torch

import kernels_neuron
from kernels_neuron.flows.digits import load_digits, load_model, preprocess
from kernels_neuron.loader import swap

N = "neuron"


@pytest.fixture(scope="module")
def pixels():
    return torch.from_numpy(preprocess(load_digits().test[:2]))


def test_a_kernelized_model_runs_on_the_device_and_is_undone(pixels):
    model = load_model()
    with torch.no_grad():
        expected = model(pixels).logits
        model.to(N)
        before = model(pixels.to(N)).logits
        kernels_neuron.kernelize(model)
        logits = model(pixels.to(N)).logits
        report = kernels_neuron.report(model)
        kernels_neuron.unkernelize(model)
        after = model(pixels.to(N)).logits
    assert logits.device.type == N
    torch.testing.assert_close(logits.cpu(), expected, rtol=1e-4, atol=1e-4)
    swapped = [row for row in report.modules if row.outcome == "swapped"]
    assert swapped and all(row.calls == 1 and not row.fallbacks for row in swapped)
    assert after.equal(before)


def test_it_is_said_that_there_is_no_device(monkeypatch):
    monkeypatch.setattr(swap, "_said_where_kernels_run", False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        kernels_neuron.kernelize(load_model())
    assert any(issubclass(warning.category, swap.SimulatorWarning) for warning in said)


def test_weights_that_kernels_keep_follow_the_model_and_every_write(pixels):
    model, plain = load_model(), load_model()
    layers = [each.get_submodule("classifier") for each in (model, plain)]
    moves = {
        "to the device": lambda layer: layer.to(N) if layer is layers[0] else layer,
        "a counted write": lambda layer: layer.weight.mul_(2),
        "one past the count": lambda layer: layer.weight.data.mul_(2),
        "other data": lambda layer: setattr(layer.weight, "data", layer.weight.data * 2),
        "in inference mode": lambda layer: inference_write(layer.weight),
        "back": lambda layer: layer.cpu(),
    }
    kernels_neuron.kernelize(model)
    x = torch.randn(3, layers[0].in_features)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, move in moves.items():
            for layer in layers:
                move(layer)
            for _ in range(2):
                out = layers[0](x.to(layers[0].weight.device)).cpu()
                torch.testing.assert_close(out, layers[1](x), rtol=1e-5, atol=1e-4, msg=name)


def inference_write(weight):
    with torch.inference_mode():
        weight.mul_(0.5)
