import pytest
import torch

from kernels_neuron.loader import kernelize, report, unkernelize
from kernels_neuron.loader.attention import key_mask
from kernels_neuron.loader.table import Refusal

TOKENS = 17


def logits(model, x, **kwargs):
    with torch.no_grad():
        return model(x, **kwargs).logits


def first_row(model):
    return next(row for row in report(model).modules if row.kind == "attention")


@pytest.fixture(params=["sdpa", "eager"])
def model(request, make_vit):
    model = make_vit()
    model.set_attn_implementation(request.param)
    return model


def test_undo_restores_the_former_implementation(model, images, standins):
    former = model.config._attn_implementation
    before = logits(model, images)
    kernelize(model, sources=standins)
    assert model.config._attn_implementation == f"kernels-neuron.{former}"
    unkernelize(model)
    assert model.config._attn_implementation == former
    assert torch.equal(logits(model, images), before)


def test_padded_keys_reach_the_kernel_as_a_mask(model, images, standins):
    padding = torch.ones(3, TOKENS, dtype=torch.long)
    padding[1, 10:] = 0
    padding[2, 3:] = 0
    before = logits(model, images, attention_mask=padding)
    assert not torch.allclose(before, logits(model, images), atol=1e-3)
    kernelize(model, sources=standins)
    torch.testing.assert_close(logits(model, images, attention_mask=padding), before)
    assert (first_row(model).calls, first_row(model).fallbacks) == (1, {})


def test_a_mask_that_differs_between_queries_falls_back(model, images, standins):
    mask = torch.tril(torch.ones(TOKENS, TOKENS, dtype=torch.bool)).expand(3, 1, -1, -1).clone()
    if model.config._attn_implementation == "eager":
        mask = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    before = logits(model, images, attention_mask=mask)
    kernelize(model, sources=standins)
    torch.testing.assert_close(logits(model, images, attention_mask=mask), before)
    assert standins.count("attention") == 0
    assert first_row(model).fallbacks == {"mask-kind": 1}
    assert first_row(model).reason == "mask-kind"
    assert "float32[3, 4, 17, 8]" in first_row(model).first_fallback


def test_asking_for_attention_weights_gives_what_the_model_gave(model, images, standins):
    def weights():
        with torch.no_grad():
            return model(images, output_attentions=True).attentions

    before = weights()
    kernelize(model, sources=standins)
    torch.testing.assert_close(weights(), before)
    assert standins.count("attention") == 0
    assert first_row(model).fallbacks == {"mode": 1}


def test_an_implementation_chosen_after_the_swap_is_obeyed_and_kept_by_undo(make_vit, images, standins):
    model = kernelize(make_vit(), sources=standins)
    model.set_attn_implementation("eager")
    logits(model, images)
    assert standins.count("attention") == 0
    unkernelize(model)
    assert model.config._attn_implementation == "eager"


def test_an_implementation_of_somebody_else_is_kept(make_vit, images, standins):
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register("somebody_elses", sdpa_attention_forward)
    AttentionMaskInterface.register("somebody_elses", AttentionMaskInterface()["sdpa"])
    model = make_vit()
    model.set_attn_implementation("somebody_elses")
    kernelize(model, sources=standins)
    assert model.config._attn_implementation == "somebody_elses"
    assert (first_row(model).outcome, first_row(model).reason) == ("kept", "mode")
    logits(model, images)
    # 4 B H S T D of two layers, counted from outside
    assert first_row(model).flops == 4 * 3 * TOKENS * TOKENS * 32


def test_flops_of_attention_are_those_of_its_two_products(make_vit, images, standins):
    model = kernelize(make_vit(), sources=standins)
    logits(model, images)
    assert first_row(model).flops == first_row(model).kernel_flops == 4 * 3 * 4 * TOKENS * TOKENS * 8


QUERY = torch.zeros(2, 4, 3, 8)
KEY = torch.zeros(2, 4, 5, 8)
KEYS = torch.tensor([[True, True, False, False, True], [True] * 5])
LEAST = torch.finfo(torch.float32).min


@pytest.mark.parametrize(
    "mask",
    [
        KEYS,
        KEYS.long(),
        KEYS[:, None, None],
        KEYS[:, None, None].expand(2, 1, 3, 5),
        KEYS[:, None, None].expand(2, 4, 3, 5).contiguous(),
        torch.where(KEYS, 0.0, LEAST)[:, None, None].expand(2, 1, 3, 5),
        torch.where(KEYS, 0.0, float("-inf"))[:, None, None],
    ],
    ids=["flat", "integers", "row", "expanded", "per head", "additive least", "additive inf"],
)
def test_key_padding_is_recognized_in_every_spelling(mask):
    assert torch.equal(key_mask(mask, QUERY, KEY), KEYS)


def test_no_mask_is_no_mask():
    assert key_mask(None, QUERY, KEY) is None


@pytest.mark.parametrize(
    "mask",
    [
        torch.tril(torch.ones(3, 5, dtype=torch.bool)).expand(2, 1, 3, 5),
        torch.linspace(-1, 0, 5).expand(2, 1, 1, 5),
        KEYS[:, :4],
        KEYS[:, None, None, :4],
        KEYS[None],
        torch.zeros(2, 5, dtype=torch.bool),
        KEYS[:, None, None].expand(2, 1, 2, 5),
    ],
    ids=["causal", "bias", "short", "short row", "rank 3", "no key", "queries"],
)
def test_any_other_mask_is_refused_with_a_reason(mask):
    refusal = key_mask(mask, QUERY, KEY)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "mask-kind"
