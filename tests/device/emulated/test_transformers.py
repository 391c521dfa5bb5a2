"""transformers, unmodified, on the emulated device."""

import pytest
import torch
import transformers

pytestmark = pytest.mark.slow

N = "neuron"
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def test_a_vision_model_computes_what_it_computes_on_the_cpu():
    torch.manual_seed(0)
    model = transformers.ViTModel(transformers.ViTConfig(**SMALL, image_size=32, patch_size=8)).eval()
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = model(x).last_hidden_state
        got = model.to(N)(x.to(N)).last_hidden_state
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.fixture
def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50, bos_token_id=0, eos_token_id=49)
    return transformers.GPT2LMHeadModel(config).eval()


def test_a_language_model_generates_moved_saved_and_loaded_onto_the_device(gpt2, tmp_path):
    prompt = torch.tensor([[1, 2, 3]])
    expected = gpt2.generate(prompt, max_new_tokens=6, do_sample=False)
    gpt2.to(N)
    assert gpt2.lm_head.weight is gpt2.transformer.wte.weight
    assert gpt2.generate(prompt.to(N), max_new_tokens=6, do_sample=False).cpu().equal(expected)
    gpt2.save_pretrained(tmp_path)
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, device_map=N)
    assert loaded.device == torch.device(N, 0) and loaded.lm_head.weight is loaded.transformer.wte.weight
    assert loaded.generate(prompt.to(N), max_new_tokens=6, do_sample=False).cpu().equal(expected)


def test_a_static_cache_compiles_with_the_devices_backend():
    config = transformers.LlamaConfig(**{**SMALL, "num_hidden_layers": 1}, num_key_value_heads=1, vocab_size=50)
    model = transformers.LlamaForCausalLM(config).eval().to(N)
    prompt = torch.tensor([[1, 2, 3]], device=N)
    how = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
    compiled = model.generate(prompt, cache_implementation="static", **how)
    assert compiled.equal(model.generate(prompt, **how))


def test_a_trainer_finds_the_device_and_trains(tmp_path):
    config = transformers.ViTConfig(**SMALL, image_size=16, patch_size=8, num_labels=2)
    model = transformers.ViTForImageClassification(config)
    before = model.classifier.weight.detach().clone()
    data = [{"pixel_values": torch.randn(3, 16, 16), "labels": i % 2} for i in range(8)]
    options = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=4, max_steps=2, report_to=[], bf16=True, save_steps=2
    )
    trainer = transformers.Trainer(model, options, train_dataset=data)
    trainer.train()
    assert trainer.args.device == torch.device(N, 0) and model.device == torch.device(N, 0)
    assert not model.classifier.weight.cpu().equal(before)
