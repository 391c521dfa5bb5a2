"""The demo's model and data: a small vision transformer and the handwritten digits of scikit-learn."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kernels_neuron.errors import UsageError

if TYPE_CHECKING:
    from transformers import ViTForImageClassification

MODEL = Path(__file__).parent / "data" / "digits_vit"
HELD_OUT = 360
INSTALL_HINT = "pip install 'kernels-neuron[demo]'"


@dataclass(frozen=True)
class Digits:
    """Images as they were drawn and their labels; the split never changes, so the held-out ones were never trained on.

    train, test                 [N, 8, 8] float64, 0 (paper) to 16 (ink)
    train_labels, test_labels   [N] int64
    """

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def load_digits() -> Digits:
    """The 1797 digits that come with scikit-learn: 1437 to train on, 360 held out, every digit in proportion."""
    try:
        from sklearn import datasets
        from sklearn.model_selection import train_test_split
    except ModuleNotFoundError as error:
        raise UsageError(f"the digits come with scikit-learn: {error}", hint=INSTALL_HINT) from error
    images, labels = datasets.load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(
        images.reshape(-1, 8, 8), labels, test_size=HELD_OUT, stratify=labels, random_state=0
    )
    return Digits(train, train_labels, test, test_labels)


def preprocess(images: np.ndarray, folder: Path = MODEL) -> np.ndarray:
    """images [N, 8, 8] -> pixel values [N, 1, 8, 8] float32, scaled as in training."""
    scaling = json.loads((folder / "preprocessing.json").read_text())
    scaled = (images / scaling["divide_by"] - scaling["mean"]) / scaling["std"]
    return scaled[:, None].astype(np.float32)


def load_model(folder: Path = MODEL) -> "ViTForImageClassification":
    """The trained transformer in float32, ready for inference; nothing is fetched."""
    try:
        from transformers import ViTForImageClassification
        from transformers.utils import logging
    except ModuleNotFoundError as error:
        raise UsageError(f"the model needs transformers: {error}", hint=INSTALL_HINT) from error
    drawing = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return ViTForImageClassification.from_pretrained(folder, local_files_only=True).eval()
    finally:
        if drawing:
            logging.enable_progress_bar()
