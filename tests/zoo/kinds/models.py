"""Kinds of models: what they are made of, and how they are trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.kinds.parts import (
    IDS,
    IMAGES,
    SEQUENCE,
    Made,
    X,
    dense,
    descend,
    loss_of,
    model_of,
    trained,
)

# What they are made of


def mlp(k: Any, **more: Any) -> Made:
    norm = k.layers.BatchNormalization()
    call = lambda self, x, training=False: self.out(  # noqa: E731
        self.norm(self.body(x), training=training)
    )
    body, out = dense(k, 4, 2)
    return trained(k, model_of(k, call, body=body, norm=norm, out=out), X, training=True, **more)


def nested_models(k: Any) -> Made:
    def around(*parts: Any) -> Any:
        def call(self: Any, x: Any, training: bool = False) -> Any:
            for part in self.parts:
                x = part(x, training=training)
            return self.last(x)

        return model_of(k, call, parts=[*parts], last=k.layers.Dense(3))

    norm = k.layers.BatchNormalization
    return trained(k, around(norm(), around(norm(), around(norm())), norm()), X, training=True)


def containers(k: Any) -> Made:
    """Lists, dicts, tuples; lists in lists, of which Keras 3 knows the layers only in a list."""

    def call(self: Any, x: Any) -> Any:
        for layer in [*self.blocks, *self.pair, *self.nested[0], *self.nested[1]]:
            x = layer(x)
        return self.heads["left"](x) + self.heads["right"](x)

    heads = dict(zip(("left", "right"), dense(k, 1, 1), strict=True))
    nested = (
        [dense(k, 3), dense(k, 3)] if k.__name__ == "tf_keras" else [(x,) for x in dense(k, 3, 3)]
    )
    parts = {"blocks": dense(k, *[3] * 2), "pair": tuple(dense(k, 3, 3)), "nested": nested}
    return trained(k, model_of(k, call, heads=heads, **parts), X)


def embedding_and_recurrent(k: Any) -> Made:
    parts = {
        "embed": k.layers.Embedding(7, 4, mask_zero=True),
        "both": k.layers.Bidirectional(k.layers.LSTM(3, return_sequences=True)),
        "gru": k.layers.GRU(3),
    }
    call = lambda self, x: self.gru(self.both(self.embed(x)))  # noqa: E731
    return trained(k, model_of(k, call, **parts), IDS)


def cells(k: Any) -> Made:
    def call(self: Any, inputs: Any) -> Any:
        sequence, video = inputs
        return self.each(self.rnn(sequence)), self.conv(video)

    cells = [k.layers.LSTMCell(3), k.layers.GRUCell(2)]
    parts = {
        "rnn": k.layers.RNN(cells, return_sequences=True),
        "each": k.layers.TimeDistributed(k.layers.Dense(2)),
        "conv": k.layers.ConvLSTM2D(2, 2),
    }
    video = np.ones((1, 2, 3, 3, 1), "float32")
    return trained(k, model_of(k, call, **parts), (SEQUENCE, video))


def stateful(k: Any) -> Made:
    lstm = k.layers.LSTM(3, stateful=True)
    return trained(k, model_of(k, lambda self, x: self.lstm(x), lstm=lstm), SEQUENCE)


def states_and_keywords(k: Any) -> Made:
    """Two LSTMs, states handed on, `training` by keyword alone, a number."""

    def call(self: Any, x: Any, scale: float, *, training: bool = False) -> Any:
        x, *states = self.first(x)
        return self.out(self.second(x, initial_state=states, training=training)) * scale

    first = k.layers.LSTM(3, return_sequences=True, return_state=True)
    parts = {"first": first, "second": k.layers.LSTM(3), "out": k.layers.Dense(1)}
    return trained(k, model_of(k, call, **parts), SEQUENCE, scale=0.5, training=True)


def convolutions(k: Any) -> Made:
    def call(self: Any, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    parts = [
        *(k.layers.Conv2D(2, 3), k.layers.SeparableConv2D(4, 3), k.layers.PReLU()),
        *(k.layers.GroupNormalization(2), k.layers.Conv2DTranspose(2, 3)),
        *(k.layers.DepthwiseConv2D(2), k.layers.UnitNormalization(), k.layers.Flatten()),
        *(k.layers.LayerNormalization(), k.layers.Dense(2)),
    ]
    if k.__name__ == "keras":
        parts.insert(0, k.layers.SpectralNormalization(k.layers.Conv2D(2, 3, padding="same")))
    return trained(k, model_of(k, call, parts=parts), IMAGES)


def functional_inside(k: Any) -> Made:
    """A functional and a deferred nested Sequential inside of a subclassed model."""
    inputs = k.Input((3,))
    body = k.Model(inputs, k.layers.Dense(4)(inputs))
    head = k.Sequential([k.layers.Dense(3), k.Sequential([k.layers.Dense(2)])])
    return trained(k, model_of(k, lambda self, x: self.head(self.body(x)), body=body, head=head), X)


def deferred_sequential(k: Any) -> Made:
    layers = [k.layers.Dense(4), k.layers.BatchNormalization(), k.layers.Dense(2)]
    return trained(k, k.Sequential(layers), X, training=True)


def shared(k: Any) -> Made:
    first, second = dense(k, 3, 3)
    parts = {"encode": first, "decode": first, "all": [second, first, second]}
    call = lambda self, x: self.all[0](self.decode(self.encode(x)))  # noqa: E731
    return trained(k, model_of(k, call, **parts), X)


def attention_layers(k: Any) -> Made:
    def call(self: Any, x: Any) -> Any:
        return self.additive([x, self.dot([x, x])]) + self.many(x, x)

    parts = {
        "dot": k.layers.Attention(use_scale=True),
        "additive": k.layers.AdditiveAttention(),
        "many": k.layers.MultiHeadAttention(2, 2),
    }
    return trained(k, model_of(k, call, **parts), SEQUENCE)


def embedding_with_weights(k: Any) -> Made:
    start = np.ones((7, 4), "float32")
    embed = k.layers.Embedding(7, 4, weights=[start])
    return trained(k, model_of(k, lambda self, x: self.embed(x), embed=embed), IDS)


def never_called(k: Any) -> Made:
    used, unused = dense(k, 2, 5)
    return trained(k, model_of(k, lambda self, x: self.used(x), used=used, unused=unused), X)


def quantized(k: Any) -> Made:
    """Its kernels are `int8`; what is trained is a head on it."""
    body = k.Sequential([k.Input((3,)), *dense(k, 4)])
    body.quantize("int8")
    body.trainable = False
    call = lambda self, x: self.head(self.body(x))  # noqa: E731
    return trained(k, model_of(k, call, body=body, head=k.layers.Dense(2)), X)


def low_rank(k: Any) -> Made:
    """LoRA in a part that is built, and the arguments of layers that are not."""
    body = k.Sequential([k.Input((3,)), *dense(k, 4)])
    body.layers[0].enable_lora(2)
    call = lambda self, x: self.head(self.body(x))  # noqa: E731
    return trained(k, model_of(k, call, body=body, head=k.layers.Dense(2, lora_rank=1)), X)


def low_rank_later(k: Any) -> Made:
    """LoRA is enabled once the first call has built the model: the restart comes before it."""
    made = trained(k, model_of(k, lambda self, x: self.head(x), head=k.layers.Dense(2)), X)
    layer = made.objects["model"].head

    def step() -> None:
        if not layer.built:
            made.objects["model"](X)
        if not layer.lora_enabled:
            layer.enable_lora(2)
        made.step()

    return Made(made.objects, step)


# How they are trained


def compiled(k: Any) -> Made:
    model = mlp(k).objects["model"]
    model.compile(k.optimizers.Adam(0.05), "mse", metrics=["mae"], jit_compile=False)
    fit = lambda: model.fit(X, X[:, :2], epochs=1, batch_size=2, shuffle=False, verbose=0)  # noqa: E731
    return Made({"model": model}, fit)


def by_function(k: Any) -> Made:
    made = mlp(k)
    return Made(made.objects, tf.function(made.step, jit_compile=False))


def mixed_precision(k: Any) -> Made:
    module = k.optimizers if k.__name__ == "keras" else k.mixed_precision
    scaled = module.LossScaleOptimizer(k.optimizers.Adam(0.05), initial_scale=32768.0)
    k.mixed_precision.set_global_policy("mixed_float16")
    try:
        body, out = dense(k, 4, 2)
    finally:
        k.mixed_precision.set_global_policy("float32")
    model = model_of(k, lambda self, x: self.out(self.body(x)), body=body, out=out)

    def step() -> None:
        scale = scaled.scale_loss if k.__name__ == "keras" else scaled.get_scaled_loss
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            loss = scale(loss_of(model(X)) * (1e9 if int(scaled.iterations) == 1 else 1.0))
            variables = model.trainable_variables
        found = tape.gradient(loss, variables)
        if k.__name__ == "tf_keras":
            found = scaled.get_unscaled_gradients(found)
        scaled.apply_gradients(zip(found, variables, strict=True))

    return Made({"model": model, "optimizer": scaled}, step)


def in_strategy(k: Any) -> Made:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        made = mlp(k)
    return Made(made.objects, lambda: strategy.run(made.step))


def with_averages(k: Any) -> Made:
    """`amsgrad`, averages, and a decay that leaves out what names tell."""
    optimizer = k.optimizers.AdamW(0.05, amsgrad=True, use_ema=True, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias", "batch_normalization"])
    return mlp(k, by=optimizer)


def untrained_module(k: Any) -> Made:
    """A variable in a module of the model, which the loss does not know."""
    aside = tf.Module()
    aside.scale = tf.Variable(1.0)
    call = lambda self, x: self.out(x)  # noqa: E731
    return trained(k, model_of(k, call, out=k.layers.Dense(2), aside=aside), X)


def frozen_part(k: Any) -> Made:
    body, head = k.Sequential(dense(k, 4)), k.layers.Dense(2)
    body.trainable = False
    return trained(k, model_of(k, lambda self, x: self.head(self.body(x)), body=body, head=head), X)


def dropout(k: Any) -> Made:
    parts = {"drop": k.layers.Dropout(0.5, seed=3), "out": k.layers.Dense(2)}
    call = lambda self, x: self.out(self.drop(x, training=True))  # noqa: E731
    return trained(k, model_of(k, call, **parts), X)


def with_counters(k: Any) -> Made:
    """A metric and a step beside the model."""
    made, mean, step = mlp(k), k.metrics.Mean(), tf.Variable(0, dtype=tf.int64)

    def count() -> None:
        made.step()
        step.assign_add(1)
        mean.update_state(tf.cast(step, "float32"))

    told = {"loss": [v.value for v in mean.variables]} if k.__name__ == "keras" else {"loss": mean}
    return Made({**made.objects, **told, "step": step}, count)


def layers_as_keyword(k: Any) -> Made:
    layers, optimizer = dense(k, 4, 2), k.optimizers.Adam(0.05)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(layers[1](layers[0](X)))
        descend(optimizer, tape, loss, [v for layer in layers for v in layer.trainable_variables])

    return Made({"layers": layers, "optimizer": optimizer}, step)


KINDS: dict[str, Callable[[Any], Made]] = {
    "MLP": mlp,
    "models in models": nested_models,
    "lists, dicts, tuples": containers,
    "embedding, LSTM, GRU": embedding_and_recurrent,
    "cells, ConvLSTM2D": cells,
    "stateful LSTM": stateful,
    "states, keywords": states_and_keywords,
    "convolutions, norms": convolutions,
    "functional inside": functional_inside,
    "deferred Sequential": deferred_sequential,
    "shared layers": shared,
    "attention layers": attention_layers,
    "Embedding(weights=)": embedding_with_weights,
    "never called": never_called,
    "quantized": quantized,
    "LoRA": low_rank,
    "LoRA enabled later": low_rank_later,
    "fit": compiled,
    "tf.function": by_function,
    "mixed_float16": mixed_precision,
    "MirroredStrategy": in_strategy,
    "AdamW, averages": with_averages,
    "frozen part": frozen_part,
    "untrained module": untrained_module,
    "Dropout": dropout,
    "metric, step": with_counters,
    "layers by keyword": layers_as_keyword,
}
