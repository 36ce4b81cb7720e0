"""What is saved and restored: variables in a list, a transformer, ResNet50.

All values, an optimizer's slots too, are random: zeros would be compressed by those who compress.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BLOCKS, WIDTH, HEADS, WORDS, LENGTH = 12, 768, 12, 30_522, 512


@dataclasses.dataclass(frozen=True)
class Subject:
    """Live objects.

    Attributes:
        objects: by keyword, as ``tf.train.Checkpoint`` takes them.
        variables: all ``tf.Variable`` that are in them.
        model: a compiled Keras model, where there is one.
    """

    objects: Mapping[str, Any]
    variables: Sequence[Any]
    model: Any = None

    @property
    def nbytes(self) -> int:
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """Bytes of each value, largest first."""
        return sorted((v.dtype.size * v.shape.num_elements() for v in self.variables), reverse=True)

    def arrays(self) -> dict[str, Any]:
        """The values of now, sharing memory with the variables."""
        values = (variable.read_value() for variable in self.variables)
        return {f"value_{n}": np.asarray(value) for n, value in enumerate(values)}


def values(count: int, nbytes: int) -> Subject:
    """Variables of float32 in a list."""
    block = _random(nbytes // 4)
    variables = [tf.Variable(block) for _ in range(count)]
    return Subject({"values": variables}, variables)


def transformer(*, small: bool = False) -> Subject:
    """An encoder as BERT's, 109 million parameters, with Adam."""
    import keras

    blocks, width, heads, words = (1, 32, 2, 64) if small else (BLOCKS, WIDTH, HEADS, WORDS)
    layers = keras.layers
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    places = keras.Input((None,), dtype="int32", name="places")
    x = layers.Embedding(words, width, name="words")(tokens)
    x = x + layers.Embedding(LENGTH, width, name="positions")(places)
    for n in range(blocks):
        attention = layers.MultiHeadAttention(heads, width // heads, name=f"attention_{n}")
        y = layers.LayerNormalization(name=f"norm_{n}_a")(x)
        x = x + attention(y, y)
        y = layers.LayerNormalization(name=f"norm_{n}_b")(x)
        y = layers.Dense(4 * width, activation="relu", name=f"wide_{n}")(y)
        x = x + layers.Dense(width, name=f"narrow_{n}")(y)
    x = layers.LayerNormalization(name="norm")(x)
    outputs = layers.Dense(2, name="classes")(x)
    return _with_adam(keras.Model([tokens, places], outputs))


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
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    variables = [variable.value for variable in (*model.variables, *optimizer.variables)]
    block = _random(max(variable.shape.num_elements() for variable in variables))
    for variable in variables:
        if variable.dtype == tf.float32 and variable.shape.rank:
            count = variable.shape.num_elements()
            variable.assign(block[:count].reshape(variable.shape))
    return Subject({"model": model, "optimizer": optimizer}, variables, model)


def _random(count: int) -> Any:
    """Small and positive, so that training goes on with them as weights, and as slots."""
    return np.random.default_rng(0).random(count, np.float32) * np.float32(0.01)
