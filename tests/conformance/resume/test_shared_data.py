"""Three ``fit`` that share data sets, killed: trained exactly, or said before the first step.

The weights of a program that was not stopped are what is right.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tfckpt.callbacks

X = np.arange(24, dtype="float32").reshape(12, 2)


def shuffled(number):
    data = tf.data.Dataset.from_tensor_slices((X + number, X[:, :1] + number))
    return data.shuffle(12).batch(4)


def shuffled_within(number):
    data = tf.data.Dataset.from_tensor_slices((X + number, X[:, :1] + number))
    return data.shuffle(12).repeat(2).batch(8)


def noisy(number):
    generator = tf.random.Generator.from_seed(3 + number)
    return shuffled(number).map(lambda x, y: (x + generator.normal((2,)), y))


def train(keras, make, order, directory=None, stop=None):
    """The weights at the end; None where it was stopped."""
    keras.utils.set_random_seed(1)
    data = {name: make(number) for number, name in enumerate("AB")}
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-4), "mse")

    class Stop(keras.callbacks.Callback):
        fit = epoch = -1

        def get_state(self):
            return {}

        def set_state(self, state):
            pass

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if stop == (self.fit, self.epoch, batch):
                raise KeyboardInterrupt

    callbacks = [Stop()]
    if directory is not None:
        callbacks.insert(0, tfckpt.callbacks.resume(model, directory, save_freq=1))
    for number, name in enumerate(order):
        callbacks[-1].fit = number
        try:
            model.fit(data[name], epochs=2, verbose=0, callbacks=callbacks)
        except KeyboardInterrupt:
            return None
    return model.get_weights()


@pytest.mark.parametrize("make", [shuffled, shuffled_within, noisy])
@pytest.mark.parametrize("order", ["ABA", "AAA", "AAB"])
@pytest.mark.parametrize("stop", [(0, 1, 1), (1, 0, 0), (1, 1, 0)])
def test_exact_or_said(flavour, make, order, stop, tmp_path, capsys) -> None:
    directory = tmp_path / "run"
    whole = train(flavour, make, order)
    assert train(flavour, make, order, directory, stop) is None
    capsys.readouterr()
    found = train(flavour, make, order, directory)
    exact = all(map(np.array_equal, found, whole))
    said = "give each `fit` its own dataset" in capsys.readouterr().out
    assert exact != said
    assert exact or make is not shuffled
