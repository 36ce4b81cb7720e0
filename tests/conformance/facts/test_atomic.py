"""F15 and F16: a restore that fails halfway, and one that complains when it is too late."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt


@pytest.fixture
def prefix(flavour, stack, fill, tmp_path) -> str:
    """A plain checkpoint of two layers, three wide."""
    source = stack(flavour, ["a", "b"])
    fill(1, source)
    return tf.train.Checkpoint(model=source).save(str(tmp_path / "ckpt"))


@pytest.fixture
def changed(flavour, fill) -> Any:
    """``changed(units=2)``: the same model, but for its second layer."""

    def build(**second: Any) -> Any:
        inputs = flavour.Input((3,))
        outputs = flavour.layers.Dense(3, name="a")(inputs)
        outputs = flavour.layers.Dense(**{"units": 3, "name": "b", **second})(outputs)
        model = flavour.Model(inputs, outputs)
        fill(2, model)
        return model

    return build


def test_f15_plain_tensorflow_overwrites_before_it_meets_a_shape(prefix, changed, values) -> None:
    model = changed(units=2)
    before = values(model)
    with pytest.raises(ValueError, match="incompatible tensor with shape"):
        tf.train.Checkpoint(model=model).restore(prefix)
    assert not np.array_equal(values(model)[0], before[0])


def test_f15_plain_tensorflow_meets_a_dtype_first(prefix, changed, untouched) -> None:
    model = changed(dtype="float64")
    with untouched(model), pytest.raises(tf.errors.InvalidArgumentError):
        tf.train.Checkpoint(model=model).restore(prefix)


@pytest.mark.parametrize("second", [{"units": 2}, {"dtype": "float64"}], ids=["shape", "dtype"])
def test_f15_tfckpt_changes_nothing(prefix, changed, untouched, second) -> None:
    model = changed(**second)
    with untouched(model), pytest.raises(tfckpt.RefusedError) as refusal:
        tfckpt.Checkpoint(model=model).restore(prefix)
    assert "model/b/kernel" in str(refusal.value)


def test_f15_plain_tensorflow_does_not_take_one_number_for_a_scalar(tmp_path) -> None:
    prefix = tf.train.Checkpoint(x=tf.Variable([1.0])).write(str(tmp_path / "ckpt"))
    with pytest.raises(ValueError, match="incompatible tensor with shape"):
        tf.train.Checkpoint(x=tf.Variable(0.0)).read(prefix)


def test_f15_tfckpt_does_not_take_one_number_for_a_scalar(untouched, tmp_path) -> None:
    source = tf.train.Checkpoint(x=tf.Variable([1.0]), y=tf.Variable(2.0))
    prefix = source.write(str(tmp_path / "ckpt"))
    x, y = tf.Variable(0.0), tf.Variable(0.0)
    with untouched(x, y), pytest.raises(tfckpt.RefusedError):
        tfckpt.Checkpoint(x=x, y=y).read(prefix)


@pytest.fixture
def said(caplog) -> Any:
    """``said("telltale")``: whether TensorFlow has warned about that name so far."""
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    yield lambda name: any(name in record.getMessage() for record in caplog.records)
    logger.removeHandler(caplog.handler)


@pytest.fixture
def telltale(flavour, stack, tmp_path) -> str:
    """A plain checkpoint of a layer, and of a value that nothing will ask for."""
    source = tf.train.Checkpoint(model=stack(flavour, ["a"]), telltale=tf.Variable(1.0))
    return source.save(str(tmp_path / "ckpt"))


def test_f16_plain_tensorflow_warns_when_the_model_is_gone(flavour, stack, telltale, said) -> None:
    model = stack(flavour, ["a"])
    checkpoint = tf.train.Checkpoint(model=model)
    status = checkpoint.restore(telltale)
    assert not said("telltale")
    del status, checkpoint, model
    gc.collect()
    assert said("telltale")


def test_f16_tfckpt_reports_when_it_restores(flavour, stack, telltale) -> None:
    missing = tf.Variable(2.0)
    checkpoint = tfckpt.Checkpoint(model=stack(flavour, ["a"]), missing=missing)
    report = checkpoint.restore(telltale).report
    status = {step.name or step.source: step.status.name for step in report.plan.steps}
    assert status["telltale"] == "UNEXPECTED"
    assert status["missing"] == "MISSING"
    assert status["model/a/kernel"] == "LOADED"
    assert "telltale" in str(report)
