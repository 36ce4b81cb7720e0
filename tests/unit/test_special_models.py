"""Models under strategies, quantized ones, and those whose metrics compile makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt

CAST = {"on_dtype_mismatch": "cast", "on_missing": "warn", "on_unexpected": "ignore"}


def build(seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((4,)),
            layers.Dense(8, activation="relu", name="first"),
            layers.Dense(2, name="last"),
        ]
    )


def quantized(seed: int) -> Any:
    model = build(seed)
    model.quantize("int8")
    return model


@pytest.mark.parametrize("policy", [{}, CAST], ids=["strict", "cast"])
@pytest.mark.parametrize(("old", "new"), [(build, quantized), (quantized, build)])
def test_kernels_without_their_scale_are_refused(old, new, policy, tmp_path) -> None:
    path = tfckpt.Checkpoint(model=old(1)).write(str(tmp_path / "ckpt"))
    model = new(2)
    before = model.get_weights()
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, model=model, policy={"api": "read", **policy})
    said = " ".join(str(refused.value).split())
    assert "only one of them is quantized → restore, then call `quantize`" in said
    assert "on_dtype_mismatch" not in said
    assert "may be" not in said
    for value, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_new_low_rank_factors_of_a_restored_kernel_have_no_effect(tmp_path) -> None:
    old, new = build(1), build(2)
    path = tfckpt.Checkpoint(model=old).write(str(tmp_path / "ckpt"))
    new.layers[0].enable_lora(2)
    a, b = new.layers[0].trainable_variables[-2:]
    kept, _ = a.numpy(), b.assign(np.ones(b.shape))
    with pytest.raises(tfckpt.RefusedError, match="lora_kernel_b"):
        tfckpt.restore(path, model=new, policy={"on_missing": "error"})
    assert "low-rank factors" in str(tfckpt.restore(path, model=new))
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(np.array(new(x)), np.array(old(x)))
    np.testing.assert_array_equal(a, kept)  # of two zeros, neither would learn


def test_factors_whose_kernel_stays_are_asked_for(tmp_path) -> None:
    new = build(2)
    path = tfckpt.Checkpoint(model=build(1)).write(str(tmp_path / "ckpt"))
    new.layers[0].enable_lora(2)
    with pytest.raises(tfckpt.RefusedError, match="lora_kernel_b"):
        tfckpt.restore(path, model=new, policy={"exclude": ["model/first/kernel"]})


X = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(8, 3)


@pytest.fixture
def gan(flavour) -> Any:
    class GAN(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.generator = flavour.Sequential(
                [flavour.Input((3,)), flavour.layers.Dense(3, name="g")]
            )
            self.discriminator = flavour.Sequential(
                [flavour.Input((3,)), flavour.layers.Dense(1, name="d")]
            )
            self.built = True

        def compile(self, rate: float = 0.01) -> None:
            super().compile()
            self.d_optimizer = flavour.optimizers.Adam(rate)
            self.g_loss_metric = flavour.metrics.Mean(name="g_loss")

        @property
        def metrics(self) -> list[Any]:
            return [self.g_loss_metric]

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.discriminator(self.generator(data)) ** 2)
            variables = self.discriminator.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.d_optimizer.apply_gradients(zip(gradients, variables, strict=True))
            self.g_loss_metric.update_state(loss)
            return {"g_loss": self.g_loss_metric.result()}

    return GAN


def trained(model: Any) -> Any:
    model.compile()
    model.fit(X, batch_size=4, verbose=0)
    return model


def weights(model: Any) -> list[np.ndarray]:
    return [v.numpy() for part in (model.generator, model.discriminator) for v in part.weights]


@pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])
def test_its_weights_are_restored_before_it_is_compiled(gan, writer, tmp_path) -> None:
    saved = trained(gan())
    path = writer.Checkpoint(model=saved).save(str(tmp_path / "ckpt"))
    parts = ["model/generator/**", "model/discriminator/**"]
    for restore in (
        lambda model: tfckpt.restore(path, model, include=parts),
        lambda model: tfckpt.Checkpoint(model=model).restore(path).expect_partial(),
    ):
        model = gan()
        restore(model)
        for old, new in zip(weights(saved), weights(model), strict=True):
            np.testing.assert_array_equal(old, new)


def test_another_error_of_the_property_is_raised(flavour) -> None:
    class Net(flavour.Model):
        @property
        def metrics(self) -> list[Any]:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tfckpt.inventory(model=Net())


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


def test_keras_distribution_changes_nothing(tmp_path: Path) -> None:
    run(KERAS, tmp_path)
