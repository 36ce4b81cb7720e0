"""What these tests share: a file of a model in each of Keras's formats, and short policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = (".weights.h5", ".h5", ".keras")


def fill(model: Any, seed: int) -> None:
    """Gives each weight numbers of its own."""
    random = np.random.default_rng(seed)
    for variable in model.weights:
        old = np.asarray(variable)
        if old.dtype.kind != "u":  # the state of a random generator
            variable.assign((random.normal(size=old.shape) * 8).astype(old.dtype))


def save(model: Any, directory: Path, suffix: str) -> str:
    """The path of a file of the model; Keras 3 writes an ``.h5`` of the whole model alone."""
    path = str(directory / f"model{suffix}")
    keras_3 = isinstance(model, keras.Model)
    whole = suffix == ".keras" or (suffix == ".h5" and keras_3)
    if not whole:
        model.save_weights(path)
    else:
        model.save(path)
    return path


def restore(path: str, model: Any, **policy: Any) -> tfckpt.RestoreReport:
    rules = {"api": "read", **policy}
    config = {"version": 1, "restore": {"path": path, "policy": "p"}, "policies": {"p": rules}}
    return tfckpt.restore(config, model=model)


def equal(one: Any, other: Any) -> bool:
    """Whether two models have the same weights to the last bit, in Keras's own order."""
    both = zip(one.get_weights(), other.get_weights(), strict=True)
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in both)
