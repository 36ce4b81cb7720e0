"""Opens what TensorFlow and tfckpt write: an index and data files.

The inventory comes from tfckpt's commit record, which must match the index. Without a record it is
derived from the files (:mod:`tfckpt.stored.formats.unrecorded`).
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.keys import OBJECT_GRAPH
from tfckpt.stored.commits import record_file
from tfckpt.stored.formats.checkpoint import StoredCheckpoint
from tfckpt.stored.io.explain import SAVED_MODEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.core.inventory import Inventory, Root
    from tfckpt.stored.formats.checkpoint import Opening
    from tfckpt.stored.formats.saved_model import Metadata


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
                from tfckpt.stored.formats.roots import moved_to

                inventory = moved_to(inventory, opening.roots)
        else:
            from tfckpt.stored.formats import unrecorded  # not needed where a record exists

            exported = kind == SAVED_MODEL
            detected, inventory = unrecorded.named(
                bundle, opening.roots, opening.bases, metadata, exported=exported
            )
    except BaseException:
        bundle.close()
        raise
    graph = bundle if OBJECT_GRAPH in bundle.entries else None
    return StoredCheckpoint(prefix, inventory, bundle, kind or detected, record, graph)


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
