"""Whole models by estimate: what is served, what is not, and that nothing is computed or downloaded."""

import json

import pytest

from kernels_neuron.errors import UsageError
from kernels_neuron.flows import model_bench
from kernels_neuron.flows.model_bench import bench_model
from kernels_neuron.flows.models import MODELS, KnownModel, build_model

SMALL = {
    "vit": KnownModel(
        "ViTConfig",
        "ViTModel",
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
        },
        {"pixel_values": (2, 3, 32, 32)},
        "made up",
    ),
    "llama": KnownModel(
        "LlamaConfig",
        "LlamaForCausalLM",
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "vocab_size": 1000,
        },
        {"input_ids": (1, 16)},
        "made up",
        {"use_cache": True, "logits_to_keep": 1},
    ),
}


@pytest.fixture(scope="module")
def found():
    from kernels_neuron.arch import chip

    return {name: model_bench.time_model(name, known, "bfloat16", chip("trn2"), 1) for name, known in SMALL.items()}


def test_every_layer_that_kernelize_swaps_is_counted_once(found):
    kinds = {kind: len(layers) for (kind, _), layers in found["vit"].by_kind().items()}
    # 4 projections and the second product of the MLP in each of 2 layers, and the pooler
    assert kinds == {"linear": 11, "linear-gelu": 2, "layernorm": 5, "attention": 2, "patch-embedding": 1}
    assert len({layer.path for layer in found["vit"].served}) == len(found["vit"].served)
    assert found["vit"].fallbacks == 0


def test_equal_layers_have_equal_times_and_sums_add_up(found):
    times = found["vit"]
    norms = [layer for layer in times.served if layer.kind == "layernorm"]
    assert len({layer.body_us for layer in norms}) == 1
    assert times.body_us == pytest.approx(sum(layer.body_us for layer in times.served) + times.rest.us)
    low, high = times.speedup_range
    assert low <= times.speedup <= high
    assert times.baseline_launches == sum(layer.baseline_launches for layer in times.served) + times.rest.launches


def test_laying_out_parameters_is_counted_once_and_apart(found):
    linear = [layer for layer in found["vit"].served if layer.kind == "linear"]
    assert all(layer.once_us > 0 for layer in linear)
    assert all(layer.once_us == 0 for layer in found["vit"].served if layer.kind in ("layernorm", "attention"))
    assert found["vit"].to_json()["once_us"] == pytest.approx(sum(layer.once_us for layer in found["vit"].served))


def test_what_no_kernel_serves_is_counted_alike_on_both_sides(found):
    times = found["llama"]
    assert {kind for kind, _ in times.by_kind()} == {"linear"}
    assert times.rest.counts["softmax"] == 2 and times.rest.counts["silu"] == 2
    assert 0 < times.unserved_share < 1
    assert ("LlamaRMSNorm", "class-not-listed") in times.kept and times.kept["LlamaRMSNorm", "class-not-listed"] == 5


def test_a_layer_costs_what_bench_says_of_its_kernel(found):
    # one layernorm of the small model, run for real: the same operator on the same shape
    import torch

    import kernels_neuron
    from kernels_neuron.cost.profile import profile_run
    from kernels_neuron.flows.local import installed_kernel
    from kernels_neuron.sim.context import using

    x, gain = torch.zeros(2, 5, 64, dtype=torch.bfloat16), torch.ones(64, dtype=torch.bfloat16)
    with using("trn2") as runs:
        installed_kernel("layernorm").layernorm(x, gain, gain, 1e-12)
    norm = next(layer for layer in found["vit"].served if layer.kind == "layernorm")
    assert norm.body_us == pytest.approx(profile_run(runs[0]).body_us)
    assert kernels_neuron.__name__


def test_json_has_the_layers_and_the_sums(found):
    answer = json.loads(json.dumps(found["vit"].to_json()))
    assert {"body_us", "baseline_us", "speedup", "speedup_low", "speedup_high", "unserved_share", "served"} <= set(
        answer
    )


def test_an_unknown_model_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match="vit-b16"):
        bench_model("vit-b17")


@pytest.mark.parametrize("name", MODELS)
def test_a_known_model_builds_without_memory_and_has_the_published_size(name):
    import torch

    parameters = {
        "vit-b16": 86e6, "vit-l16": 304e6, "dinov2-b": 86e6, "bert-base": 110e6, "llama-1b": 1.24e9,
        "qwen3-0.6b": 0.6e9, "whisper-base": 20e6,
    }  # fmt: skip
    model, _ = build_model(MODELS[name], torch.bfloat16)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(parameters[name], rel=0.03)


@pytest.mark.slow
def test_a_vision_transformer_is_served_nearly_whole():
    times = bench_model("vit-b16")
    assert times.fallbacks == 0 and times.unserved_share < 0.1


@pytest.mark.slow
def test_every_linear_layer_of_a_language_model_is_priced():
    times = bench_model("qwen3-0.6b")
    # 7 in each of 28 layers, and the head; attention, norms, gate and rotary are not served yet
    assert {kind: len(layers) for (kind, _), layers in times.by_kind().items()} == {"linear": 28 * 7 + 1}
    assert times.fallbacks == 0 and 0 < times.unserved_share < 1
