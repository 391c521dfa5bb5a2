"""Which layer gets the credit for what ran, and what a layer's times are made of."""

import pytest
import torch

from kernels_neuron.flows.layer_times import LayerTime, credited


class Noting(torch.nn.Module):
    """Appends its name before and after its child runs."""

    def __init__(self, name, stream, child=None, fail=False):
        super().__init__()
        self.name, self.stream, self.child, self.fail = name, stream, child, fail

    def forward(self, x):
        self.stream.append(f"{self.name} before")
        if self.fail:
            raise ValueError(self.name)
        x = self.child(x) if self.child else x
        self.stream.append(f"{self.name} after")
        return x


def test_a_layer_iscredited_without_the_layers_inside_it():
    stream = ["long ago"]
    model = torch.nn.Sequential(Noting("outer", stream, Noting("inner", stream)), Noting("unlisted", stream))
    with credited(model, {"0": None, "0.child": None}, stream) as credit:
        model(torch.zeros(1))
    assert credit == {"0": (["outer before", "outer after"],), "0.child": (["inner before", "inner after"],)}


def test_no_hook_stays_on_the_model_and_an_error_passes_through():
    stream = []
    model = torch.nn.Sequential(Noting("failing", stream, fail=True))
    with pytest.raises(ValueError, match="failing"), credited(model, {"0": None}, stream) as credit:
        model(torch.zeros(1))
    assert credit == {"0": (["failing before"],)}
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks


def test_launches_count_on_both_sides_of_the_speedup_that_names_them():
    row = LayerTime("a", "linear", 10.0, 20.0, 2, 5, 4.0, {}).row()
    assert row["speedup"] == 2.0
    assert row["speedup_with_launch"] == (20.0 + 5 * 4.0) / (10.0 + 2 * 4.0)


def test_a_layer_that_took_no_time_has_no_speedup():
    row = LayerTime("a", "linear", 0.0, 20.0, 0, 5, 4.0, {}).row()
    assert row["speedup"] is None and row["speedup_with_launch"] is None
