"""One directory, opened by TensorFlow's manager and by ours."""

from __future__ import annotations

import tensorflow as tf

import tfckpt


def save(manager, value: tf.Variable, numbers: range) -> None:
    for number in numbers:
        value.assign(number)
        manager.save()


def test_plain_tensorflow_opens_our_directory(tmp_path) -> None:
    directory, value = str(tmp_path / "run"), tf.Variable(0)
    ours = tfckpt.CheckpointManager(tfckpt.Checkpoint(value=value), directory, max_to_keep=2)
    save(ours, value, range(1, 4))
    assert tf.train.latest_checkpoint(directory) == ours.latest_checkpoint
    other = tf.Variable(0)
    theirs = tf.train.CheckpointManager(tf.train.Checkpoint(value=other), directory, 2)
    assert theirs.checkpoints == ours.checkpoints
    assert theirs.restore_or_initialize() == ours.latest_checkpoint
    assert other.numpy() == 3
    assert theirs.save().endswith("ckpt-4")


def test_we_open_the_directory_of_plain_tensorflow_and_delete_nothing(tmp_path) -> None:
    directory, value = str(tmp_path / "run"), tf.Variable(0)
    theirs = tf.train.CheckpointManager(tf.train.Checkpoint(value=value), directory, None)
    save(theirs, value, range(1, 4))
    value.assign(0)
    ours = tfckpt.CheckpointManager(tfckpt.Checkpoint(value=value), directory, max_to_keep=1)
    assert ours.checkpoints == theirs.checkpoints
    assert ours.restore_or_initialize() == theirs.latest_checkpoint
    assert value.numpy() == 3
    save(ours, value, range(4, 5))
    assert [path[-6:] for path in ours.checkpoints] == ["ckpt-1", "ckpt-2", "ckpt-3", "ckpt-4"]
    assert tf.train.latest_checkpoint(directory) == ours.latest_checkpoint
