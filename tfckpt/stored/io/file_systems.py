"""Which file system serves a path: the local one, one of TensorFlow's, or one of ``fsspec``.

TensorFlow's is taken where it has the scheme, since what only TensorFlow can write needs no copy
there: ``gs://`` always, ``s3://`` in a program that has imported ``tensorflow_io``. Everything else
is an object store of ``fsspec``, which needs no TensorFlow.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from tfckpt.stored.io.files import LOCAL, SCRATCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfckpt.stored.io.files import Files

_TENSORFLOW = "tensorflow"
_COME_WITH_IT = ("file", "gs", "ram")  # further ones are registered by packages that import it


def choose_files(
    path: str, of_tensorflow: Callable[[str], Files | None], *, durable: bool = True
) -> Files:
    """The file system of a local path or ``scheme://…``."""
    scheme, separator, _ = path.partition("://")
    if not separator:
        return LOCAL if durable else SCRATCH
    may_have_it = sys.modules.get(_TENSORFLOW) is not None or (
        scheme in _COME_WITH_IT and importlib.util.find_spec(_TENSORFLOW) is not None
    )
    if may_have_it and (files := of_tensorflow(scheme)) is not None:
        return files
    from tfckpt.stored.io.object_store import object_store  # a local path needs nothing of it

    return object_store(scheme)
