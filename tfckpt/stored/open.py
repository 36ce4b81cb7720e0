"""One way to open whatever holds values: the format is told from the files, never from a suffix.

What is an index with data files beside it is opened as such whatever else has the name; of
everything else the first and last bytes decide (:mod:`tfckpt.stored.detect_format`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tfckpt.core.gc_pause import uncollected
from tfckpt.stored.detect_format import Format, detect
from tfckpt.stored.formats.checkpoint import StoredCheckpoint
from tfckpt.stored.io.files import LOCAL, Files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tfckpt.core.inventory import Root

__all__ = ["StoredCheckpoint", "open_checkpoint"]

# Each is imported when there is something for it to read: together they cost more than to look at a
# small checkpoint.
_OPENERS: Mapping[Format, tuple[str, str]] = {
    Format.BUNDLE: ("tfckpt.stored.bundle", "open_bundle"),
    Format.SAVED_MODEL: ("tfckpt.stored.saved_model", "open_saved_model"),
    Format.SAVER_V1: ("tfckpt.stored.tf1.saver_v1", "open_saver_v1"),
    Format.HDF5: ("tfckpt.stored.keras.files", "open_hdf5"),
    Format.ARCHIVE: ("tfckpt.stored.keras.files", "open_archive"),
    Format.SHARDS: ("tfckpt.stored.keras.files", "open_shards"),
    Format.SAFETENSORS: ("tfckpt.stored.formats.safetensors", "open_safetensors"),
}


@uncollected()
def open_checkpoint(
    path: str,
    *,
    roots: Mapping[str, Root] | None = None,
    bases: Collection[str] = (),
    files: Files = LOCAL,
) -> StoredCheckpoint:
    """Open a checkpoint and name its values.

    Args:
        path: of a file or directory; where the format has several files of one name, without what
            is behind it: ``ckpt-1`` for ``ckpt-1.index``.
        roots: what the live side was given, by keyword. A recorded inventory is put in its terms;
            and which of the objects in a checkpoint of plain TensorFlow is the model cannot always
            be told from the checkpoint alone.
        bases: automatic layer names of the live side's own classes.
        files: where the files are.

    Raises:
        CheckpointNotFoundError: there is none of that name.
        DamagedCheckpointError: it is not as it must be.
        UnsupportedCheckpointError: another format.
    """
    module, name = _OPENERS[detect(path, files)]
    opener: Callable[..., StoredCheckpoint] = getattr(importlib.import_module(module), name)
    return opener(path, roots=roots, bases=bases, files=files)
