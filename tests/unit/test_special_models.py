"""Models under strategies, on several devices, quantized, and those whose metrics compile makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from zoo.restores import BATCH, WRITERS, refused, same, stack, written

import tfckpt

CAST = {"on_dtype_mismatch": "cast", "on_missing": "warn", "on_unexpected": "ignore"}


def build(seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    return stack(keras, "first", "last")


def quantized(seed: int) -> Any:
    model = build(seed)
    model.quantize("int8")
    return model


@pytest.mark.parametrize(("old", "new"), [(build, quantized), (quantized, build)])
def test_kernels_without_their_scale_are_refused(old, new, tmp_path) -> None:
    path = written(old(1), "tfckpt", tmp_path)
    for policy in ({}, CAST):
        said = refused(path, new(2), api="read", **policy)
        assert "only one of them is quantized → restore, then call `quantize`" in said
        assert "on_dtype_mismatch" not in said
        assert "may be" not in said


def test_new_low_rank_factors_of_a_restored_kernel_have_no_effect(tmp_path) -> None:
    old, new = build(1), build(2)
    path = written(old, "tfckpt", tmp_path)
    new.layers[0].enable_lora(2)
    a, b = new.layers[0].trainable_variables[-2:]
    kept, _ = a.numpy(), b.assign(np.ones(b.shape))
    # those whose kernel stays are asked for
    assert "lora_kernel_b" in refused(path, new, exclude=["model/first/kernel"])
    assert "lora_kernel_b" in refused(path, new, on_missing="error")
    assert "low-rank factors" in str(tfckpt.restore(path, model=new))
    same([new(BATCH)], [old(BATCH)])
    np.testing.assert_array_equal(a, kept)  # of two zeros, neither would learn


@WRITERS
def test_weights_of_a_gan_are_restored_before_it_is_compiled(flavour, writer, tmp_path) -> None:
    class GAN(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.generator, self.discriminator = stack(flavour, "g"), stack(flavour, "d")
            self.built = True

        def compile(self) -> None:
            super().compile()
            self.d_optimizer = flavour.optimizers.Adam(0.01)
            self.d_optimizer.build(self.discriminator.trainable_variables)
            self.g_loss_metric = flavour.metrics.Mean(name="g_loss")
            self.g_loss_metric.update_state(1.0)

        @property
        def metrics(self) -> list[Any]:
            return [self.g_loss_metric]

    saved = GAN()
    saved.compile()
    path = writer.Checkpoint(model=saved).save(str(tmp_path / "ckpt"))
    parts = ["model/generator/**", "model/discriminator/**"]
    for restore in (
        lambda model: tfckpt.restore(path, model, include=parts),
        lambda model: tfckpt.Checkpoint(model=model).restore(path).expect_partial(),
    ):
        model = GAN()
        restore(model)
        for part in ("generator", "discriminator"):
            same(getattr(model, part).weights, getattr(saved, part).weights)


# Several devices are made before TensorFlow begins: in a process of their own.
DEVICES = """
import importlib
import pathlib
import sys
import keras
import numpy as np
import tensorflow as tf
import tfckpt

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
x, y = np.ones((8, 4), "float32"), np.zeros((8, 2), "float32")
"""
MIRRORED = """
def replicas(model):
    variables = [*model.trainable_variables, *model.optimizer.variables]
    inner = [getattr(v, "_value", v) for v in variables]
    return [[part.numpy() for part in getattr(v, "values", [v, v])] for v in inner]

def every_replica_is_restored(k, directory):
    again = {"directory": directory, "if_none": "initialize"}
    config = {
        "version": 1,
        "manager": {"directory": directory, "save": {"every_steps": 1}},
        "restore": {**again, "policy": {"verify": "values"}},
    }

    def build(seed):
        k.utils.set_random_seed(seed)
        with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
            model = k.Sequential([k.Input((4,)), k.layers.Dense(3), k.layers.Dense(2)])
            model.compile(k.optimizers.Adam(0.01), "mse", jit_compile=False)
            model.optimizer.build(model.trainable_variables)
        return model, tfckpt.from_config(config, model=model)

    model, run = build(1)
    model.fit(x, y, batch_size=4, verbose=0, callbacks=[run.callback(verbose=0)])
    assert [path[-6:] for path in run.manager.checkpoints] == ["ckpt-1", "ckpt-2"]
    expected = replicas(model)
    model, run = build(2)
    report = run.restore()
    assert report.step == 2, report
    np.testing.assert_equal(replicas(model), expected)
    for one, other in replicas(model):
        np.testing.assert_array_equal(one, other)
    reset = {"path": report.path, "policy": {"optimizer": {"slots": "reset"}}}
    tfckpt.restore({"version": 1, "restore": reset}, model=model)
    slots = [pair for pair in replicas(model) if pair[0].ndim][4:]
    assert slots and not any(part.any() for pair in slots for part in pair)

for flavor in ("keras", "tf_keras"):
    every_replica_is_restored(importlib.import_module(flavor), f"{sys.argv[1]}/{flavor}")
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

def build(distribution, number):
    keras.utils.set_random_seed(number)
    keras.distribution.set_distribution(distribution)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    for variable in model.optimizer.variables[2:]:
        variable.assign(np.full(variable.shape, float(number)))
    return model

for number, saved in enumerate(DISTRIBUTIONS, 1):
    model = build(saved, number)
    checkpoint = tfckpt.Checkpoint(model=model, optimizer=model.optimizer)
    path = checkpoint.write(f"{sys.argv[1]}/{number}")
    for into in (saved, DISTRIBUTIONS[number % 3]):
        again = build(into, 7)
        status = tfckpt.Checkpoint(model=again, optimizer=again.optimizer).read(path)
        status.assert_consumed()
        for a, b in zip(model.variables, again.variables, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        for a, b in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
keras.distribution.set_distribution(None)
"""
DTENSOR = """
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
    lambda: tfckpt.restore(path, **objects),
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
"""


def test_replicas_and_distributions_are_restored_and_dtensors_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DEVICES + MIRRORED + KERAS + DTENSOR, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"},
    )
    assert done.returncode == 0, done.stderr
