"""Optimizers, from tf_keras to Keras 3 and back: every slot arrives, and the training goes on.

The writer goes on in its own flavor as well, and the two are compared after as many steps. Where
the two flavors are not equal to the last bit, they compute the same step in another order; the
greatest difference after 20 steps was measured on a CPU without oneDNN.
"""

from __future__ import annotations

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.models import stack
from zoo.optimizers import OPTIMIZERS, step
from zoo.variables import inner

import tfckpt
from tfckpt.live.inventory import collect

BEFORE, AFTER = 3, 8
EXACT, SMALL = 0.0, 1e-6
DRAW = np.random.default_rng(7)
BATCHES = [DRAW.normal(size=(2, 4, 4)).astype("float32") for _ in range(4)]  # inputs, and answers

OWN = {
    "clipped": lambda k: k.optimizers.Adam(global_clipnorm=0.5),
    "clipped_by_value": lambda k: k.optimizers.SGD(momentum=0.9, clipvalue=0.1),
    "decayed": lambda k: k.optimizers.Adam(weight_decay=0.01),
    "averaged": lambda k: k.optimizers.Adam(
        use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=4
    ),
    # Its momenta approach their limit 250 times slower by default than those of the newer one.
    "legacy_nadam": lambda k: k.optimizers.legacy.Nadam(schedule_decay=1.0),
}
# Optimizers of tf_keras (and of Keras 3, if it is another): the same to the last bit; or not, where
# factors have another order (1.8e-7 in averages, 4.8e-7 in Ftrl's slot `linear`), and where the
# legacy ones are kernels in C++ (1.8e-7).
BIT_EQUAL = [
    *("sgd_momentum", "adam", "adam_amsgrad", "clipped_by_value", "adamw", "adamax", "adagrad"),
    *("lion", "scaled_adam"),
]
CLOSE = [
    *("averaged", "adadelta", "adafactor", "rmsprop_centered", "nadam", "ftrl"),
    "legacy_adam > adam",
]
LONG = {
    **dict.fromkeys(("sgd", "sgd_nesterov", "adam_schedule", "clipped"), EXACT),
    **dict.fromkeys(("adam_ema", "rmsprop", "decayed", "legacy_sgd > sgd_momentum"), SMALL),
    **dict.fromkeys(("legacy_adam_amsgrad > adam_amsgrad", "legacy_adamax > adamax"), SMALL),
    **dict.fromkeys(("legacy_nadam > nadam", "legacy_adagrad > adagrad"), SMALL),
    **dict.fromkeys(("legacy_adadelta > adadelta", "legacy_ftrl > ftrl"), SMALL),
    "legacy_rmsprop > rmsprop_centered": SMALL,
}
TOLERANCES = dict.fromkeys(BIT_EQUAL, EXACT) | dict.fromkeys(CLOSE, SMALL) | LONG


def policy_of(name):
    """tf_keras keeps the rate that a schedule gave last; legacy optimizers keep all settings.

    tf_keras makes room for the momentum of plain SGD, and scales around the one that is scaled.
    """
    if name in ("sgd", "scaled_adam"):
        return {"on_missing": "ignore", "on_unexpected": "ignore"}
    kept = name != "adam_schedule" and ">" not in name
    return {} if kept else {"optimizer": {"hyperparameters": "config"}}


def net(k, optimizer):
    k.utils.set_random_seed(1)
    model = stack(k, k.layers.Dense(5, "tanh"), k.layers.Dense(4, name="head"), shape=(4,))
    model.compile((OPTIMIZERS | OWN)[optimizer](k), "mse")
    return model


def train(model, first, count):
    """By steps that both flavors take in the same way."""

    def loss(x, y):
        return tf.reduce_mean((model(x, training=True) - y) ** 2)

    for number in range(first, first + count):
        batch = BATCHES[number % len(BATCHES)]
        step(model.optimizer, model.trainable_variables, partial(loss, *batch))


def held(model):
    """What a training consists of, by name: seeds and metrics aside."""
    live = collect({"model": model})
    entries = live.inventory.entries.items()
    return {n: inner(live.variables[n]) for n, e in entries if e.role not in ("seed", "metric")}


def forget(model):
    """Zero what is restored; a policy may say that settings of the program count."""
    entries = tfckpt.inventory(model=model).entries
    for name, variable in held(model).items():
        if entries[name].role != "hyperparameter":
            variable.assign(tf.zeros_like(variable))


def difference(one, other):
    """The greatest difference between values of one name, of large values relative to them."""
    ours, theirs = held(one), held(other)
    return max(
        float(np.max(abs(a - theirs[name].numpy()) / np.maximum(1.0, abs(a)), initial=0.0))
        for name in ours.keys() & theirs.keys()
        for a in [ours[name].numpy().astype("float64")]
    )


@pytest.mark.parametrize(
    "optimizer",
    [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in TOLERANCES],
)
def test_an_optimizer_goes_on_in_the_other_flavour_and_back(optimizer, tmp_path):
    older, _, newer = optimizer.partition(" > ")
    first, second = net(tf_keras, older), net(keras, newer or older)
    begin = 0
    for number, (writer, reader) in enumerate(((first, second), (second, first))):
        train(writer, begin, BEFORE)
        begin += BEFORE
        checkpoint = tf.train.Checkpoint(model=writer, optimizer=writer.optimizer)
        path = checkpoint.save(str(tmp_path / str(number)))
        forget(reader)
        objects = {"model": reader, "optimizer": reader.optimizer}
        tfckpt.restore(path, policy=policy_of(optimizer), **objects)
        if hasattr(reader.optimizer, "_u_product_counter"):
            # What tf_keras's Nadam counts in Python, no checkpoint holds: without it, the momenta
            # are multiplied once per variable in the steps after a restore.
            reader.optimizer._u_product_counter = int(reader.optimizer.iterations.numpy()) + 1
        assert difference(writer, reader) == 0.0
        for model in (writer, reader):
            train(model, begin, AFTER)
        begin += AFTER
        assert difference(writer, reader) <= TOLERANCES[optimizer]
