"""Models by how they are put together: nested, subclassed, shared, with variables of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

WIDTH = 3
BATCH = np.ones((2, WIDTH), "float32")


def called(model: Any, *inputs: Any) -> Any:
    model(*inputs)
    return model


def block(k: Any) -> Any:
    class Block(k.layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.inner = k.layers.Dense(WIDTH)
            self.norm = k.layers.LayerNormalization()

        def call(self, x: Any) -> Any:
            return self.norm(self.inner(x))

    return Block


def subclassed_class(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.first = k.layers.Dense(WIDTH)
            self.norm = k.layers.BatchNormalization()
            self._second = k.layers.Dense(2, name="chosen")

        def call(self, x: Any) -> Any:
            return self._second(self.norm(self.first(x)))

    return Net


def sequential(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((WIDTH,)),
            k.layers.Dense(WIDTH),
            k.layers.BatchNormalization(),
            k.layers.Dense(WIDTH, name="head"),
            k.layers.Dense(2),
        ]
    )


def sequential_deferred(k: Any) -> Any:
    return called(k.Sequential([k.layers.Dense(WIDTH), k.layers.Dense(2, name="head")]), BATCH)


def functional(k: Any) -> Any:
    x = k.Input((WIDTH,))
    left = k.layers.Dense(WIDTH)(x)
    right = k.layers.Dense(WIDTH, name="right")(x)
    y = k.layers.Dropout(0.5)(k.layers.Add()([left, right]))
    return k.Model(x, [k.layers.Dense(2)(y), k.layers.Dense(1, name="value")(y)])


def subclassed(k: Any) -> Any:
    return called(subclassed_class(k)(), BATCH)


def functional_in_functional(k: Any) -> Any:
    def inner(name: str | None) -> Any:
        x = k.Input((WIDTH,))
        return k.Model(x, k.layers.Dense(WIDTH)(k.layers.Dense(WIDTH, name="a")(x)), name=name)

    x = k.Input((WIDTH,))
    y = inner("encoder")(k.layers.Dense(WIDTH)(x))
    return k.Model(x, k.layers.Dense(2)(inner("decoder")(y)))


def unnamed_functional_in_functional(k: Any) -> Any:
    def inner() -> Any:
        x = k.Input((WIDTH,))
        return k.Model(x, k.layers.Dense(WIDTH)(x))

    x = k.Input((WIDTH,))
    return k.Model(x, inner()(inner()(x)))


def sequential_in_sequential(k: Any) -> Any:
    def part(name: str) -> Any:
        layers = [k.Input((WIDTH,)), k.layers.Dense(WIDTH), k.layers.Dense(WIDTH)]
        return k.Sequential(layers, name=name)

    return k.Sequential([k.Input((WIDTH,)), part("body"), part("top"), k.layers.Dense(1)])


def sequential_in_subclassed(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.body = k.Sequential([k.layers.Dense(WIDTH), k.layers.Dense(WIDTH)])
            self.head = k.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.head(self.body(x))

    return called(Net(), BATCH)


def subclassed_in_functional(k: Any) -> Any:
    x = k.Input((WIDTH,))
    return k.Model(x, k.layers.Dense(1)(subclassed_class(k)(name="net")(x)))


def blocks_in_sequential(k: Any) -> Any:
    cls = block(k)
    layers = [cls(), cls(name="middle"), cls(), k.layers.Dense(1)]
    return called(k.Sequential([k.Input((WIDTH,)), *layers]), BATCH)


def containers(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [k.layers.Dense(WIDTH) for _ in range(11)]
            self.heads = {"left": k.layers.Dense(1), "right": k.layers.Dense(1)}
            self.pair = (k.layers.Dense(WIDTH), k.layers.Dense(WIDTH))
            self.nested = [[k.layers.Dense(WIDTH)], [k.layers.Dense(WIDTH)]]

        def call(self, x: Any) -> Any:
            for layer in [*self.blocks, *self.pair, *self.nested[0], *self.nested[1]]:
                x = layer(x)
            return self.heads["left"](x) + self.heads["right"](x)

    return called(Net(), BATCH)


def shared(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.encode = k.layers.Dense(WIDTH)
            self.decode = self.encode
            self.wrapped = block(k)()
            self.wrapped.extra = self.encode

        def call(self, x: Any) -> Any:
            return self.wrapped(self.decode(self.encode(x)))

    return called(Net(), BATCH)


def shared_in_functional(k: Any) -> Any:
    x = k.Input((WIDTH,))
    tied = k.layers.Dense(WIDTH)
    return k.Model(x, k.layers.Dense(1)(tied(tied(x))))


def own_weights(k: Any) -> Any:
    class Own(k.layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(name="s", shape=(WIDTH,))
            self.add_weight(name="untold", shape=(WIDTH,))
            self.parts = [self.add_weight(name=f"part{i}", shape=(WIDTH,)) for i in range(3)]
            self.keyed = {"x": self.add_weight(name="keyed_x", shape=(WIDTH,))}
            self.counter = self.add_weight(name="c", shape=(), dtype="int64", trainable=False)
            super().build(shape)

        def call(self, x: Any) -> Any:
            return x * self.scale + self.parts[0] + self.parts[1] * self.parts[2]

    return called(k.Sequential([k.Input((WIDTH,)), Own(name="own"), k.layers.Dense(1)]), BATCH)


def weights_on_model(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = k.layers.Dense(WIDTH)

        def build(self, shape: Any) -> None:
            self.token = self.add_weight(name="token", shape=(WIDTH,))
            super().build(shape)

        def call(self, x: Any) -> Any:
            return self.dense(x + self.token)

    return called(Net(), BATCH)
