"""Kinds of models: what makes their variables, what adapts, what their inputs are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.kinds.parts import IDS, SEQUENCE, Made, X, dense, model_of, trained

# What adapts


def adapted(made: Made, again: bool, adapt: Callable[[], Any]) -> Made:
    """It adapts when it is made, or in the first run alone."""
    if not again:
        return made._replace(first=adapt)
    adapt()
    return made


def normalized(k: Any, *, again: bool = True) -> Made:
    layer = k.layers.Normalization()
    call = lambda self, x: self.out(self.layer(x))  # noqa: E731
    made = trained(k, model_of(k, call, layer=layer, out=k.layers.Dense(2)), X)
    return adapted(made, again, lambda: layer.adapt(X * np.random.uniform(1, 2)))


WORDS = np.array(["a b c", "b c d"])


def vectorized(k: Any, *, again: bool = True) -> Made:
    layer = k.layers.TextVectorization(output_sequence_length=4)
    call = lambda self, x: self.out(self.embed(self.layer(x)))  # noqa: E731
    parts = {"embed": k.layers.Embedding(9, 2), "out": k.layers.Dense(1)}
    made = trained(k, model_of(k, call, layer=layer, **parts), WORDS)
    return adapted(made, again, lambda: layer.adapt(WORDS))


# What makes their variables


def made_in_build(k: Any) -> Made:
    class Block(k.layers.Layer):
        def build(self, shape: Any) -> None:
            self.wide, self.narrow = k.layers.Dense(2 * shape[-1]), k.layers.Dense(shape[-1])
            self.gain = self.add_weight(name="gain", shape=(shape[-1],), initializer="ones")
            super().build(shape)

        def call(self, x: Any) -> Any:
            return self.narrow(self.wide(x)) * self.gain

    call = lambda self, x: self.blocks[1](self.blocks[0](x))  # noqa: E731
    return trained(k, model_of(k, call, blocks=[Block(), Block()]), X)


def weights_in_a_list(k: Any) -> Made:
    class Own(k.layers.Layer):
        def build(self, shape: Any) -> None:
            self.gains = [self.add_weight(name=f"g{i}", shape=(shape[-1],)) for i in range(3)]
            self.biases = {"a": self.add_weight(name="b", shape=(shape[-1],))}
            self.seen = self.add_weight(name="seen", shape=(), trainable=False)
            super().build(shape)

        def call(self, x: Any) -> Any:
            self.seen.assign(self.seen + 1.0)
            return x * self.gains[0] * self.gains[1] + self.gains[2] + self.biases["a"]

    return trained(k, model_of(k, lambda self, x: self.own(x), own=Own()), X)


def made_in_call(k: Any, *inputs: Any, **more: Any) -> Made:
    def call(self: Any, x: Any, other: Any = 0.0) -> Any:
        if self.late is None:
            self.late = k.layers.Dense(2)
        return self.late(self.body(tf.cast(x, "float32"))) + other

    model = model_of(k, call, body=k.layers.Dense(3), late=None)
    return trained(k, model, *(inputs or (X,)), **more)


def made_in_call_by_a_flag(k: Any) -> Made:
    def call(self: Any, x: Any, wide: bool) -> Any:
        if self.late is None:
            self.late = k.layers.Dense(4 if wide else 2)
        return self.late(self.body(x))

    return trained(k, model_of(k, call, body=k.layers.Dense(3), late=None), X, wide=True)


def list_that_grows(k: Any) -> Made:
    def call(self: Any, x: Any) -> Any:
        while len(self.blocks) < 3:
            self.blocks.append(k.layers.Dense(3))
        x = self.body(x)
        for block in self.blocks:
            x = block(x)
        return x

    return trained(k, model_of(k, call, body=k.layers.Dense(3), blocks=[]), X)


def variable_made_in_call(k: Any) -> Made:
    """The layer is built when its last variable is not there yet."""

    def call(self: Any, x: Any) -> Any:
        if self.gain is None:
            with tf.init_scope():
                self.gain = tf.Variable(tf.ones([2]), name="gain")
        return self.kernel(x) * self.gain

    return trained(k, model_of(k, call, gain=None, kernel=k.layers.Dense(2)), X)


def variable_moved_in_call(k: Any) -> Made:
    def call(self: Any, x: Any) -> Any:
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x))
        return self.out(x - self.mean)

    mean = tf.Variable(0.0, trainable=False)
    return trained(k, model_of(k, call, mean=mean, out=k.layers.Dense(2)), X)


def tied(k: Any, *, table_first: bool) -> Made:
    """The last layer has the table of the first one, which it takes when it is built."""

    class Tied(k.layers.Layer):
        def __init__(self, table: Any) -> None:
            super().__init__()
            self.table = table

        def build(self, shape: Any) -> None:
            of = self.table.embeddings
            self.bias = self.add_weight(name="bias", shape=(of.shape[0],))
            self.built = True

        def call(self, x: Any) -> Any:
            return tf.matmul(x, tf.convert_to_tensor(self.table.embeddings), transpose_b=True)

    table = k.layers.Embedding(7, 4)
    named = ("a_table", "z_tied") if table_first else ("z_table", "a_tied")
    parts = dict(zip(named, (table, Tied(table)), strict=True))
    call = lambda self, x: getattr(self, named[1])(getattr(self, named[0])(x))  # noqa: E731
    return trained(k, model_of(k, call, **dict(sorted(parts.items()))), IDS)


def builds_its_children(k: Any) -> Made:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = dense(k, 4, 2)

        def build(self, shape: Any) -> None:
            self.first.build(shape)
            self.second.build((shape[0], 4))
            self.built = True

        def call(self, x: Any) -> Any:
            return self.second(self.first(x))

    return trained(k, Net(), X)


def build_of_two_shapes(k: Any) -> Made:
    keras3 = k.__name__ == "keras"

    class Memory(k.layers.Layer):
        def build(self, query_shape: Any, memory_shape: Any = None) -> None:
            query, memory = (query_shape, memory_shape) if keras3 else query_shape
            self.kernel = self.add_weight(name="kernel", shape=(query[-1], memory[-1]))
            self.built = True

        def call(self, query: Any, memory: Any = None) -> Any:
            query, memory = (query, memory) if keras3 else query
            return tf.matmul(query, tf.convert_to_tensor(self.kernel)) + memory

    def call(self: Any, x: Any) -> Any:
        given = (x, x[:, :2]) if keras3 else ((x, x[:, :2]),)
        return self.memory(*given)

    return trained(k, model_of(k, call, memory=Memory()), X)


# What their inputs are


def dict_of_inputs(k: Any) -> Made:
    call = lambda self, x: self.left(x["a"]) + self.right(x["b"])  # noqa: E731
    left, right = dense(k, 2, 2)
    return trained(k, model_of(k, call, left=left, right=right), {"a": X, "b": X[:, :2]})


def ragged(k: Any) -> Made:
    call = lambda self, x: self.out(tf.reduce_mean(self.embed(x), 1))  # noqa: E731
    parts = {"embed": k.layers.Embedding(7, 3), "out": k.layers.Dense(2)}
    return trained(k, model_of(k, call, **parts), tf.ragged.constant([[1, 2], [3, 4, 5]]))


def several_shapes(k: Any) -> Made:
    call = lambda self, x: self.out(self.conv(x))  # noqa: E731
    model = model_of(k, call, conv=k.layers.Conv1D(2, 2), out=k.layers.Dense(1))
    made = trained(k, model, SEQUENCE)

    def step() -> None:
        model(SEQUENCE[:1, :3])
        made.step()
        model(SEQUENCE[:, :2])

    return Made(made.objects, step)


KINDS: dict[str, Callable[[Any], Made]] = {
    "Normalization": normalized,
    "Normalization, once": lambda k: normalized(k, again=False),
    "TextVectorization": vectorized,
    "TextVectorization, once": lambda k: vectorized(k, again=False),
    "made in build": made_in_build,
    "weights in a list": weights_in_a_list,
    "made in call": made_in_call,
    "made in call, keyword": lambda k: made_in_call(k, X, other=X[:, :2]),
    "made in call, integers": lambda k: made_in_call(k, IDS),
    "made in call, by a flag": made_in_call_by_a_flag,
    "list that grows": list_that_grows,
    "variable made in call": variable_made_in_call,
    "variable moved in call": variable_moved_in_call,
    "tied, table first": lambda k: tied(k, table_first=True),
    "tied, table last": lambda k: tied(k, table_first=False),
    "builds its children": builds_its_children,
    "build of two shapes": build_of_two_shapes,
    "dict of inputs": dict_of_inputs,
    "ragged input": ragged,
    "several input shapes": several_shapes,
}
