import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import nn

from kernels_neuron.errors import ArtifactError, SwapError, UsageError
from kernels_neuron.loader import SimulatorWarning, kernelize, report, swap, unkernelize


def logits(model, x, **kwargs):
    with torch.no_grad():
        return model(x, **kwargs).logits


def rows(model):
    return {row.path: row for row in report(model).modules}


def test_every_layer_of_a_vit_runs_in_a_kernel_and_the_logits_stay(make_vit, images, standins):
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


def test_the_kernels_output_reaches_the_logits(make_vit, images, make_standins):
    model = make_vit()
    before = logits(model, images)
    kernelize(model, sources=make_standins(nudge=0.01))
    assert not torch.allclose(logits(model, images), before, atol=1e-3)


@pytest.mark.parametrize("kernel", ["layernorm", "gemm", "vit_attn", "patch_embed"])
def test_each_kernel_alone_changes_the_logits_and_the_others_are_reported_missing(
    make_vit, images, make_standins, kernel
):
    model = make_vit()
    before = logits(model, images)
    kernelize(model, sources={kernel: make_standins(nudge=0.01)[kernel]})
    assert not torch.equal(logits(model, images), before)
    assert {row.reason for row in report(model).kept} <= {"no-kernel", "class-not-listed"}


def test_undo_is_bit_equal_twice_and_in_any_order(make_vit, images, make_standins):
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


def test_another_model_of_the_class_is_untouched_even_with_the_same_config(make_vit, images, make_standins):
    model = make_vit()
    other = make_vit(config=model.config)
    before = logits(other, images)
    kernelize(model, sources=make_standins(nudge=0.01))
    assert torch.equal(logits(other, images), before)
    assert not torch.equal(logits(model, images), before)


def test_undoing_one_of_two_models_that_share_a_config_leaves_the_other_swapped(make_vit, images, make_standins):
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


def test_kernelize_again_replaces_the_kernels_and_counts_anew(make_vit, images, make_standins):
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


def test_a_submodule_can_be_kernelized_alone(make_vit, images, standins):
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


def test_an_unknown_kernel_name_gets_a_suggestion(make_vit):
    with pytest.raises(UsageError, match="unknown kernel 'layer_norm'") as error:
        kernelize(make_vit(), kernels={"layer_norm": "org/neuron-layernorm"})
    assert error.value.hint == "did you mean 'layernorm'"


def test_a_kernel_left_out_by_the_user_is_reported_so(make_vit, standins):
    model = kernelize(make_vit(), kernels={**standins, "layernorm": None})
    assert {row.reason for row in report(model).modules if row.kind == "layernorm"} == {"user-excluded"}
    assert {row.outcome for row in report(model).modules if row.kind != "layernorm"} == {"swapped"}


def test_sources_may_be_a_function_and_is_asked_once_per_kernel(make_vit, standins):
    asked = []
    kernelize(make_vit(), sources=lambda name: asked.append(name) or standins[name])
    assert sorted(asked) == ["gemm", "layernorm", "patch_embed", "vit_attn"]


def test_copies_use_their_own_weights(make_vit, images, standins):
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


def test_names_and_printing_are_as_before(make_vit, images, standins, tmp_path):
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


def test_training_mode_keeps_the_originals_and_eval_brings_the_kernels_back(make_vit, images, make_standins):
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


def test_a_model_kernelized_in_training_mode_runs_kernels_after_eval(make_vit, images, standins):
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


def test_mode_inference_never_serves_a_training_call(make_vit, images, make_standins):
    standins = make_standins(has_backward=True)
    model = kernelize(make_vit(), mode="inference", sources=standins)
    train_step(model, images)
    assert not standins.log
    assert rows(model)["classifier"].fallbacks == {"mode": 1}


def test_a_call_outside_the_limits_falls_back_and_the_first_is_told(make_vit, images, make_standins):
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


def test_strict_raises_where_a_call_would_fall_back(make_vit, images, make_standins):
    model = kernelize(make_vit(), strict=True, sources=make_standins(max_rows=20))
    logits(model, images[:1])
    with pytest.raises(SwapError, match=r"patch_embeddings.projection: .*M has to be 1 to 20"):
        logits(model, images)
    with pytest.raises(SwapError, match="the kernel has no backward"):
        train_step(model, images[:1])


