r"""Paths from callers, and paths that TensorFlow can read.

TensorFlow treats ``*``, ``?``, ``[`` and ``\`` in a prefix as a pattern
(tensorflow/core/util/tensor_slice_reader.cc), and so finds no checkpoint in ``run[1]``. What only
TensorFlow can restore is read there through symbolic links with another name.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from absl import logging

from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.stored.io.files import absolute, join

if TYPE_CHECKING:
    from tfckpt.errors import TfckptError

_PATTERN = set("*?[\\")


def without_pattern(prefix: str) -> str:
    """The prefix, or one with links to the same files, which exist until the process exits.

    >>> without_pattern("runs/flowers/ckpt-1")
    'runs/flowers/ckpt-1'
    """
    if not _PATTERN & set(prefix):
        return prefix
    if "://" in prefix:
        message = "TensorFlow must read this file, and treats *, ?, [ and \\ as a pattern"
        raise UnsupportedCheckpointError(
            message, path=prefix, hint="Copy it to a path without these characters."
        )
    return _linked(absolute(prefix))


def _linked(prefix: str) -> str:
    directory, name = os.path.split(prefix)
    directory_of_links = tempfile.mkdtemp(prefix="tfckpt-")
    atexit.register(shutil.rmtree, directory_of_links, ignore_errors=True)
    alias = os.path.join(directory_of_links, "ckpt")  # noqa: PTH118  a string, as the prefix
    for file in os.listdir(directory):  # noqa: PTH208
        if file.startswith((f"{name}.", f"{name}-")):
            os.symlink(os.path.join(directory, file), alias + file.removeprefix(name))  # noqa: PTH118, PTH211
    return alias


def absolute_prefix(prefix: str) -> str:
    """The absolute prefix; its name may be empty: `run/`."""
    directory, name = os.path.split(prefix)
    return absolute(prefix) if name or "://" in prefix else join(absolute(directory), "")


def eager_source(path: Any, method: str) -> str | None:
    """The path to restore from as a string; None in graph mode, and for None with a warning."""
    if path is None and tf.executing_eagerly():
        logging.warning(
            "%s(None): no checkpoint was given, so nothing is restored and training starts from "
            "the initial values (tf.train.latest_checkpoint returns None if it finds none)",
            method,
        )
    return _eager(path)


def eager_prefix(path: Any, argument: str) -> str | None:
    """The path to save to as a string; None in graph mode."""
    if path is None:  # TensorFlow would write a checkpoint called `None`
        raise TypeError(f"{argument} must be a path such as 'run/ckpt', not None")
    text = _eager(path)
    if text and "://" in text and "/" not in text.partition("://")[2]:
        raise ValueError(f"{argument} must be a path such as 'gs://bucket/ckpt', not {text!r}")
    return text


def _eager(path: Any) -> str | None:
    if path is None or not tf.executing_eagerly():
        return None
    return os.fsdecode(path.numpy() if isinstance(path, tf.Tensor) else path)


def also(error: TfckptError, theirs: tf.errors.OpError) -> TfckptError:
    """The same error (also an OSError) with TensorFlow's class as a base, for ``except tf.errors``.

    ``theirs`` is what TensorFlow raises, or would raise, for the same problem.
    """
    classes: Any = type(error), type(theirs)
    return _both(*classes)(error, theirs)  # type: ignore[no-any-return]


@functools.cache
def _both(ours: Any, theirs: Any) -> Any:
    def __init__(self: Any, error: TfckptError, cause: Any) -> None:  # noqa: N807 (it becomes one)
        theirs.__init__(self, cause.node_def, cause.op, str(error))
        OSError.__init__(self, str(error))  # last: OpError clears the arguments
        self.__dict__.update(vars(error))

    body = {"__init__": __init__, "__module__": ours.__module__, "__doc__": ours.__doc__}
    return type(ours.__name__, (ours, theirs), body)
