"""Detects the format of a checkpoint from file names and the first and last bytes of a file.

A checkpoint of several files is opened by its prefix. The path of one of these files is refused,
and the error names the prefix.
"""

from __future__ import annotations

import contextlib
from enum import Enum
from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.bundles.bundle import index_path
from tfckpt.stored.bundles.encoding.table import looks_like_table
from tfckpt.stored.io.files import join
from tfckpt.stored.paths.wrong_paths import SAVED_MODELS, SUFFIX, VARIABLES, shards_of

if TYPE_CHECKING:
    from tfckpt.stored.io.files import Files

_PEEK = 16
_KERAS = (".h5", ".hdf5", ".keras", ".weights.json")


class Format(Enum):
    """A format with a reader of its own."""

    BUNDLE = "bundle"
    SAVED_MODEL = "saved_model"
    SAVER_V1 = "saver_v1"
    HDF5 = "hdf5"
    ARCHIVE = "archive"
    SHARDS = "shards"
    SAFETENSORS = "safetensors"


def detect(path: str, files: Files) -> Format:
    """The format of a path; ``BUNDLE``, whose reader explains the problem, where none matches.

    Raises:
        DamagedCheckpointError: an empty file with a suffix of Keras.
    """
    if files.exists(index_path(path)):
        inside = path.endswith(VARIABLES) and is_saved_model(path.removesuffix(VARIABLES), files)
        return Format.SAVED_MODEL if inside else Format.BUNDLE
    if is_saved_model(path, files):
        return Format.SAVED_MODEL
    if SUFFIX.search(path):
        return Format.BUNDLE
    content = _ends(path, files)
    if content == (b"", b"") and path.endswith(_KERAS):
        hint = "The writer may have been interrupted; save or copy the file again."
        raise DamagedCheckpointError("is an empty file", path=path, hint=hint)
    content = content or _ends(next(iter(shards_of(path, files)), ""), files)
    return Format.BUNDLE if content is None else _by_content(*content)


def _by_content(head: bytes, tail: bytes) -> Format:
    from tfckpt.stored.formats.safetensors import looks_like_safetensors
    from tfckpt.stored.keras import archive, hdf5

    magics = {hdf5.MAGIC: Format.HDF5, archive.MAGIC: Format.ARCHIVE, b"{": Format.SHARDS}
    for magic, format_ in magics.items():
        if head.lstrip().startswith(magic):
            return format_
    if looks_like_safetensors(head):
        return Format.SAFETENSORS
    return Format.SAVER_V1 if looks_like_table(tail) else Format.BUNDLE


def is_saved_model(directory: str, files: Files) -> bool:
    return any(files.exists(join(directory, name)) for name in SAVED_MODELS)


def _ends(path: str, files: Files) -> tuple[bytes, bytes] | None:
    """The first and last bytes of a file; None where no file can be read."""
    suppress = contextlib.suppress(OSError, CheckpointError)
    with suppress, contextlib.closing(files.open_read(path)) as handle:
        return handle.pread(0, _PEEK), handle.pread(max(handle.size - _PEEK, 0), _PEEK)
    return None
