"""Learn ten classes from a few examples of each: with the pre-trained layers, or without.

``PRETRAINED=/tmp/run/checkpoints python examples/digits/finetune.py`` fine-tunes what
``train.py`` has left there.
"""

from __future__ import annotations

import keras
import numpy as np
from model import CONFIGS, build_model, data

import tfckpt

CLASSES = 10
EXAMPLES_PER_CLASS = 8
EPOCHS = 6


def few(images: np.ndarray, labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As many examples of each class, drawn at random."""
    draw = np.random.default_rng(seed)
    chosen = [
        draw.choice(np.flatnonzero(labels == label), EXAMPLES_PER_CLASS, replace=False)
        for label in range(CLASSES)
    ]
    return images[np.concatenate(chosen)], labels[np.concatenate(chosen)]


def finetune(*, restore: bool, seed: int = 0) -> tuple[float, tfckpt.RestoreReport | None]:
    """The accuracy on the test images, and what was restored."""
    keras.utils.set_random_seed(seed)
    train, test = data(CLASSES)
    model = build_model(CLASSES)
    report = tfckpt.restore(CONFIGS / "finetune.yaml", model=model) if restore else None
    model.fit(*few(*train, seed), batch_size=10, epochs=EPOCHS, verbose=0)
    return model.evaluate(*test, verbose=0, return_dict=True)["accuracy"], report


if __name__ == "__main__":
    accuracy, restored = finetune(restore=True)
    print(f"{restored}\n\naccuracy {accuracy:.1%}")
