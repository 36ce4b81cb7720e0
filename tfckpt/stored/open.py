"""Opens a checkpoint of any supported format.

The format is detected from the files (:mod:`tfckpt.stored.detect_format`), never from a suffix. A
name with an index file is a bundle, whatever other files share the name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tfckpt.core.gc_pause import gc_paused
from tfckpt.stored.detect_format import Format, detect
from tfckpt.stored.formats.checkpoint import StoredCheckpoint
from tfckpt.stored.io.files import LOCAL, Files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tfckpt.core.inventory import Root

__all__ = ["StoredCheckpoint", "open_checkpoint"]

# Imported on demand: all imports together take longer than opening a small checkpoint.
_OPENERS: Mapping[Format, tuple[str, str]] = {
    Format.BUNDLE: ("tfckpt.stored.bundle", "open_bundle"),
    Format.SAVED_MODEL: ("tfckpt.stored.saved_model", "open_saved_model"),
    Format.SAVER_V1: ("tfckpt.stored.tf1.saver_v1", "open_saver_v1"),
    Format.HDF5: ("tfckpt.stored.keras.files", "open_hdf5"),
    Format.ARCHIVE: ("tfckpt.stored.keras.files", "open_archive"),
    Format.SHARDS: ("tfckpt.stored.keras.files", "open_shards"),
    Format.SAFETENSORS: ("tfckpt.stored.formats.safetensors", "open_safetensors"),
}


@gc_paused()
def open_checkpoint(
    path: str,
    *,
    roots: Mapping[str, Root] | None = None,
    bases: Collection[str] = (),
    files: Files = LOCAL,
) -> StoredCheckpoint:
    """Open a checkpoint and name its values.

    Args:
        path: a file or directory, or the common prefix of several files: ``ckpt-1`` for
            ``ckpt-1.index``.
        roots: the objects to restore, by keyword. A recorded inventory is renamed to match them; a
            checkpoint of plain TensorFlow may need them to identify the model.
        bases: automatic layer names of the user's own layer classes.
        files: the file system.

    Raises:
        CheckpointNotFoundError: there is no checkpoint with this name.
        DamagedCheckpointError: a file is damaged or missing.
        UnsupportedCheckpointError: the format is not supported.
    """
    module, name = _OPENERS[detect(path, files)]
    opener: Callable[..., StoredCheckpoint] = getattr(importlib.import_module(module), name)
    return opener(path, roots=roots, bases=bases, files=files)
