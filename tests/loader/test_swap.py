import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import nn

from kernels_neuron.errors import ArtifactError, SwapError, UsageError
from kernels_neuron.loader import SimulatorWarning, kernelize, report, swap, unkernelize


def test_every_layer_of_a_vit_runs_in_a_kernel_and_the_logits_stay(make_vit, images, standins, logits):
    model = make_vit()
    before = logits(model, images)
    kernelize(model, sources=standins)
    torch.testing.assert_close(logits(model, images), before)
    assert {row.outcome for row in report(model).modules} == {"swapped"}
    assert [standins.count(name) for name in ("norm", "linear", "linear-gelu", "patch", "attention")] == [
        5,
        11,
        2,
        1,
        2,
    ]


def test_the_kernels_output_reaches_the_logits(make_vit, images, make_standins, logits):
    model = make_vit()
    before = logits(model, images)
    kernelize(model, sources=make_standins(nudge=0.01))
    assert not torch.allclose(logits(model, images), before, atol=1e-3)


@pytest.mark.parametrize("kernel", ["layernorm", "gemm", "vit_attn", "patch_embed"])
def test_each_kernel_alone_changes_the_logits_and_the_others_are_reported_missing(
    make_vit, images, make_standins, kernel, logits
):
    model = make_vit()
    before = logits(model, images)
    kernelize(model, sources={kernel: make_standins(nudge=0.01)[kernel]})
    assert not torch.equal(logits(model, images), before)
    assert {row.reason for row in report(model).kept} <= {"no-kernel", "class-not-listed"}


def test_undo_is_bit_equal_twice_and_in_any_order(make_vit, images, make_standins, logits):
    first, second = make_vit(), make_vit()
    before = logits(first, images)
    plain = {name: sorted(module.__dict__) for name, module in first.named_modules()}
    for model in (first, second):
        kernelize(model, sources=make_standins(nudge=0.01))
    for model in (first, second, first, second):
        unkernelize(model)
        assert torch.equal(logits(model, images), before)
        assert model.config._attn_implementation == "sdpa"
        assert {name: sorted(module.__dict__) for name, module in model.named_modules()} == plain


def test_another_model_of_the_class_is_untouched_even_with_the_same_config(make_vit, images, make_standins, logits):
    model = make_vit()
    other = make_vit(config=model.config)
    before = logits(other, images)
    kernelize(model, sources=make_standins(nudge=0.01))
    assert torch.equal(logits(other, images), before)
    assert not torch.equal(logits(model, images), before)


def test_undoing_one_of_two_models_that_share_a_config_leaves_the_other_swapped(
    make_vit, images, make_standins, logits, rows
):
    model = make_vit()
    other = make_vit(config=model.config)
    before = logits(model, images)
    kernelize(model, sources=make_standins())
    kernelize(other, sources=make_standins())
    unkernelize(model)
    logits(other, images)
    assert rows(other)["vit.layers.0.attention"].calls == 1
    unkernelize(other)
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(logits(other, images), before)


def test_kernelize_again_replaces_the_kernels_and_counts_anew(make_vit, images, make_standins, logits):
    model = make_vit()
    before = logits(model, images)
    old, new = make_standins(), make_standins()
    kernelize(model, sources=old)
    logits(model, images)
    kernelize(model, sources=new)
    served = len(old.log)
    logits(model, images)
    assert len(old.log) == served == len(new.log)
    assert {row.calls for row in report(model).modules} == {1}
    assert torch.equal(logits(unkernelize(model), images), before)


def test_a_submodule_can_be_kernelized_alone(make_vit, images, standins, logits, rows):
    model = make_vit()
    kernelize(model.vit.layers[1], sources=standins)
    logits(model, images)
    assert all(path.startswith("vit.layers.1") for path in rows(model))
    assert standins.count("linear-gelu") == 1
    # the activation inside the product is listed under the whole model's paths
    assert rows(model)["vit.layers.1.mlp.activation_fn"].calls == 1


@pytest.mark.parametrize("device", ["neuron", "neuron:1", torch.device("cpu"), "cpu", "cuda", "trn2", None, 3])
def test_device_is_neuron_or_one_error_that_says_so(make_vit, standins, device):
    model = make_vit()
    if str(device).startswith("neuron"):
        assert report(kernelize(model, device=device, sources=standins)).device == device
        return
    with pytest.raises(UsageError, match=r"device is 'neuron' or 'neuron:<index>', got"):
        kernelize(model, device=device, sources=standins)


