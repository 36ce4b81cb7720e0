"""Small models by name, and objects as they are given to a checkpoint; ``k`` is a Keras flavor."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from zoo.optimizers import compiled

WIDTH = 3
BATCH = np.ones((2, WIDTH), "float32")


def called(model, *inputs):
    model(*inputs or (BATCH,))
    return model


def stack(k, *layers, shape=(WIDTH,), **more):
    return k.Sequential([k.Input(shape), *layers], **more)


def wired(k, *layers, shape=(WIDTH,), **more):
    """The same as a functional model."""
    x = y = k.Input(shape)
    for layer in layers:
        y = layer(y)
    return k.Model(x, y, **more)


def dense(k, *names, width=WIDTH, **more):
    return [k.layers.Dense(width, name=name, **more) for name in names]


def chain(k, *names, build=wired, **more):
    """Dense layers of one shape; a name that is None is left to Keras."""
    return build(k, *dense(k, *names), **more)


def net(base, parts, call, name="Net"):
    """A class of models or layers that have these parts as attributes, and compute this."""

    class Net(base):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            for attribute, part in parts().items():
                setattr(self, attribute, part)

        def call(self, x):
            return call(self, x)

    Net.__name__ = name
    return Net


def in_turn(base, name="Net", **parts):
    """The same of parts that are called one after the other."""

    def call(self, x):
        for part in parts:
            x = getattr(self, part)(x)
        return x

    return net(base, lambda: {name: make() for name, make in parts.items()}, call, name)


# How they are put together


def functional(k):
    x = k.Input((WIDTH,))
    left = k.layers.Dense(WIDTH)(x)
    right = k.layers.Dense(WIDTH, name="right")(x)
    y = k.layers.Dropout(0.5)(k.layers.Add()([left, right]))
    return k.Model(x, [k.layers.Dense(2)(y), k.layers.Dense(1, name="value")(y)])


def subclassed_class(k):
    return in_turn(
        k.Model,
        first=lambda: k.layers.Dense(WIDTH),
        norm=k.layers.BatchNormalization,
        _second=lambda: k.layers.Dense(2, name="chosen"),
    )


def functional_in_functional(k):
    x = k.Input((WIDTH,))
    encoder = chain(k, "a", None, name="encoder")
    y = encoder(k.layers.Dense(WIDTH)(x))
    last = k.layers.Dense(2)
    return k.Model(x, last(chain(k, "a", None, name="decoder")(y)))


def unnamed_functional_in_functional(k):
    x = k.Input((WIDTH,))
    outer, inner = chain(k, None), chain(k, None)
    return k.Model(x, outer(inner(x)))


def sequential_in_subclassed(k):
    body, head = lambda: k.Sequential(dense(k, None, None)), lambda: k.layers.Dense(1)
    return called(in_turn(k.Model, body=body, head=head)())


def subclassed_in_functional(k):
    x = k.Input((WIDTH,))
    return k.Model(x, k.layers.Dense(1)(subclassed_class(k)(name="net")(x)))


def block(k):
    inner, norm = lambda: k.layers.Dense(WIDTH), k.layers.LayerNormalization
    return in_turn(k.layers.Layer, "Block", inner=inner, norm=norm)


def blocks_in_sequential(k):
    cls = block(k)
    return called(stack(k, cls(), cls(name="middle"), cls(), k.layers.Dense(1)))


def containers(k):
    def parts():
        return {
            "blocks": dense(k, *[None] * 11),
            "heads": {"left": k.layers.Dense(1), "right": k.layers.Dense(1)},
            "pair": tuple(dense(k, None, None)),
            "nested": [dense(k, None), dense(k, None)],
        }

    def call(self, x):
        for layer in [*self.blocks, *self.pair, *self.nested[0], *self.nested[1]]:
            x = layer(x)
        return self.heads["left"](x) + self.heads["right"](x)

    return called(net(k.Model, parts, call)())


def shared(k):
    def parts():
        encode, wrapped = k.layers.Dense(WIDTH), block(k)()
        wrapped.extra = encode
        return {"encode": encode, "decode": encode, "wrapped": wrapped}

    return called(net(k.Model, parts, lambda self, x: self.wrapped(self.decode(self.encode(x))))())


def own_weights(k):
    class Own(k.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(name="s", shape=(WIDTH,))
            self.add_weight(name="untold", shape=(WIDTH,))
            self.parts = [self.add_weight(name=f"part{i}", shape=(WIDTH,)) for i in range(3)]
            self.keyed = {"x": self.add_weight(name="keyed_x", shape=(WIDTH,))}
            self.counter = self.add_weight(name="c", shape=(), dtype="int64", trainable=False)
            super().build(shape)

        def call(self, x):
            return x * self.scale + self.parts[0] + self.parts[1] * self.parts[2]

    return called(stack(k, Own(name="own"), k.layers.Dense(1)))


def weights_on_model(k):
    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.dense = k.layers.Dense(WIDTH)

        def build(self, shape):
            self.token = self.add_weight(name="token", shape=(WIDTH,))
            super().build(shape)

        def call(self, x):
            return self.dense(x + self.token)

    return called(Net())


# What is in them


def attention(k):
    def parts():
        attend, norm = k.layers.MultiHeadAttention(2, 4), k.layers.LayerNormalization()
        return {"attend": attend, "norm": norm}

    cls = net(k.layers.Layer, parts, lambda self, x: self.norm(x + self.attend(x, x)), "Encoder")
    x = k.Input((4, WIDTH))
    y = k.layers.MultiHeadAttention(2, 4)(x, x)
    return k.Model(x, k.layers.Dense(1)(cls(name="encoder")(y)))


def spectral(k):
    def normalized(*units, **more):
        return lambda: k.layers.SpectralNormalization(k.layers.Dense(*units, **more))

    first, last = normalized(WIDTH), normalized(2, use_bias=False)
    return called(in_turn(k.Model, first=first, last=last)())


def low_rank(k):
    model = stack(k, k.layers.Dense(WIDTH), k.layers.Dense(2, name="head"))
    model.get_layer("head").enable_lora(2)
    return model


def normalized(k):
    layer = k.layers.Normalization()
    layer.adapt(np.arange(12, dtype="float32").reshape(4, 3))
    return called(k.Sequential([layer, k.layers.Dense(1)]))


def text(k):
    x = k.Input((), dtype="string")
    vectorize = k.layers.TextVectorization(output_sequence_length=4)
    vectorize.adapt(["a b c", "b c d"])
    return k.Model(x, k.layers.Dense(1)(k.layers.Embedding(9, 2)(vectorize(x))))


def lookups(k):
    lookup = lambda: k.layers.StringLookup(vocabulary=["a", "b"])  # noqa: E731
    cls = in_turn(k.Model, lookup=lookup, embed=lambda: k.layers.Embedding(4, 2))
    return called(cls(), tf.constant(["a", "b"]))


def module_in_layer(k):
    def holder():
        module = tf.Module()
        module.w = tf.Variable(tf.ones([WIDTH]))
        module.more = [tf.Variable(tf.ones([WIDTH])), tf.Variable(tf.ones([WIDTH]))]
        return {"module": module, "bare": tf.Variable(tf.ones([WIDTH]), name="bare_name")}

    cls = net(k.layers.Layer, holder, lambda self, x: x * self.module.w + self.bare, "Holder")
    return called(stack(k, cls(name="holder"), k.layers.Dense(1)))


def mixed_precision(k):
    class Own(k.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(name="scale", shape=(WIDTH,))
            super().build(shape)

        def call(self, x):
            return x * tf.cast(self.scale, "float16")

    mixed = {"dtype": "mixed_float16"}
    first, norm = k.layers.Dense(WIDTH, **mixed), k.layers.BatchNormalization(**mixed)
    return called(stack(k, first, norm, Own(name="own", **mixed), k.layers.Dense(1, **mixed)))


MODELS = {
    "sequential": lambda k: stack(
        k,
        *(k.layers.Dense(WIDTH), k.layers.BatchNormalization()),
        *(k.layers.Dense(WIDTH, name="head"), k.layers.Dense(2)),
    ),
    "sequential_deferred": lambda k: called(
        k.Sequential([k.layers.Dense(WIDTH), k.layers.Dense(2, name="head")])
    ),
    "functional": functional,
    "subclassed": lambda k: called(subclassed_class(k)()),
    "functional_in_functional": functional_in_functional,
    "unnamed_functional_in_functional": unnamed_functional_in_functional,
    "sequential_in_sequential": lambda k: stack(
        k,
        *(chain(k, None, None, build=stack, name=name) for name in ("body", "top")),
        k.layers.Dense(1),
    ),
    "sequential_in_subclassed": sequential_in_subclassed,
    "subclassed_in_functional": subclassed_in_functional,
    "blocks_in_sequential": blocks_in_sequential,
    "containers": containers,
    "shared": shared,
    "shared_in_functional": lambda k: wired(k, *dense(k, None) * 2, k.layers.Dense(1)),
    "own_weights": own_weights,
    "weights_on_model": weights_on_model,
    "recurrent": lambda k: stack(
        k,
        k.layers.LSTM(4, return_sequences=True),
        k.layers.RNN(
            [k.layers.LSTMCell(4), k.layers.GRUCell(4)], return_sequences=True, name="stacked"
        ),
        k.layers.RNN(k.layers.SimpleRNNCell(4), return_sequences=True),
        k.layers.Bidirectional(k.layers.GRU(4, return_sequences=True)),
        *(k.layers.TimeDistributed(k.layers.Dense(2)), k.layers.SimpleRNN(2)),
        shape=(4, WIDTH),
    ),
    "attention": attention,
    "convolutional": lambda k: stack(
        k,
        *(k.layers.Conv2D(4, 3, padding="same"), k.layers.SeparableConv2D(4, 3, padding="same")),
        k.layers.DepthwiseConv2D(3, padding="same"),
        k.layers.Conv2DTranspose(4, 3, padding="same"),
        *(k.layers.BatchNormalization(), k.layers.GroupNormalization(2), k.layers.PReLU()),
        *(k.layers.Reshape((1, 8, 8, 4)), k.layers.ConvLSTM2D(2, 3)),
        shape=(8, 8, WIDTH),
    ),
    "spectral": spectral,
    "normalized": normalized,
    "text": text,
    "lookups": lookups,
    "low_rank": low_rank,
    "seeded": lambda k: stack(
        k,
        *(k.layers.RandomFlip(seed=1), k.layers.RandomRotation(0.1, seed=1), k.layers.Flatten()),
        *(k.layers.Dense(2), k.layers.Dropout(0.5, seed=3)),
        k.layers.GaussianNoise(0.5, seed=4, name="noise"),
        *(k.layers.Dense(2), k.layers.Dropout(0.5, seed=3)),
        shape=(8, 8, WIDTH),
    ),
    "module_in_layer": module_in_layer,
    "mixed_precision": mixed_precision,
}
# LoRA is new in Keras 3; tf_keras's SpectralNormalization takes tf.keras's InputSpec, which is the
# other flavour's here, and cannot be built.
KERAS_3 = ("low_rank", "spectral")
# As the ``flavour`` fixture has it, and the name of a model.
IN_FLAVOUR = [
    (flavour, name)
    for flavour in ("keras3", "tf_keras")
    for name in MODELS
    if flavour == "keras3" or name not in KERAS_3
]


# Objects by keyword: several models, their optimizers, parts


def _trained(k, *names):
    return compiled(chain(k, *names), k.optimizers.SGD(momentum=0.9))


def _built(optimizer, model):
    optimizer.build(model.trainable_variables)
    return optimizer


def copies(k):
    return {"model": _trained(k, "a", "b"), "ema": chain(k, "a", "b")}


def twice(k):
    model = _trained(k, "a", None)
    return {"student": model, "teacher": model}


def adversaries(k):
    both = {name: _trained(k, "a", None) for name in ("generator", "discriminator")}
    return both | {"step": tf.Variable(3)}


def with_optimizers(k):
    players = {"generator": chain(k, None, "g"), "discriminator": chain(k, None, "d")}
    solvers = {f"{n}_optimizer": _built(k.optimizers.Adam(), m) for n, m in players.items()}
    return players | solvers


def listed(k):
    return {"models": [chain(k, "a"), chain(k, "a")], "more": {"x": chain(k, "a")}}


def same_optimizer(k):
    model = compiled(chain(k, "a", None), k.optimizers.Adam())
    return {"net": model, "opt": model.optimizer}


def layer_alone(k):
    return {"layer": called(k.layers.Dense(2), np.ones((1, 3), "float32"))}


def two_optimizers(k):
    model = compiled(chain(k, "a", None), k.optimizers.Adam())
    return {"model": model, "optimizer": _built(k.optimizers.SGD(momentum=0.9), model)}


def in_module(k):
    module = tf.Module()
    module.net, module.scale = chain(k, "a", None), tf.Variable(1.0)
    return {"module": module}


ATTACHED = {
    make.__name__: make
    for make in (
        *(copies, twice, adversaries, with_optimizers, listed, same_optimizer, two_optimizers),
        *(layer_alone, in_module),
    )
}
