"""Variables of DTensor on a mesh of logical devices, and models under ``keras.distribution``.

In a process of its own, since the number of devices cannot be changed once there are some.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path

DEVICES = """
import sys
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
import keras
import tfckpt
"""

DTENSOR = """
dtensor = tf.experimental.dtensor
mesh = dtensor.create_mesh([("x", 2), ("y", 2)], devices=[f"CPU:{n}" for n in range(4)])
replicated = dtensor.Layout.replicated(mesh, 2)
U = dtensor.UNSHARDED
LAYOUTS = [["x", "y"], ["y", "x"], ["x", U], [U, "y"], [U, U]]
VALUES = {
    "float32": np.arange(32, dtype="float32").reshape(8, 4),
    "bfloat16": np.arange(32).reshape(8, 4).astype(tf.bfloat16.as_numpy_dtype),
    "int64": np.arange(32).reshape(8, 4) - (1 << 40),
}

def sharded(value, specs):
    layout = dtensor.Layout(specs, mesh)
    there = dtensor.copy_to_mesh(tf.constant(value), replicated)
    return dtensor.DVariable(dtensor.relayout(there, layout))

def whole(variable):
    return dtensor.unpack(dtensor.relayout(variable.read_value(), replicated))[0].numpy()

checkpoint = {name: sharded(value, LAYOUTS[0]) for name, value in VALUES.items()}
manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(**checkpoint), sys.argv[1], None)
path = manager.save()
for name, value in VALUES.items():  # plain TensorFlow reads a whole value
    read = tf.train.load_variable(path, f"{name}/.ATTRIBUTES/VARIABLE_VALUE")
    np.testing.assert_array_equal(read, value)
single = tf.Variable(tf.zeros([8, 4]))
tf.train.Checkpoint(float32=single).restore(path).expect_partial()
np.testing.assert_array_equal(single.numpy(), VALUES["float32"])

for specs in LAYOUTS:  # another layout than it was saved under is kept
    variables = {name: sharded(np.zeros_like(value), specs) for name, value in VALUES.items()}
    layouts = {name: variable.layout for name, variable in variables.items()}
    tfckpt.Checkpoint(**variables).read(path).assert_existing_objects_matched()
    for name, variable in variables.items():
        np.testing.assert_array_equal(whole(variable), VALUES[name])
        assert variable.layout == layouts[name] == dtensor.Layout(specs, mesh)

# larger than what TensorFlow spreads over a mesh by itself; every value is compared after
big = np.random.default_rng(1).normal(size=(512, 512)).astype("float32")
path_of_big = tfckpt.Checkpoint(v=sharded(big, ["x", "y"])).write(sys.argv[1] + "/big")
variable = sharded(big * 0, ["y", U])
policy = {"api": "read", "verify": "values"}
config = {"version": 1, "restore": {"path": path_of_big, "policy": policy}}
tfckpt.restore(config, v=variable)
np.testing.assert_array_equal(whole(variable), big)

# an assertion that fails puts the old parts back
variable = sharded(big * 0, ["x", "y"])
try:
    status = tfckpt.Checkpoint(v=variable, w=tf.Variable(0.0)).read(path_of_big)
    status.assert_existing_objects_matched()
    raise SystemExit("matched")
except AssertionError:
    assert not whole(variable).any()

# a sharded save goes back to one device, and what is saved from one device into a mesh
tfckpt.Checkpoint(float32=single).read(path).expect_partial()
one = tfckpt.Checkpoint(v=tf.Variable(VALUES["float32"] + 1)).write(sys.argv[1] + "/one")
variable = sharded(VALUES["float32"], ["x", "y"])
tfckpt.Checkpoint(v=variable).read(one).assert_consumed()
np.testing.assert_array_equal(whole(variable), VALUES["float32"] + 1)

# a restore that is refused leaves the parts as they are
other = tfckpt.Checkpoint(v=tf.Variable([1.0])).write(sys.argv[1] + "/other")
try:
    tfckpt.Checkpoint(v=variable).read(other)
    raise AssertionError("restored")
except tfckpt.RefusedError:
    np.testing.assert_array_equal(whole(variable), VALUES["float32"] + 1)

# parts of another process cannot be read: refused before anything is written or changed
local = dtensor.Mesh.num_local_devices
dtensor.Mesh.num_local_devices = lambda mesh: 2
for refused, error in [
    (manager.save, tfckpt.SaveError),
    (lambda: tfckpt.Checkpoint(v=variable).read(one), tfckpt.RestoreError),
]:
    try:
        refused()
        raise AssertionError("done")
    except error as said:
        assert "several processes" in str(said), said
dtensor.Mesh.num_local_devices = local
assert [p[-6:] for p in manager.checkpoints] == ["ckpt-1"]
"""

KERAS = """
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


@pytest.mark.parametrize("script", [DTENSOR, KERAS], ids=["dtensor", "keras.distribution"])
def test_what_is_spread_over_devices_is_saved_and_restored_whole(
    script: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DEVICES + script, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr


def test_without_dtensor_all_else_is_saved_and_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(tf.experimental, "dtensor")
    variable = tf.Variable([1.0, 2.0])
    checkpoint = tfckpt.Checkpoint(v=variable)
    path = checkpoint.save(tmp_path / "ckpt")
    variable.assign([0.0, 0.0])
    checkpoint.restore(path).assert_consumed()
    assert variable.numpy().tolist() == [1.0, 2.0]
