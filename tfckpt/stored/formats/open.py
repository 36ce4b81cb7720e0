"""Opens a checkpoint of any supported format.

The format is detected from file names and the first bytes of a file, never from a suffix.
A name with an index file is a bundle, whatever other files share the name. What no format matches
is opened as a bundle too, whose error says what it is.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tfckpt.core.gc_pause import gc_paused
from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.bundles.keys import OBJECT_GRAPH
from tfckpt.stored.formats.checkpoint import Opening, StoredCheckpoint
from tfckpt.stored.formats.tensorflow import open_bundle
from tfckpt.stored.io.explain import (
    BUNDLE,
    KERAS_FILES,
    ORBAX,
    SAVED_MODEL,
    SUFFIX,
    UNZIPPED,
    VARIABLES,
    what_is,
)
from tfckpt.stored.io.files import LOCAL, Files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tfckpt.core.inventory import Root
    from tfckpt.stored.formats.checkpoint import Address

__all__ = ["StoredCheckpoint", "open_checkpoint"]


@gc_paused()
def open_checkpoint(
    path: str,
    *,
    roots: Mapping[str, Root] | None = None,
    bases: Collection[str] = (),
    addresses: Callable[[], Mapping[str, Address]] = dict,
    files: Files = LOCAL,
) -> StoredCheckpoint:
    """Open a checkpoint and name its values."""
    return _opener(path, files)(path, Opening(roots, bases, addresses, files))


def refuse_absent(stored: StoredCheckpoint, keys: Iterable[str] = ()) -> None:
    """Raise where a data file with one of these values, or with the names, is missing."""
    names = [] if stored.record else [OBJECT_GRAPH]
    for key in (*names, *keys):
        if error := stored.values.lost(key):
            entries = stored.inventory.entries.values()
            raise error.named({entry.key: entry.name for entry in entries} | {OBJECT_GRAPH: ""})


_PEEK = 16


def _opener(path: str, files: Files) -> Callable[[str, Opening], StoredCheckpoint]:
    """What opens the format of a path; that of bundles explains the problem if none matches."""
    kind = what_is(path, files).kind
    if kind == BUNDLE and path.endswith(VARIABLES):
        inside = what_is(path.removesuffix(VARIABLES), files).kind
        kind = SAVED_MODEL if inside == SAVED_MODEL else kind
    if kind == SAVED_MODEL:
        from tfckpt.stored.formats.saved_model import open_saved_model

        return open_saved_model
    if kind == UNZIPPED:
        from tfckpt.stored.formats.keras_files import open_unzipped

        return open_unzipped
    if kind == ORBAX:
        from tfckpt.stored.formats.orbax import open_orbax

        return open_orbax
    if kind == BUNDLE or SUFFIX.search(path):
        return open_bundle
    head = _head(path, files)
    if head == b"" and path.endswith(KERAS_FILES):
        hint = "The writer may have been interrupted; save or copy the file again."
        raise DamagedCheckpointError("is an empty file", path=path, hint=hint)
    return open_bundle if head is None else _opener_of(head)


def _opener_of(head: bytes) -> Callable[[str, Opening], StoredCheckpoint]:
    # Imported on demand: all imports together take longer than opening a small checkpoint.
    from tfckpt.stored.formats import hdf5, keras_files
    from tfckpt.stored.formats.safetensors import looks_like_safetensors, open_safetensors

    magics = {
        hdf5.MAGIC: keras_files.open_hdf5,
        keras_files.MAGIC: keras_files.open_archive,
        b"{": keras_files.open_shards,
    }
    for magic, opener in magics.items():
        if head.lstrip().startswith(magic):
            return opener
    return open_safetensors if looks_like_safetensors(head) else open_bundle


def _head(path: str, files: Files) -> bytes | None:
    """The first bytes of a file; None where no file can be read."""
    suppress = contextlib.suppress(OSError, CheckpointError)
    with suppress, contextlib.closing(files.open_read(path)) as handle:
        return handle.pread(0, _PEEK)
    return None
