"""Errors that are TensorFlow's too, for code that already catches those."""

from __future__ import annotations

import tensorflow as tf

from tfckpt.errors import CheckpointNotFoundError


class NotFoundError(CheckpointNotFoundError, tf.errors.NotFoundError):  # type: ignore[misc]
    """There is no checkpoint of that name; TensorFlow's error and tfckpt's."""

    def __init__(self, error: CheckpointNotFoundError) -> None:
        tf.errors.OpError.__init__(self, None, None, str(error), tf.errors.NOT_FOUND)
        FileNotFoundError.__init__(self, str(error))  # last: OpError clears the arguments
        self.path, self.name, self.hint = error.path, error.name, error.hint
