"""F10, F12 and F14: a restore that restores nothing, and says nothing.

TensorFlow holds what finds no place for objects that may come later. Where every object is there
already, zero values are a mistake.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfckpt


@pytest.fixture
def model(flavour, stack, fill) -> Any:
    model = stack(flavour, ["a"])
    fill(1, model)
    return model


@pytest.fixture
def unrelated(tmp_path) -> str:
    """A checkpoint of something else, as a manager writes it."""
    checkpoint = tf.train.Checkpoint(other=tf.Variable(1.0))
    return tf.train.CheckpointManager(checkpoint, str(tmp_path / "other"), 3).save()


@pytest.fixture
def own(flavour, stack, fill, tmp_path) -> tuple[Any, str]:
    """A model like ``model`` with other values, and a plain checkpoint of it."""
    source = stack(flavour, ["a"])
    fill(2, source)
    return source, tf.train.Checkpoint(model=source).save(str(tmp_path / "own"))


def test_f10_plain_tensorflow_finds_an_unrelated_checkpoint_nontrivial(
    model, unrelated, untouched
) -> None:
    with untouched(model):
        tf.train.Checkpoint(model=model).restore(unrelated).assert_nontrivial_match()


def test_f10_tfckpt_refuses_an_unrelated_checkpoint(model, unrelated, untouched) -> None:
    with untouched(model), pytest.raises(tfckpt.RefusedError):
        tfckpt.Checkpoint(model=model).restore(unrelated)


def test_f10_plain_tensorflow_returns_a_path_it_restored_nothing_from(
    model, unrelated, untouched, tmp_path
) -> None:
    checkpoint = tf.train.Checkpoint(model=model)
    manager = tf.train.CheckpointManager(checkpoint, str(tmp_path / "other"), 3)
    with untouched(model):
        assert manager.restore_or_initialize() == unrelated


def test_f10_tfckpt_manager_refuses_to_start_from_nothing(
    model, unrelated, untouched, tmp_path
) -> None:
    checkpoint = tfckpt.Checkpoint(model=model)
    manager = tfckpt.CheckpointManager(checkpoint, str(tmp_path / "other"), 3)
    with untouched(model), pytest.raises(tfckpt.RefusedError):
        manager.restore_or_initialize()


@pytest.mark.parametrize("method", ["restore", "read"])
def test_f10_plain_tensorflow_takes_the_name_of_a_file(model, own, untouched, method) -> None:
    _, prefix = own
    with untouched(model):
        getattr(tf.train.Checkpoint(model=model), method)(f"{prefix}.index")


@pytest.mark.parametrize("method", ["restore", "read"])
@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
def test_f10_tfckpt_names_the_prefix_that_was_meant(model, own, untouched, method, suffix) -> None:
    _, prefix = own
    with untouched(model), pytest.raises(tfckpt.CheckpointNotFoundError) as absence:
        getattr(tfckpt.Checkpoint(model=model), method)(prefix + suffix)
    assert prefix in str(absence.value).replace(prefix + suffix, "")


def test_f10_plain_tensorflow_ignores_a_wrong_keyword(model, own, untouched) -> None:
    _, prefix = own
    with untouched(model):
        tf.train.Checkpoint(net=model).restore(prefix).expect_partial()


def test_f10_tfckpt_does_not_ignore_a_wrong_keyword(model, own, values, right_or_refused) -> None:
    source, prefix = own

    def restore() -> None:
        tfckpt.Checkpoint(net=model).restore(prefix).expect_partial()

    right_or_refused(restore, [model], values(source))


@pytest.fixture
def tf1(tmp_path) -> str:
    """What ``tf.compat.v1.train.Saver`` writes of a layer named ``a``."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [v1.get_variable("a/kernel", (3, 3)), v1.get_variable("a/bias", (3,))]
        session.run(v1.global_variables_initializer())
        return v1.train.Saver(variables).save(session, str(tmp_path / "tf1"))


@pytest.mark.parametrize("flavour", ["keras3"], indirect=True)
def test_f12_plain_tensorflow_restores_nothing_of_a_tf1_checkpoint(model, tf1, untouched) -> None:
    with untouched(model):
        tf.train.Checkpoint(model=model).restore(tf1)


def test_f12_tfckpt_restores_a_tf1_checkpoint(model, tf1) -> None:
    status = tfckpt.Checkpoint(model=model).restore(tf1).assert_consumed()
    reader = tf.train.load_checkpoint(tf1)
    for variable, key in zip(model.variables, ("a/kernel", "a/bias"), strict=True):
        np.testing.assert_array_equal(variable.numpy(), reader.get_tensor(key))
    assert status.report.counts == {"LOADED": 2}


def test_f12_tfckpt_refuses_a_tf1_checkpoint_of_something_else(
    flavour, stack, tf1, untouched
) -> None:
    model = stack(flavour, ["b"])
    with untouched(model), pytest.raises(tfckpt.RefusedError, match="no value would be restored"):
        tfckpt.Checkpoint(model=model).restore(tf1)


@pytest.fixture
def flavours(stack, fill, tmp_path) -> tuple[Any, Any, str]:
    """A model of tf_keras, the same of Keras 3, and a plain checkpoint of the first."""
    source, target = stack(tf_keras, ["a", "b"]), stack(keras, ["a", "b"])
    fill(1, source)
    fill(2, target)
    return source, target, tf.train.Checkpoint(model=source).save(str(tmp_path / "ckpt"))


def test_f14_plain_tensorflow_restores_nothing_across_flavours(flavours, untouched) -> None:
    _, target, prefix = flavours
    with untouched(target):
        tf.train.Checkpoint(model=target).restore(prefix).expect_partial()


def test_f14_plain_keras_does_not_load_a_tensorflow_checkpoint(flavours, untouched) -> None:
    _, target, prefix = flavours
    with untouched(target), pytest.raises(ValueError, match="File format not supported"):
        target.load_weights(prefix)


def test_f14_tfckpt_restores_across_flavours_or_refuses(flavours, values, right_or_refused) -> None:
    source, target, prefix = flavours

    def restore() -> None:
        tfckpt.Checkpoint(model=target).restore(prefix).expect_partial()

    right_or_refused(restore, [target], values(source))
