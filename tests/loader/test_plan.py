import copy

import pytest
import torch
from torch import nn

from kernels_neuron.loader import kernelize, report, unkernelize


def test_subclasses_of_served_classes_are_left_alone(standins, rows):
    class ChannelsFirst(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.transpose(1, -1)).transpose(1, -1)

    model = nn.Sequential(ChannelsFirst(8), nn.LayerNorm(4), nn.LayerNorm((8, 4)), nn.Conv2d(8, 8, 3, padding=1)).eval()
    kernelize(model, sources=standins)
    found = rows(model)
    assert [found[name].reason for name in "0123"] == ["subclass-differs", "", "shape", "class-not-listed"]
    assert found["1"].outcome == "swapped"


def test_multihead_attention_is_untouched_and_patched_is_told_from_called(standins, rows):
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


def test_a_shared_activation_is_not_taken_into_a_product(make_vit, images, standins, logits, rows):
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
def test_only_activations_the_kernel_computes_are_fused(make_vit, images, standins, activation, layer, logits, rows):
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


def test_a_kernel_no_class_is_served_by_is_reported(make_vit, standins):
    model = kernelize(make_vit(), kernels={**standins, "rotary": standins["gemm"]})
    assert report(model).unused_kernels == ("rotary",)
    assert "rotary" in str(report(model))


def test_a_weight_no_kernel_reads_is_left_alone(standins, rows):
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


class Wrapped(nn.Module):
    """As LoRA keeps a module that is trained whole: the original, and the copy that is in use."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.original_module = module
        self.modules_to_save = nn.ModuleDict({"default": copy.deepcopy(module)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.modules_to_save["default"](x)


@pytest.mark.parametrize("order", ["kernelize first", "wrap first"])
def test_both_copies_in_a_wrapper_are_swapped_and_the_one_in_use_trains(standins, rows, order):
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).eval()
    x = torch.randn(3, 4)
    plain = copy.deepcopy(model)
    if order == "kernelize first":
        kernelize(model, sources=standins)
    model[1] = Wrapped(model[1]).eval()
    kernelize(model, sources=standins)
    swapped = {path for path, row in rows(model).items() if row.outcome == "swapped"}
    assert {"1.original_module", "1.modules_to_save.default"} <= swapped
    with torch.no_grad():
        torch.testing.assert_close(model(x), plain(x))
    model.train()
    optimizer = torch.optim.SGD(model[1].modules_to_save.parameters(), lr=0.1)
    model(x).pow(2).sum().backward()
    optimizer.step()
    assert not torch.equal(model[1].modules_to_save["default"].weight, plain[1].weight)
    assert torch.equal(model[1].original_module.weight, plain[1].weight)
