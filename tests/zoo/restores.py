"""A program that writes and one that reads: small models, files of every kind, what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

WRITERS = pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])
BATCH = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)


def stack(k: Any, *layers: Any, width: int = 3) -> Any:
    """A sequential model of layers, or of dense ones with these names."""
    made = [k.layers.Dense(width, name=x) if x is None or isinstance(x, str) else x for x in layers]
    return k.Sequential([k.Input((width,)), *made])


def holding(k: Any, **held: Any) -> Any:
    """A built subclassed model with a dense layer and these attributes, which it does not call."""

    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.head = k.layers.Dense(2, name="head")
            for name, value in held.items():
                setattr(self, name, value)

        def call(self, inputs: Any) -> Any:
            return self.head(inputs)

    model = Net()
    model(BATCH)
    return model


def branches(k: Any, names=(None, None), *, dropout=(), head=False, last=False) -> Any:
    """Two layers side by side, each with an output of its own, or one for both."""
    inputs = k.Input((3,))
    outputs = [k.layers.Dense(3, name=name)(inputs) for name in names]
    for at in dropout:
        outputs[at] = k.layers.Dropout(0.5)(outputs[at])
    if head:
        joined = k.layers.Concatenate()(outputs)
        joined = k.layers.Dropout(0.5)(joined) if last else joined
        outputs = k.layers.Dense(1, name="head")(joined)
    return k.Model(inputs, outputs)


def filled(model: Any, value: float | None = None) -> Any:
    """With the value in all weights, or a number of its own in each."""
    weights = model.get_weights()
    model.set_weights(
        [np.full_like(w, n + 1.0 if value is None else value) for n, w in enumerate(weights)]
    )
    return model


def written(model: Any, kind: str, directory: Path) -> str:
    """The path of a file: `tfckpt`, `tensorflow`, `saved_model`, or what one of Keras ends in."""
    path = str(directory / f"model{kind if kind.startswith('.') else ''}")
    if kind == "tfckpt":
        return str(tfckpt.Checkpoint(model=model).save(path))
    if kind == "tensorflow":
        return str(tf.train.Checkpoint(model=model).save(path))
    if kind == ".weights.h5":
        model.save_weights(path)
    else:
        model.save(path)
    return path


def config(path: Any, **policy: Any) -> dict[str, Any]:
    return {"version": 1, "restore": {"path": str(path), "policy": policy}}


def numbers(model: Any) -> list[np.ndarray]:
    """Of its variables and, where it has one, of its optimizer's."""
    optimizer = getattr(model, "optimizer", None)
    return [np.array(v) for v in (*model.variables, *(optimizer.variables if optimizer else ()))]


def same(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def refused(path: str, model: Any, error: Any = tfckpt.RefusedError, **policy: Any) -> str:
    """What is said where nothing is restored."""
    before = numbers(model)
    ours = tfckpt.Checkpoint(model=model)
    with pytest.raises(error) as caught:
        tfckpt.restore(path, model, policy=policy) if policy else ours.restore(path)
    same(numbers(model), before)
    return " ".join(str(caught.value).split())


def restored(path: str, old: Any, new: Any) -> Any:
    """The model, once it has the weights of the old one and makes the same of a batch."""
    filled(new, 0.0)
    status = tfckpt.Checkpoint(model=new).restore(path)
    same(new.get_weights(), old.get_weights())
    for one, other in zip(tf.nest.flatten(old(BATCH)), tf.nest.flatten(new(BATCH)), strict=True):
        np.testing.assert_allclose(np.array(one), np.array(other), rtol=1e-6)
    return status
