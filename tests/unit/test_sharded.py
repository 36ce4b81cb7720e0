"""Variables of DTensor are refused; models under ``keras.distribution`` are as without it.

In a process of its own, since the number of devices cannot be changed once there are some.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DEVICES = """
import pathlib
import sys
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
"""

IMPORTS = """
import keras
import tfckpt
"""

DTENSOR = (
    IMPORTS
    + """
dtensor = tf.experimental.dtensor
mesh = dtensor.create_mesh([("x", 2), ("y", 2)], devices=[f"CPU:{n}" for n in range(4)])
value = np.arange(32, dtype="float32").reshape(8, 4)

def sharded(value):
    there = dtensor.copy_to_mesh(tf.constant(value), dtensor.Layout.replicated(mesh, 2))
    return dtensor.DVariable(dtensor.relayout(there, dtensor.Layout(["x", "y"], mesh)))

def whole(variable):
    there = dtensor.relayout(variable.read_value(), dtensor.Layout.replicated(mesh, 2))
    return dtensor.unpack(there)[0].numpy()

variable, other = sharded(value), tf.Variable(1.0)
objects = {"other": other, "weights": {"kernel": variable}}
one = tfckpt.Checkpoint(other=tf.Variable(2.0), weights={"kernel": tf.Variable(value + 1)})
path = one.write(sys.argv[1] + "/one/ckpt")
directory = pathlib.Path(sys.argv[1], "several")
manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(**objects), str(directory), 3)
for refused in (
    manager.save,
    lambda: tfckpt.Checkpoint(**objects).write(str(directory / "written")),
    lambda: tfckpt.Checkpoint(**objects).read(path),
    lambda: tfckpt.Checkpoint(**objects).restore(path),
    lambda: tfckpt.restore(path, **objects),
    lambda: tfckpt.plan(path, **objects),
):
    try:
        refused()
        raise SystemExit("done")
    except tfckpt.UntrackedError as error:
        assert str(error).startswith("weights/kernel: "), error
        assert "tf.train.Checkpoint" in str(error), error
    np.testing.assert_array_equal(whole(variable), value)
    assert other.numpy() == 1.0
left = [found.name for found in directory.rglob("*") if found.is_file()]
assert all(name == ".tfckpt.lock" for name in left), left

# what the message says to use
by_tensorflow = tf.train.Checkpoint(**objects).write(sys.argv[1] + "/by_tensorflow")
again = sharded(value * 0)
tf.train.Checkpoint(other=other, weights={"kernel": again}).read(by_tensorflow)
np.testing.assert_array_equal(whole(again), value)
"""
)

WITHOUT = """
del tf.experimental.dtensor
import tfckpt
path = tfckpt.Checkpoint(v=tf.Variable([1.0, 2.0])).write(sys.argv[1] + "/ckpt")
variable = tf.Variable([0.0, 0.0])
tfckpt.Checkpoint(v=variable).read(path).assert_consumed()
assert variable.numpy().tolist() == [1.0, 2.0]
"""

KERAS = (
    IMPORTS
    + """
devices = [f"cpu:{number}" for number in range(4)]
mesh = keras.distribution.DeviceMesh((2, 2), ["batch", "model"], devices)
layouts = keras.distribution.LayoutMap(mesh)
layouts[".*kernel"] = (None, "model")
DISTRIBUTIONS = [
    None,
    keras.distribution.DataParallel(devices=devices),
    keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch"),
]

def build(distribution):
    keras.distribution.set_distribution(distribution)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model

x, y = np.ones((8, 4), "float32"), np.zeros((8, 2), "float32")
for number, saved in enumerate(DISTRIBUTIONS):
    model = build(saved)
    model.fit(x, y, verbose=0)
    checkpoint = tfckpt.Checkpoint(model=model, optimizer=model.optimizer)
    path = checkpoint.write(f"{sys.argv[1]}/{number}")
    for into in DISTRIBUTIONS:
        again = build(into)
        status = tfckpt.Checkpoint(model=again, optimizer=again.optimizer).read(path)
        status.assert_consumed()
        for a, b in zip(model.variables, again.variables, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        for a, b in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
"""
)


def run(script: str, directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DEVICES + script, str(directory)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr


def test_variables_of_dtensor_are_refused(tmp_path: Path) -> None:
    run(DTENSOR, tmp_path)


def test_without_dtensor_all_else_is_saved_and_restored(tmp_path: Path) -> None:
    run(WITHOUT, tmp_path)


def test_keras_distribution_changes_nothing(tmp_path: Path) -> None:
    run(KERAS, tmp_path)
