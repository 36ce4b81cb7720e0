"""The inventory of a bundle: values that TensorFlow or tfckpt saved, by canonical name.

It comes from the commit record, which must match the index. Without a record it is derived from the
files (:mod:`tfckpt.stored.unrecorded`).
"""

from __future__ import annotations

import dataclasses
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.commits import record_file
from tfckpt.stored.formats.checkpoint import StoredCheckpoint
from tfckpt.stored.graphs.keys import EXTRA, OBJECT_GRAPH
from tfckpt.stored.io.files import LOCAL, Files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tfckpt.core.inventory import Inventory, Root
    from tfckpt.stored.keras_metadata.saved_model import Metadata

SAVED_MODEL = "saved_model"


def open_bundle(
    prefix: str,
    *,
    roots: Mapping[str, Root] | None = None,
    bases: Collection[str] = (),
    files: Files = LOCAL,
    kind: str = "",
    metadata: Mapping[tuple[str, ...], Metadata] = MappingProxyType({}),
) -> StoredCheckpoint:
    """Open a checkpoint that consists of an index and data files, and name its values.

    Args:
        prefix: the path without ``.index``.
        roots: see :func:`tfckpt.stored.open.open_checkpoint`.
        bases: see :func:`tfckpt.stored.open.open_checkpoint`.
        files: the file system.
        kind: the kind of checkpoint, where the caller knows it.
        metadata: edges from the root of the object graph → what Keras wrote about that object.

    Raises:
        CheckpointNotFoundError: there is no checkpoint with this name.
        DamagedCheckpointError: the index, the object graph or the commit record is damaged.
        UnsupportedCheckpointError: the format is not supported.
    """
    try:
        bundle = Bundle.open(prefix, files)
    except DamagedCheckpointError as error:
        raise error.named(record_file.names_of(prefix, files)) from error
    try:
        record = record_file.read(prefix, files, bundle.digest)
        if record is not None and not record.adopted:
            detected, inventory = "tfckpt", _check(record.inventory, bundle)
            if _has_slashes(inventory):
                from tfckpt.stored.graphs.slashes import with_escapes

                inventory = with_escapes(inventory)
            if roots and not _same_roots(inventory.roots, roots):
                from tfckpt.stored.graphs.rename_roots import moved_to

                inventory = moved_to(inventory, roots)
        else:
            from tfckpt.stored import unrecorded  # not needed where a record exists

            exported = kind == SAVED_MODEL
            detected, inventory = unrecorded.named(
                bundle, roots, bases, metadata, exported=exported
            )
    except BaseException:
        bundle.close()
        raise
    graphed = OBJECT_GRAPH in bundle.entries
    return StoredCheckpoint(prefix, inventory, bundle, kind or detected, record, graph=graphed)


def refuse_absent(stored: StoredCheckpoint, keys: Iterable[str] = ()) -> None:
    """Raise where a data file with one of these values, or with the names, is missing.

    Raises:
        DamagedCheckpointError: with the file and the number of values in it.
    """
    bundle, record = stored.values, stored.record
    if not isinstance(bundle, Bundle) or not bundle.lost:
        return
    if OBJECT_GRAPH in bundle.lost and (record is None or record.adopted):
        raise bundle.lacks(OBJECT_GRAPH).named({OBJECT_GRAPH: ""})
    if key := next((key for key in keys if key in bundle.lost), None):
        entries = stored.inventory.entries.values()
        raise bundle.lacks(key).named({entry.key: entry.name for entry in entries})


def _has_slashes(inventory: Inventory) -> bool:
    """Whether a key of a dict may have a slash, which old records do not escape."""
    layers = chain.from_iterable(inventory.sequences.values())
    keys = (entry.key for entry in inventory.entries.values())
    return any("/" in layer.name for layer in layers) or any(
        ".S" in key and not key.startswith(f"{EXTRA}/") for key in keys
    )


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
