import inspect

import pytest
import torch
from torch import nn

from kernels_neuron.errors import SwapError
from kernels_neuron.loader import kernelize, report, unkernelize


def train_step(model, x):
    torch.manual_seed(3)
    model.train().zero_grad()
    loss = model(x, labels=torch.tensor([1, 2, 3])).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("checkpointing", [None, True, False], ids=["plain", "reentrant", "non-reentrant"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_training_step_equals_the_plain_one_bit_for_bit(make_vit, images, make_standins, checkpointing, dropout):
    changes = {"attention_probs_dropout_prob": dropout, "hidden_dropout_prob": dropout}
    plain, swapped = make_vit(**changes), make_vit(**changes)
    kernelize(swapped, sources=make_standins(nudge=0.01))
    for model in (plain, swapped):
        if checkpointing is not None:
            model.gradient_checkpointing_enable({"use_reentrant": checkpointing})
    loss, gradients = train_step(plain, images.requires_grad_())
    swapped_loss, swapped_gradients = train_step(swapped, images)
    assert torch.equal(loss, swapped_loss)
    assert gradients.keys() == swapped_gradients.keys()
    assert all(torch.equal(gradients[name], swapped_gradients[name]) for name in gradients)


def test_training_mode_keeps_the_originals_and_eval_brings_the_kernels_back(
    make_vit, images, make_standins, logits, rows
):
    standins = make_standins(nudge=0.01)
    model = make_vit()
    before = logits(model, images)
    kernelize(model, sources=standins)
    swapped = logits(model, images)
    served = len(standins.log)
    train_step(model, images)
    assert len(standins.log) == served
    assert {row.reason for row in report(model).modules} == {"training-needs-backward"}
    assert not report(model).swapped
    assert rows(model)["classifier"].fallbacks == {"training-needs-backward": 1}
    assert torch.equal(logits(model, images), before)
    model.eval()
    assert torch.equal(logits(model, images), swapped)
    assert report(model).flop_share < 1


def test_a_model_kernelized_in_training_mode_runs_kernels_after_eval(make_vit, images, standins, logits):
    model = kernelize(make_vit().train(), sources=standins)
    logits(model.eval(), images)
    assert len(report(model).kept) == 0
    assert standins.count("linear") == 11


def test_a_kernel_with_backward_trains(make_vit, images, make_standins):
    plain = make_vit()
    standins = make_standins(has_backward=True)
    model = kernelize(make_vit(), mode="training", sources=standins)
    loss, gradients = train_step(plain, images)
    swapped_loss, swapped_gradients = train_step(model, images)
    torch.testing.assert_close(swapped_loss, loss)
    torch.testing.assert_close(swapped_gradients, gradients)
    assert standins.count("linear-gelu") == 2


def test_mode_training_swaps_only_what_has_a_backward(make_vit, standins):
    model = kernelize(make_vit(), mode="training", sources=standins)
    assert not report(model).swapped
    listed = [row for row in report(model).modules if row.kind != "other"]
    assert {row.reason for row in listed} == {"training-needs-backward"}


def test_mode_inference_never_serves_a_training_call(make_vit, images, make_standins, rows):
    standins = make_standins(has_backward=True)
    model = kernelize(make_vit(), mode="inference", sources=standins)
    train_step(model, images)
    assert not standins.log
    assert rows(model)["classifier"].fallbacks == {"mode": 1}


def test_a_call_outside_the_limits_falls_back_and_the_first_is_told(make_vit, images, make_standins, logits, rows):
    model = make_vit()
    before = logits(model, images)
    kernelize(model, sources=make_standins(max_rows=20, nudge=0.01))
    logits(model, images[:1])
    with_three = logits(model, images)
    row = rows(model)["vit.layers.0.mlp.fc2"]
    assert (row.calls, row.fallbacks, row.outcome) == (2, {"shape": 1}, "swapped")
    assert row.first_fallback == "linear: M has to be 1 to 20, got 51 (float32[3, 17, 64])"
    assert row.first_fallback in str(report(model))
    assert rows(model)["vit.layers.0.mlp.fc1"].fallbacks == {"shape": 1}
    # attention and the classifier still ran in kernels
    assert not torch.equal(with_three, before)
    torch.testing.assert_close(with_three, before, atol=0.5, rtol=0.1)


def test_strict_raises_where_a_call_would_fall_back(make_vit, images, make_standins, logits):
    model = kernelize(make_vit(), strict=True, sources=make_standins(max_rows=20))
    logits(model, images[:1])
    with pytest.raises(SwapError, match=r"patch_embeddings.projection: .*M has to be 1 to 20"):
        logits(model, images)
    with pytest.raises(SwapError, match="the kernel has no backward"):
        train_step(model, images[:1])


def test_user_hooks_on_fused_parts_still_see_what_they_saw(make_vit, images, standins, logits, rows):
    model = make_vit()
    seen = []
    model.vit.layers[0].mlp.fc1.register_forward_hook(lambda module, args, out: seen.append(out))
    logits(model, images)
    kernelize(model, sources=standins)
    logits(model, images)
    torch.testing.assert_close(seen[1], seen[0])
    assert standins.count("linear-gelu") == 1
    assert rows(model)["vit.layers.0.mlp.fc1"].calls == 1


@pytest.mark.parametrize("order", ["hook first", "kernelize first"])
def test_accelerate_hooks_and_kernels_both_run(make_vit, images, standins, order, logits, rows):
    from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module

    class Count(ModelHook):
        def __init__(self):
            self.calls = 0

        def pre_forward(self, module, *args, **kwargs):
            self.calls += 1
            return args, kwargs

    model = make_vit()
    before = logits(model, images)
    hooks = {name: Count() for name, _ in model.named_modules()}

    def hook():
        for name, module in model.named_modules():
            add_hook_to_module(module, hooks[name])

    if order == "hook first":
        hook()
    kernelize(model, sources=standins)
    if order == "kernelize first":
        hook()
    torch.testing.assert_close(logits(model, images), before)
    called = {name for name, hook in hooks.items() if hook.calls}
    assert {"classifier", "vit.layers.0.mlp.fc1", "vit.layers.0.mlp", "vit.layers.0.mlp.activation_fn"} <= called
    assert [standins.count(name) for name in ("norm", "linear", "patch", "attention")] == [5, 13, 1, 2]
    remove_hook_from_module(model, recurse=True)
    logits(model, images)
    assert rows(model)["classifier"].calls == 2
    unkernelize(model)
    assert torch.equal(logits(model, images), before)
    served = len(standins.log)
    logits(model, images)
    assert len(standins.log) == served


def test_undo_below_hooks_that_stay(make_vit, images, standins, logits):
    from accelerate.hooks import ModelHook, add_hook_to_module

    model = make_vit()
    before = logits(model, images)
    kernelize(model, sources=standins)
    add_hook_to_module(model.classifier, ModelHook())
    unkernelize(model)
    assert torch.equal(logits(model, images), before)
    assert not standins.log


def test_a_forward_somebody_else_put_on_an_instance_is_kept(make_vit, images, standins, logits, rows):
    model = make_vit()
    model.classifier.forward = lambda x: x.sum(-1, keepdim=True)
    before = logits(model, images)
    kernelize(model, sources=standins)
    torch.testing.assert_close(logits(model, images), before)
    assert rows(model)["classifier"].reason == "hooked"
    unkernelize(model)
    assert torch.equal(logits(model, images), before)


def test_autocast_runs_the_originals(make_vit, images, standins, logits, rows):
    model = make_vit()
    with torch.autocast("cpu", torch.bfloat16):
        before = logits(model, images)
        kernelize(model, sources=standins)
        assert torch.equal(logits(model, images), before)
    assert not standins.log
    assert rows(model)["classifier"].fallbacks == {"dtype": 1}


def test_the_signature_of_a_swapped_forward_is_the_originals(make_vit, standins):
    model = make_vit()
    before = inspect.signature(model.classifier.forward)
    assert inspect.signature(kernelize(model, sources=standins).classifier.forward) == before


def test_an_image_without_a_batch_axis_runs_on_the_convolution(standins, rows):
    model = nn.Sequential(nn.Conv2d(3, 8, 4, 4)).eval()
    x = torch.randn(3, 8, 8)
    with torch.no_grad():
        before = model(x)
        assert torch.equal(kernelize(model, sources=standins)(x), before)
    assert rows(model)["0"].fallbacks == {"shape": 1}


def test_arguments_may_be_given_by_the_name_the_class_has_for_them(make_vit, images, standins):
    model = make_vit()
    conv, mlp = model.vit.embeddings.patch_embeddings.projection, model.vit.layers[0].mlp
    x = torch.randn(2, 32)
    with torch.no_grad():
        before = conv(input=images), mlp(hidden_states=x)
        kernelize(model, sources=standins)
        torch.testing.assert_close((conv(input=images), mlp(hidden_states=x)), before)
        with pytest.raises(TypeError, match="pixel_values"):
            conv(pixel_values=images)
    assert standins.count("patch") == standins.count("linear-gelu") == 1


def test_a_swapped_model_compiles_without_a_graph_break(make_vit, standins):
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 4)).eval()
    x = torch.randn(2, 8)
    with torch.no_grad():
        before = model(x)
        kernelize(model, sources=standins)
        torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), before)
