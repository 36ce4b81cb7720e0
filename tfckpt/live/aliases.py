r"""Paths that TensorFlow can read from.

TensorFlow takes ``*``, ``?``, ``[`` and ``\`` in the prefix that it opens for a pattern
(tensorflow/core/util/tensor_slice_reader.cc), and then finds no checkpoint in ``run[1]``. What only
TensorFlow restores is read there through links of another name.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_PATTERN = set("*?[\\")


def readable(prefix: str) -> str:
    """The prefix itself, or one by which TensorFlow finds the same files until the process ends.

    >>> readable("runs/flowers/ckpt-1")
    'runs/flowers/ckpt-1'
    """
    return _linked(os.path.abspath(prefix)) if _PATTERN & set(prefix) else prefix  # noqa: PTH100


def _linked(prefix: str) -> str:
    directory, name = os.path.split(prefix)
    place = tempfile.mkdtemp(prefix="tfckpt-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    alias = os.path.join(place, "ckpt")  # noqa: PTH118  text, as the prefix
    for file in os.listdir(directory):  # noqa: PTH208
        if file.startswith(f"{name}."):
            os.symlink(os.path.join(directory, file), alias + file.removeprefix(name))  # noqa: PTH118, PTH211
    return alias
