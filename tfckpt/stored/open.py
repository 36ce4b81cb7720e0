"""Opens a checkpoint of any supported format.

The format is detected from file names and the first and last bytes of a file, never from a suffix.
A name with an index file is a bundle, whatever other files share the name. A checkpoint of several
files is opened by its prefix; the path of one of these files is refused, with the prefix.

The inventory of a bundle comes from the commit record, which must match the index. Without a record
it is derived from the files (:mod:`tfckpt.stored.unrecorded`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from tfckpt.core.gc_pause import gc_paused
from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle, index_path
from tfckpt.stored.bundles.table import looks_like_table
from tfckpt.stored.commits import record_file
from tfckpt.stored.formats.checkpoint import Opening, StoredCheckpoint
from tfckpt.stored.graphs.keys import OBJECT_GRAPH
from tfckpt.stored.io.files import LOCAL, Files, join
from tfckpt.stored.paths.wrong_paths import SAVED_MODELS, SUFFIX, VARIABLES, shards_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tfckpt.core.inventory import Inventory, Root
    from tfckpt.stored.keras_metadata.saved_model import Metadata

__all__ = ["StoredCheckpoint", "open_checkpoint"]


class Format(Enum):
    """A format with a reader of its own."""

    BUNDLE = "bundle"
    SAVED_MODEL = "saved_model"
    SAVER_V1 = "saver_v1"
    HDF5 = "hdf5"
    ARCHIVE = "archive"
    SHARDS = "shards"
    SAFETENSORS = "safetensors"


# Imported on demand: all imports together take longer than opening a small checkpoint.
_OPENERS: Mapping[Format, tuple[str, str]] = {
    Format.BUNDLE: (__name__, "open_bundle"),
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
    """Open a checkpoint and name its values."""
    module, name = _OPENERS[detect(path, files)]
    opener: Callable[..., StoredCheckpoint] = getattr(importlib.import_module(module), name)
    return opener(path, Opening(roots, bases, files))


SAVED_MODEL = "saved_model"


def open_bundle(
    prefix: str,
    opening: Opening,
    *,
    kind: str = "",
    metadata: Mapping[tuple[str, ...], Metadata] = MappingProxyType({}),
) -> StoredCheckpoint:
    """Open a checkpoint that consists of an index and data files, and name its values."""
    try:
        bundle = Bundle.open(prefix, opening.files)
    except DamagedCheckpointError as error:
        raise error.named(record_file.names_of(prefix, opening.files)) from error
    try:
        record = record_file.read(prefix, opening.files, bundle.digest)
        if record is not None:
            detected, inventory = "tfckpt", _check(record.inventory, bundle)
            if opening.roots and not _same_roots(inventory.roots, opening.roots):
                from tfckpt.stored.graphs.rename_roots import moved_to

                inventory = moved_to(inventory, opening.roots)
        else:
            from tfckpt.stored import unrecorded  # not needed where a record exists

            exported = kind == SAVED_MODEL
            detected, inventory = unrecorded.named(
                bundle, opening.roots, opening.bases, metadata, exported=exported
            )
    except BaseException:
        bundle.close()
        raise
    graphed = OBJECT_GRAPH in bundle.entries
    return StoredCheckpoint(prefix, inventory, bundle, kind or detected, record, graph=graphed)


def refuse_absent(stored: StoredCheckpoint, keys: Iterable[str] = ()) -> None:
    """Raise where a data file with one of these values, or with the names, is missing."""
    bundle, record = stored.values, stored.record
    if not isinstance(bundle, Bundle) or not bundle.lost:
        return
    if OBJECT_GRAPH in bundle.lost and record is None:
        raise bundle.lacks(OBJECT_GRAPH).named({OBJECT_GRAPH: ""})
    if key := next((key for key in keys if key in bundle.lost), None):
        entries = stored.inventory.entries.values()
        raise bundle.lacks(key).named({entry.key: entry.name for entry in entries})


def _same_roots(stored: Mapping[str, Root], live: Mapping[str, Root]) -> bool:
    """Whether the same keywords have the same names, so that no name changes."""
    pairs = ((root.component, live.get(keyword)) for keyword, root in stored.items())
    return all(component and known and component == known.component for component, known in pairs)


def _check(inventory: Inventory, bundle: Bundle) -> Inventory:
    """The inventory of a record, which must match the index."""
    index = bundle.entries
    for name, _, dtype, shape, _, key, *_ in inventory.entries.values():
        if shape is None or not key:  # stored under keys that the object chose itself
            continue
        if (indexed := index.get(key)) is None:
            message = f"the commit record lists the key {key!r}, but the index does not"
            raise DamagedCheckpointError(message, path=bundle.prefix, name=name)
        if indexed.dtype != dtype or indexed.shape != shape:
            message = (
                f"the commit record says {dtype} {shape}, "
                f"the index says {indexed.dtype} {indexed.shape}"
            )
            raise DamagedCheckpointError(message, path=bundle.prefix, name=name)
    return dataclasses.replace(inventory, source=bundle.prefix)


_PEEK = 16
KERAS_SUFFIXES = (".h5", ".hdf5", ".keras", ".weights.json")


def detect(path: str, files: Files) -> Format:
    """The format of a path; ``BUNDLE``, whose reader explains the problem, where none matches."""
    if files.exists(index_path(path)):
        inside = path.endswith(VARIABLES) and is_saved_model(path.removesuffix(VARIABLES), files)
        return Format.SAVED_MODEL if inside else Format.BUNDLE
    if is_saved_model(path, files):
        return Format.SAVED_MODEL
    if SUFFIX.search(path):
        return Format.BUNDLE
    content = _ends(path, files)
    if content == (b"", b"") and path.endswith(KERAS_SUFFIXES):
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