def test_strict_refuses_a_model_with_a_kernel_missing_and_leaves_it_plain(make_vit, images, standins):
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


def test_a_failed_load_leaves_a_kernelized_model_as_it_was(make_vit, images, make_standins):
    model = kernelize(make_vit(), sources=make_standins())
    broken = make_standins()
    broken["gemm"].layers.Linear.forward = lambda self, x, y: x
    with pytest.raises(
        ArtifactError, match=r"layer Linear of .* takes \(self, x, y\), the swap passes \(self, input\)"
    ):
        kernelize(model, sources=broken)
    logits(model, images)
    assert rows(model)["classifier"].calls == 1


def test_a_layer_with_state_of_its_own_is_refused(make_vit, standins):
    standins["layernorm"].layers.LayerNorm.cache = {}
    with pytest.raises(ArtifactError, match="has members of its own: cache"):
        kernelize(make_vit(), sources=standins)


def test_user_hooks_on_fused_parts_still_see_what_they_saw(make_vit, images, standins):
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
def test_accelerate_hooks_and_kernels_both_run(make_vit, images, standins, order):
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


def test_undo_below_hooks_that_stay(make_vit, images, standins):
    from accelerate.hooks import ModelHook, add_hook_to_module

    model = make_vit()
    before = logits(model, images)
    kernelize(model, sources=standins)
    add_hook_to_module(model.classifier, ModelHook())
    unkernelize(model)
    assert torch.equal(logits(model, images), before)
    assert not standins.log


def test_a_forward_somebody_else_put_on_an_instance_is_kept(make_vit, images, standins):
    model = make_vit()
    model.classifier.forward = lambda x: x.sum(-1, keepdim=True)
    before = logits(model, images)
    kernelize(model, sources=standins)
    torch.testing.assert_close(logits(model, images), before)
    assert rows(model)["classifier"].reason == "hooked"
    unkernelize(model)
    assert torch.equal(logits(model, images), before)


def test_subclasses_of_served_classes_are_left_alone(standins):
    class ChannelsFirst(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.transpose(1, -1)).transpose(1, -1)

    model = nn.Sequential(ChannelsFirst(8), nn.LayerNorm(4), nn.LayerNorm((8, 4)), nn.Conv2d(8, 8, 3, padding=1)).eval()
    kernelize(model, sources=standins)
    found = rows(model)
    assert [found[name].reason for name in "0123"] == ["subclass-differs", "", "shape", "class-not-listed"]
    assert found["1"].outcome == "swapped"


def test_multihead_attention_is_untouched_and_patched_is_told_from_called(standins):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    model = nn.Sequential(layer, nn.Linear(32, 2)).eval()
    x = torch.randn(2, 5, 32)
    with torch.no_grad():
        before = model(x)
        kernelize(model, sources=standins)
        torch.testing.assert_close(model(x), before)
    found = rows(model)
    assert found["0.self_attn"].reason == "class-not-listed"
    assert found["0.self_attn.out_proj"].reason == "subclass-differs"
    # the fast path of torch reads the weights and calls no child
    assert (found["0.linear1"].outcome, found["0.linear1"].calls) == ("swapped", 0)
    assert (found["1"].outcome, found["1"].calls) == ("swapped", 1)
    assert "0.self_attn" in report(model).uncounted


def test_a_shared_activation_is_not_taken_into_a_product(make_vit, images, standins):
    model = make_vit()
    model.vit.layers[1].mlp.activation_fn = model.vit.layers[0].mlp.activation_fn
    kernelize(model, sources=standins)
    logits(model, images)
    assert standins.count("linear-gelu") == 0
    assert rows(model)["vit.layers.1.mlp.fc1"].kind == "linear"


@pytest.mark.parametrize(
    ("activation", "layer"),
    [
        ("gelu", "linear-gelu"),
        ("gelu_new", "linear-gelu-tanh"),
        ("gelu_pytorch_tanh", "linear-gelu-tanh"),
        ("relu", ""),
    ],
)
def test_only_activations_the_kernel_computes_are_fused(make_vit, images, standins, activation, layer):
    model = make_vit(hidden_act=activation)
    before = logits(model, images)
    kernelize(model, sources=standins)
    torch.testing.assert_close(logits(model, images), before)
    assert {name for name, _ in standins.log if "gelu" in name} == ({layer} if layer else set())
    if not layer:
        assert rows(model)["vit.layers.0.mlp.activation_fn"].reason == "class-not-listed"


