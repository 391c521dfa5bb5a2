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
