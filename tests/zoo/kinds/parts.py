"""What all kinds are made of: batches, a step of a training, the name of a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(4, 3)).astype("float32")
Y = DRAW.normal(size=(4, 2)).astype("float32")
SEQUENCE = DRAW.normal(size=(2, 4, 4)).astype("float32")
IDS = DRAW.integers(0, 7, (2, 4)).astype("int32")
IMAGES = DRAW.normal(size=(2, 8, 8, 1)).astype("float32")


class Made(NamedTuple):
    """What is given to a checkpoint, a step of its training, and what the first run alone does."""

    objects: dict[str, Any]
    step: Callable[[], Any]
    first: Callable[[], Any] = lambda: None


def loss_of(*outputs: Any) -> Any:
    parts = [tf.cast(tf.convert_to_tensor(x), "float32") for x in tf.nest.flatten(outputs)]
    return tf.add_n([tf.reduce_mean((x - 0.5) ** 2) for x in parts])


def descend(optimizer: Any, tape: Any, loss: Any, variables: Iterable[Any]) -> None:
    variables = [*variables]
    pairs = zip(tape.gradient(loss, variables), variables, strict=True)
    optimizer.apply_gradients([(one, v) for one, v in pairs if one is not None])


def trained(k: Any, model: Any, *inputs: Any, by: Any = None, **more: Any) -> Made:
    """A model on one batch, by Adam or by an optimizer of its own."""
    optimizer = by or k.optimizers.Adam(0.05)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(model(*inputs, **more))
        descend(optimizer, tape, loss, model.trainable_variables)

    return Made({"model": model, "optimizer": optimizer}, step)


def dense(k: Any, *units: int, **more: Any) -> list[Any]:
    return [k.layers.Dense(n, **more) for n in units]


def model_of(k: Any, call: Callable[..., Any], base: Any = None, **parts: Any) -> Any:
    """A model, or a layer, with these attributes, whose ``call`` is this function of them."""
    made = type("Net", (base or k.Model,), {"call": call})()
    for name, part in parts.items():
        setattr(made, name, part)
    return made
