"""One machine with several devices: ``fit`` under MirroredStrategy, gone on with on one device.

    python examples/distribute/mirrored.py

The devices are two halves of a CPU. The checkpoint is the same as one of a single device.
"""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import tfckpt.callbacks


def build() -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    x, y = np.random.default_rng(1).random((64, 4)), np.zeros((64, 2))
    with tempfile.TemporaryDirectory() as directory:
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope():
            mirrored = build()
        callback = tfckpt.callbacks.resume(mirrored, directory)
        mirrored.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[callback])

        single = build()
        callback = tfckpt.callbacks.resume(single, directory)
        single.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[callback])
        for one, other in zip(mirrored.get_weights(), single.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
        print("two devices trained, one has the same weights, bit for bit")
        single.fit(x, y, batch_size=16, epochs=3, initial_epoch=2, verbose=0)


if __name__ == "__main__":
    main()
