"""One training, begun in one Keras flavour and gone on with in the other.

The writer goes on in its own flavour as well, and the two are compared after as many steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.live.inventory import collect
from zoo.variables import inner

if TYPE_CHECKING:
    from collections.abc import Sequence

BEFORE, AFTER = 3, 20
Batch = tuple[np.ndarray, np.ndarray]


def batches(inputs: Sequence[Any], model: Any) -> list[Batch]:
    """Some inputs, each with something to be learned from it."""
    draw = np.random.default_rng(7)
    return [(x, draw.normal(size=model(x).shape).astype("float32")) for x in inputs]


def step(model: Any, batch: Batch) -> None:
    """One step, which both flavours take in the same way."""
    x, y = batch
    optimizer = model.optimizer
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        for scale in ("scale_loss", "get_scaled_loss"):
            if hasattr(optimizer, scale):
                loss = getattr(optimizer, scale)(loss)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, [getattr(v, "_value", v) for v in variables])
    if hasattr(optimizer, "get_unscaled_gradients"):
        gradients = optimizer.get_unscaled_gradients(gradients)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def train(model: Any, data: Sequence[Batch], first: int, count: int) -> None:
    for number in range(first, first + count):
        step(model, data[number % len(data)])


def values(model: Any) -> dict[str, np.ndarray]:
    """What a training consists of, by name: seeds and metrics aside."""
    live = collect({"model": model})
    kept = {n for n, e in live.inventory.entries.items() if e.role not in ("seed", "metric")}
    return {name: inner(live.variables[name]).numpy() for name in kept}


def forget(model: Any) -> None:
    """Give every variable another value, so that what is equal afterwards was restored.

    Hyperparameters keep theirs: a policy may say that those of the program count.
    """
    live = collect({"model": model})
    for name, entry in live.inventory.entries.items():
        if entry.role != "hyperparameter":
            variable = inner(live.variables[name])
            variable.assign(tf.zeros_like(variable))


def difference(one: Any, other: Any) -> float:
    """The greatest difference between values of one name, of large values relative to them."""
    ours, theirs = values(one), values(other)
    found = [
        np.abs(ours[name].astype("float64") - theirs[name]) / np.maximum(1.0, np.abs(ours[name]))
        for name in ours.keys() & theirs.keys()
    ]
    return max(float(np.max(each, initial=0.0)) for each in found)
