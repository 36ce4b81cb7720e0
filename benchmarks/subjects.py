"""What is saved and restored: variables in a list, and models with their Adam.

All values, an optimizer's slots too, are random: zeros would be compressed by those who compress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BLOCKS, WIDTH, HEADS, WORDS = 12, 768, 12, 30_522


class Subject(NamedTuple):
    """Live objects.

    Attributes:
        objects: by keyword, as ``tf.train.Checkpoint`` takes them.
        variables: all ``tf.Variable`` that are in them.
    """

    objects: Mapping[str, Any]
    variables: Sequence[Any]

    @property
    def nbytes(self) -> int:
        return sum(each.dtype.size * each.shape.num_elements() for each in self.variables)


def values(count: int, nbytes: int) -> Subject:
    """Variables of float32 in a list."""
    block = _random(nbytes // 4)
    variables = [tf.Variable(block) for _ in range(count)]
    return Subject({"values": variables}, variables)


class Block(tf.Module):  # type: ignore[misc]
    """One that leads back to its network, and to the block before it."""

    def __init__(self, network: Any, before: Any) -> None:
        super().__init__()
        self.network, self.before = network, before
        self.weight = tf.Variable(_random(64))


def with_back_references(count: int) -> Subject:
    network = tf.Module()
    network.blocks = []
    for _ in range(count):
        network.blocks.append(Block(network, network.blocks[-1] if network.blocks else None))
    return Subject({"network": network}, network.variables)


def mlp(*, small: bool = False) -> Subject:
    import keras

    layers = [keras.layers.Dense(64, name=f"dense_{n}") for n in range(1 if small else 8)]
    return _with_adam(keras.Sequential([keras.Input((64,)), *layers]))


def bert(*, small: bool = False) -> Subject:
    """An encoder as BERT's, 109 million parameters."""
    import keras

    blocks, width, heads, words = (1, 32, 2, 64) if small else (BLOCKS, WIDTH, HEADS, WORDS)
    layers = keras.layers
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = layers.Embedding(words, width, name="words")(tokens)
    for n in range(blocks):
        attention = layers.MultiHeadAttention(heads, width // heads, name=f"attention_{n}")
        y = layers.LayerNormalization(name=f"norm_{n}_a")(x)
        x = x + attention(y, y)
        y = layers.LayerNormalization(name=f"norm_{n}_b")(x)
        y = layers.Dense(4 * width, activation="relu", name=f"wide_{n}")(y)
        x = x + layers.Dense(width, name=f"narrow_{n}")(y)
    return _with_adam(keras.Model(tokens, layers.Dense(2, name="classes")(x)))


def resnet50(*, small: bool = False) -> Subject:
    import keras

    if small:
        inputs = keras.Input((8, 8, 3))
        x = keras.layers.Conv2D(4, 3, name="conv")(inputs)
        x = keras.layers.BatchNormalization(name="norm")(x)
        return _with_adam(keras.Model(inputs, x))
    return _with_adam(keras.applications.ResNet50(weights=None))


def _with_adam(model: Any) -> Subject:
    import keras

    optimizer = keras.optimizers.Adam(1e-4)
    optimizer.build(model.trainable_variables)
    variables = [variable.value for variable in (*model.variables, *optimizer.variables)]
    block = _random(max(variable.shape.num_elements() for variable in variables))
    for variable in variables:
        if variable.dtype == tf.float32 and variable.shape.rank:
            count = variable.shape.num_elements()
            variable.assign(block[:count].reshape(variable.shape))
    return Subject({"model": model, "optimizer": optimizer}, variables)


def _random(count: int) -> Any:
    return np.random.default_rng(0).random(count, np.float32) * np.float32(0.01)
