"""Models of every shape, in both Keras flavours, for the tests of names.

Each builder takes the module ``keras`` or ``tf_keras`` and returns a built model, so one of them
makes the same model twice, and what must be equal across flavours can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WIDTH = 3
BATCH = np.ones((2, WIDTH), "float32")
SEQUENCE = np.ones((2, 4, WIDTH), "float32")
IMAGE = np.ones((2, 8, 8, WIDTH), "float32")


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


def recurrent(k: Any) -> Any:
    cells = [k.layers.LSTMCell(4), k.layers.GRUCell(4)]
    return k.Sequential(
        [
            k.Input((4, WIDTH)),
            k.layers.LSTM(4, return_sequences=True),
            k.layers.RNN(cells, return_sequences=True, name="stacked"),
            k.layers.RNN(k.layers.SimpleRNNCell(4), return_sequences=True),
            k.layers.Bidirectional(k.layers.GRU(4, return_sequences=True)),
            k.layers.TimeDistributed(k.layers.Dense(2)),
            k.layers.SimpleRNN(2),
        ]
    )


def attention(k: Any) -> Any:
    class Encoder(k.layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.attend = k.layers.MultiHeadAttention(2, 4)
            self.norm = k.layers.LayerNormalization()

        def call(self, x: Any) -> Any:
            return self.norm(x + self.attend(x, x))

    x = k.Input((4, WIDTH))
    y = k.layers.MultiHeadAttention(2, 4)(x, x)
    return k.Model(x, k.layers.Dense(1)(Encoder(name="encoder")(y)))


def convolutional(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((8, 8, WIDTH)),
            k.layers.Conv2D(4, 3, padding="same"),
            k.layers.SeparableConv2D(4, 3, padding="same"),
            k.layers.DepthwiseConv2D(3, padding="same"),
            k.layers.Conv2DTranspose(4, 3, padding="same"),
            k.layers.BatchNormalization(),
            k.layers.GroupNormalization(2),
            k.layers.PReLU(),
            k.layers.Reshape((1, 8, 8, 4)),
            k.layers.ConvLSTM2D(2, 3),
        ]
    )


def spectral(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first = k.layers.SpectralNormalization(k.layers.Dense(WIDTH))
            self.last = k.layers.SpectralNormalization(k.layers.Dense(2, use_bias=False))

        def call(self, x: Any) -> Any:
            return self.last(self.first(x))

    return called(Net(), BATCH)


def low_rank(k: Any) -> Any:
    model = k.Sequential([k.Input((WIDTH,)), k.layers.Dense(WIDTH), k.layers.Dense(2, name="head")])
    model.get_layer("head").enable_lora(2)
    return model


def normalized(k: Any) -> Any:
    layer = k.layers.Normalization()
    layer.adapt(np.arange(12, dtype="float32").reshape(4, 3))
    return called(k.Sequential([layer, k.layers.Dense(1)]), BATCH)


def text(k: Any) -> Any:
    x = k.Input((), dtype="string")
    vectorize = k.layers.TextVectorization(output_sequence_length=4)
    vectorize.adapt(["a b c", "b c d"])
    return k.Model(x, k.layers.Dense(1)(k.layers.Embedding(9, 2)(vectorize(x))))


def lookups(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.lookup = k.layers.StringLookup(vocabulary=["a", "b"])
            self.embed = k.layers.Embedding(4, 2)

        def call(self, x: Any) -> Any:
            return self.embed(self.lookup(x))

    return called(Net(), tf.constant(["a", "b"]))


def seeded(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((8, 8, WIDTH)),
            k.layers.RandomFlip(seed=1),
            k.layers.RandomRotation(0.1, seed=1),
            k.layers.Flatten(),
            k.layers.Dense(2),
            k.layers.Dropout(0.5, seed=3),
            k.layers.GaussianNoise(0.5, seed=4, name="noise"),
            k.layers.Dense(2),
            k.layers.Dropout(0.5, seed=3),
        ]
    )


def module_in_layer(k: Any) -> Any:
    class Plain(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(tf.ones([WIDTH]))
            self.more = [tf.Variable(tf.ones([WIDTH])), tf.Variable(tf.ones([WIDTH]))]

    class Holder(k.layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.module = Plain()
            self.bare = tf.Variable(tf.ones([WIDTH]), name="bare_name")

        def call(self, x: Any) -> Any:
            return x * self.module.w + self.bare

    return called(
        k.Sequential([k.Input((WIDTH,)), Holder(name="holder"), k.layers.Dense(1)]), BATCH
    )


def mixed_precision(k: Any) -> Any:
    class Own(k.layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(name="scale", shape=(WIDTH,))
            super().build(shape)

        def call(self, x: Any) -> Any:
            return x * tf.cast(self.scale, "float16")

    policy = {"dtype": "mixed_float16"}
    layers = [
        k.layers.Dense(WIDTH, **policy),
        k.layers.BatchNormalization(**policy),
        Own(name="own", **policy),
        k.layers.Dense(1),
    ]
    return called(k.Sequential([k.Input((WIDTH,)), *layers]), BATCH)


MODELS: dict[str, Callable[[Any], Any]] = {
    builder.__name__: builder
    for builder in (
        sequential,
        sequential_deferred,
        functional,
        subclassed,
        functional_in_functional,
        unnamed_functional_in_functional,
        sequential_in_sequential,
        sequential_in_subclassed,
        subclassed_in_functional,
        blocks_in_sequential,
        containers,
        shared,
        shared_in_functional,
        own_weights,
        weights_on_model,
        recurrent,
        attention,
        convolutional,
        spectral,
        normalized,
        text,
        lookups,
        low_rank,
        seeded,
        module_in_layer,
        mixed_precision,
    )
}

# LoRA is new in Keras 3; tf_keras's SpectralNormalization takes tf.keras's InputSpec, which is the
# other flavour's here, and cannot be built.
KERAS_3 = ("low_rank", "spectral")


@pytest.fixture(params=list(MODELS))
def build(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """``build(keras)``: each of the models in turn; skips where the flavour has not its layers."""

    def built(k: Any) -> Any:
        if k.__name__ == "tf_keras" and request.param in KERAS_3:
            pytest.skip(f"tf_keras has no {request.param}")
        return MODELS[request.param](k)

    return built


@pytest.fixture(scope="session")
def models() -> dict[str, Callable[[Any], Any]]:
    """The builders by name."""
    return MODELS


def _by_name(k: Any) -> Any:
    head, rest = k.optimizers.SGD(0.1, momentum=0.9), k.optimizers.Adam()
    return k.optimizers.MultiOptimizer(lambda variable: head if "head" in variable.path else rest)


def _scaled(k: Any, inner: Any) -> Any:
    module = k.optimizers if hasattr(k.optimizers, "LossScaleOptimizer") else k.mixed_precision
    return module.LossScaleOptimizer(inner)


def _schedule(k: Any) -> Any:
    return k.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)


BOTH_FLAVOURS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda k: k.optimizers.SGD(),
    "sgd_momentum": lambda k: k.optimizers.SGD(momentum=0.9),
    "sgd_nesterov": lambda k: k.optimizers.SGD(momentum=0.9, nesterov=True),
    "adam": lambda k: k.optimizers.Adam(),
    "adam_amsgrad": lambda k: k.optimizers.Adam(amsgrad=True),
    "adam_schedule": lambda k: k.optimizers.Adam(_schedule(k)),
    "adam_ema": lambda k: k.optimizers.Adam(use_ema=True),
    "adamw": lambda k: k.optimizers.AdamW(),
    "adamax": lambda k: k.optimizers.Adamax(),
    "nadam": lambda k: k.optimizers.Nadam(),
    "adagrad": lambda k: k.optimizers.Adagrad(),
    "adadelta": lambda k: k.optimizers.Adadelta(),
    "adafactor": lambda k: k.optimizers.Adafactor(),
    "rmsprop": lambda k: k.optimizers.RMSprop(),
    "rmsprop_centered": lambda k: k.optimizers.RMSprop(momentum=0.9, centered=True),
    "ftrl": lambda k: k.optimizers.Ftrl(),
    "lion": lambda k: k.optimizers.Lion(),
    "scaled_adam": lambda k: _scaled(k, k.optimizers.Adam()),
}
ONLY_KERAS_3: dict[str, Callable[[Any], Any]] = {
    "lamb": lambda k: k.optimizers.Lamb(),
    "muon": lambda k: k.optimizers.Muon(),
    "schedule_free_adamw": lambda k: k.optimizers.ScheduleFreeAdamW(),
    "adam_accumulating": lambda k: k.optimizers.Adam(gradient_accumulation_steps=2),
    "sgd_everything": lambda k: k.optimizers.SGD(
        momentum=0.9, use_ema=True, gradient_accumulation_steps=2
    ),
    "multi": _by_name,
}
ONLY_LEGACY: dict[str, Callable[[Any], Any]] = {
    "legacy_sgd": lambda k: k.optimizers.legacy.SGD(momentum=0.9),
    "legacy_adam": lambda k: k.optimizers.legacy.Adam(),
    "legacy_adam_amsgrad": lambda k: k.optimizers.legacy.Adam(amsgrad=True),
    "legacy_adam_schedule": lambda k: k.optimizers.legacy.Adam(_schedule(k)),
    "legacy_adamax": lambda k: k.optimizers.legacy.Adamax(),
    "legacy_nadam": lambda k: k.optimizers.legacy.Nadam(),
    "legacy_adagrad": lambda k: k.optimizers.legacy.Adagrad(),
    "legacy_adadelta": lambda k: k.optimizers.legacy.Adadelta(),
    "legacy_rmsprop": lambda k: k.optimizers.legacy.RMSprop(momentum=0.9, centered=True),
    "legacy_ftrl": lambda k: k.optimizers.legacy.Ftrl(),
    "scaled_legacy_adam": lambda k: _scaled(k, k.optimizers.legacy.Adam()),
}
OPTIMIZERS = BOTH_FLAVOURS | ONLY_KERAS_3 | ONLY_LEGACY


@pytest.fixture(params=list(OPTIMIZERS))
def optimizer(request: pytest.FixtureRequest, flavour: Any) -> Any:
    """Each of the optimizers in turn, not built; skips where the flavour has it not."""
    name = request.param
    tf_keras = flavour.__name__ == "tf_keras"
    if name in (ONLY_KERAS_3 if tf_keras else ONLY_LEGACY):
        pytest.skip(f"{flavour.__name__} has no {name}")
    return OPTIMIZERS[name](flavour)


@pytest.fixture(params=list(BOTH_FLAVOURS))
def in_both(request: pytest.FixtureRequest) -> str:
    """The name of each optimizer that both flavours have."""
    return str(request.param)


@pytest.fixture(scope="session")
def optimizers() -> dict[str, Callable[[Any], Any]]:
    """The makers of optimizers by name."""
    return OPTIMIZERS


def _compiled(model: Any, optimizer: Any) -> Any:
    model.compile(optimizer=optimizer, loss="mse")
    if hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(model.trainable_variables)
    else:
        optimizer.build(model.trainable_variables)
    return model


@pytest.fixture(scope="session")
def compiled() -> Callable[[Any, Any], Any]:
    """``compiled(model, optimizer)``: the model, its optimizer's variables made."""
    return _compiled


def _raw(variable: Any) -> tf.Variable:
    """The tf.Variable inside a variable of either flavour, or itself."""
    while not isinstance(variable, tf.Variable) or hasattr(variable, "_variable"):
        variable = variable._value if hasattr(variable, "_value") else variable._variable
    return variable


@pytest.fixture(scope="session")
def inner() -> Callable[[Any], tf.Variable]:
    """``inner(variable)``: the tf.Variable that TensorFlow saves."""
    return _raw


def _distinguish(variables: Iterable[Any]) -> None:
    start = 0
    for variable in map(_raw, variables):
        count = int(np.prod(variable.shape))
        kind = variable.dtype.as_numpy_dtype
        variable.assign(np.arange(start, start + count).reshape(variable.shape).astype(kind))
        start += count


@pytest.fixture(scope="session")
def distinguish() -> Callable[[Iterable[Any]], None]:
    """``distinguish(variables)``: no two elements of all of them have the same value."""
    return _distinguish