def test_a_model_with_a_pooler_reports_its_tanh_as_kept(make_vit, images, standins):
    from transformers import ViTModel

    model = make_vit(ViTModel)
    with torch.no_grad():
        before = model(images).pooler_output
        kernelize(model, sources=standins)
        torch.testing.assert_close(model(images).pooler_output, before)
    assert [(row.path, row.reason) for row in report(model).kept] == [("pooler.activation", "class-not-listed")]


def test_autocast_runs_the_originals(make_vit, images, standins):
    model = make_vit()
    with torch.autocast("cpu", torch.bfloat16):
        before = logits(model, images)
        kernelize(model, sources=standins)
        assert torch.equal(logits(model, images), before)
    assert not standins.log
    assert rows(model)["classifier"].fallbacks == {"dtype": 1}


@pytest.mark.parametrize("name", ["Bert", "Dinov2", "DistilBert"])
def test_other_families_keep_their_outputs_and_every_kept_module_has_a_reason(standins, scaled_up, name):
    import transformers

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    sizes |= {"vocab_size": 50} if "Bert" in name else {"image_size": 28, "patch_size": 14}
    if name == "DistilBert":
        sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 50}
    model = scaled_up(getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**sizes))).eval()
    x = torch.arange(14).reshape(2, 7) if "Bert" in name else torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        before = model(x).last_hidden_state
        kernelize(model, sources=standins)
        torch.testing.assert_close(model(x).last_hidden_state, before)
        found = report(model)
        assert all(row.reason for row in found.kept)
        assert {row.reason for row in found.kept if row.kind == "attention"} == {"class-not-listed"}
        assert found.swapped and 0 < found.flop_share < 1
        assert torch.equal(unkernelize(model)(x).last_hidden_state, before)


def test_a_model_on_the_meta_device_can_be_kernelized_and_reported(standins):
    from transformers import ViTConfig, ViTForImageClassification

    with torch.device("meta"):
        model = ViTForImageClassification(ViTConfig()).eval()
    assert report(kernelize(model, sources=standins)).module_share == 1


def test_the_simulator_is_announced_once(make_vit, standins, monkeypatch):
    monkeypatch.setattr(swap, "_said_where_kernels_run", False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        kernelize(make_vit(), sources=standins)
        kernelize(make_vit(), sources=standins)
    assert [entry.category for entry in said if "simulator" in str(entry.message)] == [SimulatorWarning]
    assert said[0].filename == __file__


def test_the_signature_of_a_swapped_forward_is_the_originals(make_vit, standins):
    import inspect

    model = make_vit()
    before = inspect.signature(model.classifier.forward)
    assert inspect.signature(kernelize(model, sources=standins).classifier.forward) == before


def test_a_kernel_no_class_is_served_by_is_reported(make_vit, standins):
    model = kernelize(make_vit(), kernels={**standins, "rotary": standins["gemm"]})
    assert report(model).unused_kernels == ("rotary",)
    assert "rotary" in str(report(model))


def test_a_weight_no_kernel_reads_is_left_alone(standins):
    class Packed(nn.Linear):
        def forward(self, x):
            return x

    packed = Packed(8, 8)
    packed.weight = nn.Parameter(torch.zeros(8, 4, dtype=torch.uint8), requires_grad=False)
    scaled = nn.Linear(8, 8)
    scaled.weight = nn.Parameter(scaled.weight.to(torch.float8_e4m3fn), requires_grad=False)
    parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    model = kernelize(nn.Sequential(packed, scaled, parametrized).eval(), sources=standins)
    found = rows(model)
    assert [found[name].reason for name in "012"] == ["subclass-differs", "dtype", "subclass-differs"]
    assert found["1"].detail == "weight is float8_e4m3fn"


def test_an_image_without_a_batch_axis_runs_on_the_convolution(standins):
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
