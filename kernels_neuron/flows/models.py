"""The models that `bench --model` knows: transformers' classes with published sizes, on the meta device, no weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels_neuron.errors import UsageError
from kernels_neuron.tables import unknown

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class KnownModel:
    """A model to build from its config class, and the call to make.

    sizes    keyword arguments of the config; what is left out is the class's default
    inputs   name -> shape of each input tensor
    arguments  of the call besides the tensors
    part     attribute of the model to run instead of the whole, or ""
    source   where the sizes are published
    """

    config: str
    model: str
    sizes: dict[str, Any]
    inputs: dict[str, tuple[int, ...]]
    source: str
    arguments: dict[str, Any] | None = None
    part: str = ""

    @property
    def call(self) -> str:
        """The call in words."""
        return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in self.inputs.items())


IMAGES: dict[str, tuple[int, ...]] = {"pixel_values": (8, 3, 224, 224)}
# a prompt, and the logits of its last token alone, as generate asks for; the cache is what makes it a prompt
PROMPT: dict[str, Any] = {"inputs": {"input_ids": (1, 512)}, "arguments": {"use_cache": True, "logits_to_keep": 1}}

MODELS: dict[str, KnownModel] = {
    "vit-b16": KnownModel(
        "ViTConfig", "ViTModel", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
        IMAGES, "Dosovitskiy et al. 2020, table 1",
    ),
    "vit-l16": KnownModel(
        "ViTConfig", "ViTModel",
        {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
        IMAGES, "Dosovitskiy et al. 2020, table 1",
    ),
    "dinov2-b": KnownModel(
        "Dinov2Config", "Dinov2Model",
        {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "patch_size": 14},
        IMAGES, "Oquab et al. 2023, table 17",
    ),
    "bert-base": KnownModel(
        "BertConfig", "BertModel", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
        {"input_ids": (8, 128)}, "Devlin et al. 2018, section 3",
    ),
    "llama-1b": KnownModel(
        "LlamaConfig", "LlamaForCausalLM",
        {
            "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": True,
        },
        source="config.json of Llama-3.2-1B", **PROMPT,
    ),
    "qwen3-0.6b": KnownModel(
        "Qwen3Config", "Qwen3ForCausalLM",
        {
            "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
            "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True,
        },
        source="config.json of Qwen3-0.6B", **PROMPT,
    ),
    "whisper-base": KnownModel(
        "WhisperConfig", "WhisperModel",
        {
            "d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8,
            "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 51865,
        },
        {"input_features": (1, 80, 3000)}, "Radford et al. 2022, table 1", part="encoder",
    ),
}  # fmt: skip


def known_model(name: str) -> KnownModel:
    """The entry of MODELS, by name."""
    if name not in MODELS:
        raise UsageError(unknown("model", name, MODELS))
    return MODELS[name]


def build_model(known: KnownModel, dtype: "torch.dtype") -> "tuple[torch.nn.Module, Callable[[], Any]]":
    """The model on the meta device and the call to make, which takes no memory and computes nothing."""
    import torch
    import transformers

    config = getattr(transformers, known.config)(**known.sizes)
    with torch.device("meta"):
        model = getattr(transformers, known.model)(config).to(dtype).eval()
        inputs = {
            name: torch.empty(shape, dtype=torch.long if name.endswith("_ids") else dtype)
            for name, shape in known.inputs.items()
        }
    if known.part:
        model = getattr(model, known.part)

    def call() -> Any:
        with torch.no_grad():
            return model(**inputs, **(known.arguments or {}))

    return model, call
