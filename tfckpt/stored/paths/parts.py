"""Which files belong to a checkpoint, by their names."""

from __future__ import annotations

import os
import re

from tfckpt.stored.paths.wrong_paths import DATA

_NOT_A_SAVERS = re.compile(
    rf".*({DATA}|\.index|\.tfckpt\.(?:json|mark|draft|part)|\.[0-9a-f]{{8}}\.tmp|_temp)",
    re.DOTALL,
)


def is_part(file: str, base: str) -> bool:
    """Whether a file is a data file of a checkpoint, or may come from one of its registered savers.

    These receive ``<prefix>-<name of the saver>`` to write to (``registered_saver_filename`` in
    tensorflow/python/checkpoint/functional_saver.py), or the prefix.

    >>> is_part("ckpt-1.data-00000-of-00001", "ckpt-1"), is_part("../ckpt-1-x", "ckpt-1")
    (True, False)
    >>> is_part("ckpt-1.json", "ckpt-1"), is_part("ckpt-12.json", "ckpt-1")
    (True, False)
    """
    if re.fullmatch(re.escape(base) + DATA, file):
        return True
    plain = os.path.split(file)[1] == file and not {"/", "\0"} & set(file)
    ours = file.startswith(base) and not file[len(base) : len(base) + 1].isalnum()
    return plain and ours and file != base and _NOT_A_SAVERS.fullmatch(file) is None
