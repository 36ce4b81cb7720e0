"""One way to open whatever holds values: the format is told from the files, never from a suffix.

What is an index with data files beside it is opened as such whatever else has the name; of
everything else the first and last bytes decide (:mod:`tfckpt.stored.recognise`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.stored.artefact import StoredCheckpoint
from tfckpt.stored.bundle_names import open_bundle
from tfckpt.stored.files import LOCAL, Files
from tfckpt.stored.keras.files import open_archive, open_hdf5, open_shards
from tfckpt.stored.recognise import Format, recognise
from tfckpt.stored.safetensors import open_safetensors
from tfckpt.stored.saved_model import open_saved_model
from tfckpt.stored.tf1.saver_v1 import open_saver_v1

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tfckpt.records import Root

__all__ = ["StoredCheckpoint", "open_checkpoint"]

_OPENERS: Mapping[Format, Callable[..., StoredCheckpoint]] = {
    Format.BUNDLE: open_bundle,
    Format.SAVED_MODEL: open_saved_model,
    Format.SAVER_V1: open_saver_v1,
    Format.HDF5: open_hdf5,
    Format.ARCHIVE: open_archive,
    Format.SHARDS: open_shards,
    Format.SAFETENSORS: open_safetensors,
}


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
    return _OPENERS[recognise(path, files)](path, roots=roots, bases=bases, files=files)
