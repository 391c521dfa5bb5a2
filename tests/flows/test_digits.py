"""The demo's model and data."""

import numpy as np
import torch

from kernels_neuron.flows.digits import HELD_OUT, load_digits, load_model, preprocess


def test_the_split_holds_out_360_images_that_were_not_trained_on():
    digits = load_digits()
    assert digits.test.shape == (HELD_OUT, 8, 8) and len(digits.train) + HELD_OUT == 1797
    assert np.bincount(digits.test_labels).min() >= 34  # every digit in proportion
    again = load_digits()
    assert np.array_equal(digits.test, again.test) and np.array_equal(digits.test_labels, again.test_labels)


def test_pixels_are_scaled_by_the_training_images():
    pixels = preprocess(load_digits().train)
    assert pixels.shape == (1437, 1, 8, 8) and pixels.dtype == np.float32
    assert abs(pixels.mean()) < 1e-5 and abs(pixels.std() - 1) < 1e-5


def test_the_model_classifies_at_least_96_percent_of_the_held_out_images():
    digits, model = load_digits(), load_model()
    with torch.no_grad():
        classes = model(torch.from_numpy(preprocess(digits.test))).logits.argmax(-1)
    assert not model.training
    assert (classes.numpy() == digits.test_labels).mean() >= 0.96
