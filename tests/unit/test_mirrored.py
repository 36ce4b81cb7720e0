"""A run under ``tf.distribute.MirroredStrategy``: every replica is restored, every count is read.

In a process of its own, since the number of devices cannot be changed once there are some.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import importlib, sys
import numpy as np
import tensorflow as tf
import tfckpt

keras = importlib.import_module(sys.argv[1])
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
config = {
    "version": 1,
    "manager": {"directory": sys.argv[2], "save": {"every_steps": 2}},
    "restore": {"directory": sys.argv[2], "if_none": "initialize", "policy": {"verify": "values"}},
}

def build(seed):
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
        model.compile(keras.optimizers.Adam(0.01), "mse")
    run = tfckpt.from_config(config, model=model)
    return model, run

def replicas(model):
    variables = [*model.trainable_variables, *model.optimizer.variables]
    inner = [getattr(v, "_value", v) for v in variables]
    return [[part.numpy() for part in getattr(v, "values", [v, v])] for v in inner]

x, y = np.ones((8, 4), "float32"), np.zeros((8, 2), "float32")
model, run = build(1)
model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[run.callback(verbose=0)])
assert [path[-6:] for path in run.manager.checkpoints] == ["ckpt-1", "ckpt-2"]
expected = replicas(model)
model, run = build(2)
report = run.restore()
assert report.step == 4, report
np.testing.assert_equal(replicas(model), expected)
for one, other in replicas(model):
    np.testing.assert_array_equal(one, other)
reset = {"path": report.path, "policy": {"optimizer": {"slots": "reset"}}}
tfckpt.restore({"version": 1, "restore": reset}, model=model)
slots = [pair for pair in replicas(model) if pair[0].ndim][4:]
assert slots and not any(part.any() for pair in slots for part in pair)
print("done")
"""


@pytest.mark.parametrize("flavour", ["keras", "tf_keras"])
def test_every_replica_is_restored(flavour, tmp_path) -> None:
    pytest.importorskip(flavour)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, flavour, str(tmp_path / "run")],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=environment,
    )
    assert done.stdout.endswith("done\n"), done.stderr
