"""Plain trackables beside Keras objects, restored when their variables come to exist."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tfckpt


@pytest.fixture
def optimizer(flavour):
    return flavour.optimizers.SGD()


def test_a_variable_that_a_module_gets_later_is_restored(optimizer, tmp_path) -> None:
    module = tf.Module()
    module.v = tf.Variable(7.0)
    path = tfckpt.Checkpoint(module=module, optimizer=optimizer).save(tmp_path / "ckpt")
    later = tf.Module()
    later.w = tf.Variable(1.0)
    status = tfckpt.Checkpoint(module=later, optimizer=optimizer).restore(path)
    later.v = tf.Variable(0.0)
    assert (float(later.v), float(later.w)) == (7.0, 1.0)
    with pytest.raises(AssertionError, match="module/w"):
        status.assert_existing_objects_matched()


def test_a_variable_given_after_the_restore_is_restored(optimizer, tmp_path) -> None:
    saved = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(3), late=tf.Variable(7.0))
    path = saved.save(tmp_path / "ckpt")
    checkpoint = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(0))
    with pytest.raises(AssertionError, match="late"):
        checkpoint.restore(path).assert_consumed()
    status = checkpoint.restore(path)
    checkpoint.late = tf.Variable(0.0)
    assert float(checkpoint.late) == 7.0
    status.assert_consumed()


def test_nothing_is_restored_late_after_it_was_taken_back(optimizer, tmp_path) -> None:
    saved = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(3), late=tf.Variable(7.0))
    path = saved.save(tmp_path / "ckpt")
    checkpoint = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(0), more=tf.Variable(1.0))
    with pytest.raises(AssertionError, match="every variable has its old value again"):
        checkpoint.restore(path).assert_existing_objects_matched()
    checkpoint.late = tf.Variable(0.0)
    assert float(checkpoint.late) == 0.0
    assert int(checkpoint.step) == 0


def test_a_keras_object_given_later_is_not_restored_and_that_is_said(
    flavour, optimizer, tmp_path, caplog
) -> None:
    def model():
        return flavour.Sequential([flavour.Input((2,)), flavour.layers.Dense(1, name="a")])

    saved = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(3), net=model(), other=model())
    path = saved.save(tmp_path / "ckpt")
    checkpoint = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(0), net=model())
    checkpoint.restore(path).expect_partial()
    late = model()
    before = [value.copy() for value in late.get_weights()]
    checkpoint.other = late
    assert all((old == new).all() for old, new in zip(before, late.get_weights(), strict=True))
    assert "call restore again" in caplog.text


def test_what_comes_late_is_of_the_checkpoint_that_was_restored_last(optimizer, tmp_path) -> None:
    paths = []
    for value in (1.0, 2.0):
        late, two = tf.Variable(value), {"step": tf.Variable(3), "other": tf.Variable(4)}
        given = {"optimizer": optimizer} if value == 1.0 else {}
        paths.append(tfckpt.Checkpoint(**two, **given, late=late).save(tmp_path / f"{value}"))
    checkpoint = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(0))
    checkpoint.restore(paths[0])
    del checkpoint.optimizer
    checkpoint.restore(paths[1])
    checkpoint.late = tf.Variable(0.0)
    assert float(checkpoint.late) == 2.0


@pytest.mark.parametrize("kind", [tf.train.Checkpoint, tfckpt.Checkpoint])
@pytest.mark.parametrize("method", ["assert_consumed", "assert_existing_objects_matched"])
def test_a_plain_variable_that_came_since_and_got_no_value_is_noticed(
    kind, method, tmp_path
) -> None:
    module = tf.Module()
    module.v = tf.Variable(7.0)
    path = kind(module=module).save(str(tmp_path / "ckpt"))
    module.v.assign(0.0)
    status = kind(module=module).restore(path)
    getattr(status, method)()
    module.w = tf.Variable(1.0)
    with pytest.raises(AssertionError):
        getattr(status, method)()
    assert (float(module.v), float(module.w)) == (7.0, 1.0)
    status.assert_nontrivial_match()


@pytest.mark.parametrize("kind", [tf.train.Checkpoint, tfckpt.Checkpoint])
@pytest.mark.parametrize(
    "made",
    [
        lambda: iter(tf.data.Dataset.range(3)),
        lambda: tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1),
    ],
    ids=["iterator", "table"],
)
def test_an_object_that_the_checkpoint_does_not_have_is_noticed(
    kind, made, optimizer, tmp_path
) -> None:
    path = kind(optimizer=optimizer, step=tf.Variable(3)).save(str(tmp_path / "ckpt"))
    checkpoint = kind(optimizer=optimizer, step=tf.Variable(0), object=made())
    with pytest.raises(AssertionError):
        checkpoint.restore(path).assert_existing_objects_matched()
    with pytest.raises(AssertionError):
        checkpoint.restore(path).assert_consumed()
