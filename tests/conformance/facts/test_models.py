"""F7, F8 and F16: what a model holds and is not saved, and what is not built or not used.

TensorFlow does not see what a Keras 3 object holds in a list or a dict, restores a model that is
not built yet halfway, and complains of what is left over when the model is gone.
"""

from __future__ import annotations

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.models import MODELS, chain, in_turn
from zoo.values import fill, read

import tfckpt

BOTH = pytest.mark.parametrize("library", [tf.train, tfckpt], ids=["plain", "tfckpt"])


def keys(prefix):
    return {name for name, _ in tf.train.list_variables(prefix)} - {
        "_CHECKPOINTABLE_OBJECT_GRAPH",
        "save_counter/.ATTRIBUTES/VARIABLE_VALUE",
    }


@pytest.mark.parametrize(
    ("build", "kept", "lost"),
    [("containers", 4, 30), ("own_weights", 4, 5), ("seeded", 4, 5), ("recurrent", 17, 13)],
)
def test_f7_a_part_is_saved_and_called_consumed(build, kept, lost, tmp_path):
    source, target = fill(1, MODELS[build](keras)), fill(2, MODELS[build](keras))
    checkpoint = tf.train.Checkpoint(model=source)
    plain = checkpoint.save(str(tmp_path / "plain"))
    checkpoint.restore(plain).assert_consumed()
    assert len(keys(plain)) == kept
    assert len(source.variables) >= kept + lost  # Keras 3.1 has a seed more

    path = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    assert keys(plain) <= keys(path)  # it is an ordinary checkpoint
    tf.train.Checkpoint(model=target).restore(path).assert_existing_objects_matched()
    tfckpt.Checkpoint(model=target).restore(path).assert_consumed()
    np.testing.assert_equal(read(target), read(source))


@BOTH
def test_f7_metrics(flavour, library, tmp_path):
    model = flavour.Sequential([flavour.Input((3,)), flavour.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["accuracy"], run_eagerly=True)
    model.train_on_batch(np.ones((2, 3)), np.ones((2, 1)))
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    for number, variable in enumerate(metrics):
        variable.assign(number)
    checkpoint = library.Checkpoint(model=model, optimizer=model.optimizer)
    prefix = checkpoint.save(str(tmp_path / "ckpt"))
    for variable in metrics:
        variable.assign(7.0)
    checkpoint.restore(prefix).assert_consumed()
    remembered = [0.0, 1.0, 2.0, 3.0] if library is tfckpt else [7.0] * 4
    assert [float(variable.numpy()) for variable in metrics] == remembered


def unbuilt(k):
    first, second = lambda: k.layers.Dense(3), lambda: k.layers.Dense(3)
    return in_turn(k.Model, first=first, second=second)(), k.optimizers.Adam()


@BOTH
def test_f8_an_unbuilt_model(flavour, library, tmp_path):
    """https://github.com/tensorflow/tensorflow/issues/82209."""
    x = np.ones((1, 3), "float32")
    source, old = unbuilt(flavour)
    source(x)
    old.build(source.trainable_variables)
    fill(1, source, old)
    prefix = tf.train.Checkpoint(model=source, optimizer=old).save(str(tmp_path / "ckpt"))
    target, optimizer = unbuilt(flavour)
    checkpoint = library.Checkpoint(model=target, optimizer=optimizer)
    if library is tf.train:
        checkpoint.restore(prefix).assert_existing_objects_matched()
        if flavour is keras:  # which restores half of it
            assert not np.allclose(target(x), source(x))
            assert len(target.variables) == len(source.variables) + 1
        return
    with pytest.raises(tfckpt.NotBuiltError):
        checkpoint.restore(prefix)
    assert target.variables == []
    target(x)
    assert len(target.variables) == 4
    checkpoint.restore(prefix).assert_consumed()  # it builds the optimizer
    np.testing.assert_equal(read(target, optimizer), read(source, old))


@pytest.fixture
def said(caplog):
    """``said("telltale")``: whether TensorFlow has warned about that name so far."""
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    yield lambda name: any(name in record.getMessage() for record in caplog.records)
    logger.removeHandler(caplog.handler)


def test_f16_a_value_that_is_left_over(flavour, said, tmp_path):
    source = tf.train.Checkpoint(model=chain(flavour, "a"), telltale=tf.Variable(1.0))
    prefix = source.save(str(tmp_path / "ckpt"))
    model = chain(flavour, "a")
    checkpoint = tf.train.Checkpoint(model=model)
    status = checkpoint.restore(prefix)
    assert not said("telltale")
    del status, checkpoint, model
    gc.collect()
    assert said("telltale")  # when the model is gone

    checkpoint = tfckpt.Checkpoint(model=chain(flavour, "a"), missing=tf.Variable(2.0))
    report = checkpoint.restore(prefix).report
    found = {step.name or step.source: step.status.name for step in report.plan.steps}
    assert found["telltale"] == "UNEXPECTED"
    assert found["missing"] == "MISSING"
    assert found["model/a/kernel"] == "LOADED"
    assert "telltale" in str(report)
