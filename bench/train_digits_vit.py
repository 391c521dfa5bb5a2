"""Trains the demo's vision transformer on handwritten digits and writes it as package data; a minute on two cores.

    .venv/bin/python bench/train_digits_vit.py [FOLDER]

The committed weights are the output of this script with seed 0. Other processors and torch versions round otherwise and
give other weights of about the same accuracy.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import ViTConfig, ViTForImageClassification

from kernels_neuron.flows.digits import MODEL, load_digits, load_model, preprocess

SEED, EPOCHS, BATCH = 0, 50, 32
CONFIG = ViTConfig(
    image_size=8,
    patch_size=2,
    num_channels=1,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    id2label={digit: str(digit) for digit in range(10)},
    label2id={str(digit): digit for digit in range(10)},
)


def train(images: torch.Tensor, labels: torch.Tensor) -> ViTForImageClassification:
    """images [N, 1, 8, 8] float32, labels [N] -> the model after EPOCHS passes in shuffled batches."""
    torch.manual_seed(SEED)
    order = torch.Generator().manual_seed(SEED)
    model = ViTForImageClassification(CONFIG).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    batches = -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=EPOCHS * batches, pct_start=0.1)
    for epoch in range(EPOCHS):
        for batch in torch.randperm(len(images), generator=order).split(BATCH):
            logits = model(images[batch]).logits
            loss = torch.nn.functional.cross_entropy(logits, labels[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1:2} of {EPOCHS}  loss {loss.item():.3f}", file=sys.stderr)
    return model.eval()


def accuracy(model: ViTForImageClassification, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of images whose most likely class is the label."""
    with torch.no_grad():
        return (model(images).logits.argmax(-1) == labels).float().mean().item()


def main(folder: Path) -> None:
    """Train, save config.json, model.safetensors and preprocessing.json, then measure what was saved."""
    digits = load_digits()
    folder.mkdir(parents=True, exist_ok=True)
    scaled = digits.train / 16
    scaling = {"divide_by": 16, "mean": float(np.mean(scaled)), "std": float(np.std(scaled))}
    (folder / "preprocessing.json").write_text(json.dumps(scaling, indent=2) + "\n")

    model = train(torch.from_numpy(preprocess(digits.train, folder)), torch.from_numpy(digits.train_labels))
    model.save_pretrained(folder)

    held_out = torch.from_numpy(preprocess(digits.test, folder))
    right = accuracy(load_model(folder), held_out, torch.from_numpy(digits.test_labels))
    print(f"accuracy on {len(held_out)} held-out images: {right:.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else MODEL)