def test_a_bad_mode_names_the_modes_and_changes_nothing(make_vit, standins):
    model = make_vit()
    with pytest.raises(UsageError, match="mode is 'inference', 'training' or None, got 'eval'"):
        kernelize(model, mode="eval", sources=standins)
    assert model.config._attn_implementation == "sdpa"
    with pytest.raises(UsageError, match="is not kernelized"):
        report(model)


def test_what_is_no_model_is_refused(standins):
    with pytest.raises(UsageError, match=r"takes a torch.nn.Module, got str"):
        kernelize("google/vit-base", sources=standins)


def test_no_kernels_at_all_is_an_error(make_vit):
    with pytest.raises(UsageError, match="no kernels") as error:
        kernelize(make_vit())
    assert "org" in error.value.hint


def test_copies_use_their_own_weights(make_vit, images, standins, logits, rows):
    model = kernelize(make_vit(), sources=standins)
    before = logits(model, images)
    twin = copy.deepcopy(model)
    assert torch.equal(logits(twin, images), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(0.5)
    assert not torch.allclose(logits(twin, images), before)
    assert torch.equal(logits(model, images), before)
    assert rows(model)["classifier"].calls == 2
    assert rows(twin)["classifier"].calls == 3
    plain = logits(unkernelize(copy.deepcopy(twin)), images)
    torch.testing.assert_close(logits(twin, images), plain)


@pytest.mark.parametrize("save", [pickle.dumps, lambda model: torch.save(model, io.BytesIO())], ids=["pickle", "torch"])
def test_pickling_says_to_undo_first_and_works_after(make_vit, standins, save):
    model = kernelize(make_vit(), sources=standins)
    with pytest.raises(SwapError, match="cannot be pickled") as error:
        save(model)
    assert "unkernelize" in error.value.hint
    save(unkernelize(model))


def test_names_and_printing_are_as_before(make_vit, images, standins, tmp_path, logits):
    model = make_vit()
    before, printed = {name: value.clone() for name, value in model.state_dict().items()}, repr(model)
    kernelize(model, sources=standins)
    assert list(model.state_dict()) == list(before)
    assert repr(model) == printed
    model.load_state_dict(before, strict=True)
    model.save_pretrained(tmp_path)
    saved = type(model).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits(saved, images), logits(model, images))
    model.to(torch.bfloat16)
    assert logits(model, images).dtype == torch.bfloat16


def test_strict_refuses_a_model_with_a_kernel_missing_and_leaves_it_plain(make_vit, images, standins, logits):
    model = make_vit()
    before = logits(model, images)
    del standins["layernorm"]
    with pytest.raises(SwapError, match=r"5 modules .*vit.layers.0.layernorm_before: no-kernel"):
        kernelize(model, strict=True, sources=standins)
    assert torch.equal(logits(model, images), before)
    assert "_kernels_neuron" not in model.classifier.__dict__


def test_strict_refuses_a_model_in_which_nothing_is_served(standins):
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU())
    with pytest.raises(SwapError, match="no module of this model is served"):
        kernelize(model, strict=True, sources=standins)
    assert {row.reason for row in report(kernelize(model, sources=standins)).modules} == {"class-not-listed"}


def test_a_failed_load_leaves_a_kernelized_model_as_it_was(make_vit, images, make_standins, logits, rows):
    model = kernelize(make_vit(), sources=make_standins())
    broken = make_standins()
    broken["gemm"].layers.Linear.forward = lambda self, x, y: x
    with pytest.raises(
        ArtifactError, match=r"layer Linear of .* takes \(self, x, y\), the swap passes \(self, input\)"
    ):
        kernelize(model, sources=broken)
    logits(model, images)
    assert rows(model)["classifier"].calls == 1


def test_the_simulator_is_announced_once(make_vit, standins, monkeypatch):
    monkeypatch.setattr(swap, "_said_where_kernels_run", False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        kernelize(make_vit(), sources=standins)
        kernelize(make_vit(), sources=standins)
    assert [entry.category for entry in said if "simulator" in str(entry.message)] == [SimulatorWarning]
    assert said[0].filename == __file__
