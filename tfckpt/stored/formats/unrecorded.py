"""The inventory of a bundle without a commit record, from its object graph or its keys.

A bundle without an object graph comes from TF1's ``Saver``, whose keys are names
(:mod:`tfckpt.stored.formats.tf1`). Every value of the index is in the inventory, except the
object graph and the layer configurations that TensorFlow 1.13 wrote beside it. Values that
``model.export`` stores twice appear once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core import names
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.core.optimizer_names import slot_name
from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles import keys
from tfckpt.stored.bundles.keys import OBJECT_GRAPH
from tfckpt.stored.formats.exported import Exported
from tfckpt.stored.formats.graph_reader import CONFIG, GraphReader
from tfckpt.stored.formats.keras_layers import KERAS_BASES
from tfckpt.stored.formats.tf1 import name_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tfckpt.core.inventory import Root
    from tfckpt.stored.bundles.bundle import Bundle, BundleEntry
    from tfckpt.stored.formats.saved_model import Metadata
    from tfckpt.stored.io.messages import Message

_CONFIG = keys.ATTRIBUTES + CONFIG
_OBJECTS = (Role.OBJECT, Role.ITERATOR)


def named(
    bundle: Bundle,
    roots: Mapping[str, Root] | None,
    bases: Collection[str],
    metadata: Mapping[tuple[str, ...], Metadata],
    *,
    exported: bool,
) -> tuple[str, Inventory]:
    """The kind of checkpoint, one of ``KINDS``, and its inventory."""
    graph = _read_graph(bundle)
    if graph is None:
        kind = "tensorflow" if OBJECT_GRAPH in bundle.entries else "tf1_saver"
        return kind, _name_by_keys(bundle, roots, bases)
    if exported and (inventory := _name_exported(bundle, graph, roots, bases)):
        return "tensorflow", inventory
    reader = GraphReader(graph, bases, metadata)
    kind = "uncommitted" if reader.written_by_tfckpt() else "tensorflow"
    return kind, _name(bundle, reader, roots)


def _name_by_keys(
    bundle: Bundle, roots: Mapping[str, Root] | None, bases: Collection[str]
) -> Inventory:
    if OBJECT_GRAPH in bundle.entries:  # unreadable: its data file is missing
        entries = (_unread(bundle, key) for key in bundle.entries if key != OBJECT_GRAPH)
        return Inventory(bundle.prefix, {entry.name: entry for entry in entries})
    if any(keys.ATTRIBUTES in key for key in bundle.entries):
        message = "the keys belong to an object graph, but the index has no object graph"
        raise DamagedCheckpointError(message, path=bundle.prefix, name=OBJECT_GRAPH)
    return name_keys(bundle.prefix, bundle.entries, roots, bases)


def _unread(bundle: Bundle, key: str) -> Entry:
    """A value named by its key alone, which also identifies the slots of a legacy optimizer."""
    name = _plain_name(key)
    of, mark, rest = name.partition(keys.SLOT)
    if not mark:
        return _entry(bundle, name, key, Role.WEIGHT)
    optimizer, _, word = rest.rpartition("/")
    slot = slot_name(word)
    full = f"{optimizer}/{slot}/{of.removeprefix(names.MODEL + '/')}"
    return _entry(bundle, full, key, Role.SLOT, slot=slot, of=of)


def _name(bundle: Bundle, reader: GraphReader, roots: Mapping[str, Root] | None) -> Inventory:
    nodes, keras_roots = reader.roots(roots)
    named = names.assign(nodes, keras_roots)
    entries: dict[str, Entry] = {}
    used = {OBJECT_GRAPH, *(key for key in bundle.entries if key.endswith(_CONFIG))}
    for value in named.values:
        key = value.node.value
        entries[value.name] = _entry(
            bundle, value.name, key, value.role, slot=value.slot, of=value.of
        )
        used.add(key)
    for name, node in reader.extras():
        entries[name] = _entry(bundle, name, node.value, _role_of(name))
        used.add(node.value)
    objects = {_owner(value.node.value) for value in named.values if value.role in _OBJECTS}
    for key in bundle.entries:
        owner = _owner(key)
        if key not in used and not (owner and owner in objects):
            name = _plain_name(key)
            name = key if name in entries else name
            entries[name] = _entry(bundle, name, key, Role.STATE)
    return named.inventory(
        bundle.prefix, entries.values(), roots=reader.live_roots, private=named.private
    )


def _name_exported(
    bundle: Bundle,
    graph: Message,
    roots: Mapping[str, Root] | None,
    bases: Collection[str],
) -> Inventory | None:
    """The inventory of a ``model.export``, where it records layer names; None otherwise."""
    exported = Exported(graph)
    found = exported.named(roots, KERAS_BASES | set(bases))
    if found is None or bundle.entries.keys() - {OBJECT_GRAPH} != exported.keys:
        return None
    named, deep = found
    entries = [_entry(bundle, v.name, v.node.value, v.role) for v in named.values]
    entries += [_entry(bundle, _plain_name(key), key, Role.SEED) for key in exported.seeds]
    return named.inventory(bundle.prefix, entries, deep=deep)


def _role_of(name: str) -> Role:
    """The role of a value that TensorFlow's own object graph does not reach."""
    special = {names.SEED: Role.SEED, names.METRICS: Role.METRIC}
    roles = (special[part] for part in name.split("/")[:2] if part in special)
    return next(roles, Role.WEIGHT)


def _read_graph(bundle: Bundle) -> Message | None:
    """The object graph; None in a TF1 checkpoint or where its data file is missing."""
    if OBJECT_GRAPH not in bundle.entries or bundle.lost(OBJECT_GRAPH):
        return None
    return keys.object_graph(bundle)


def _entry(
    bundle: Bundle, name: str, key: str, role: Role, *, slot: str = "", of: str = ""
) -> Entry:
    indexed = bundle.entries.get(key)
    if indexed is None and role in _OBJECTS:  # tables and registered savers have keys of their own
        return Entry(name, role, "", None, key=key)
    if indexed is None:
        message = f"the object graph lists the key {key!r}, but the index does not"
        raise DamagedCheckpointError(message, path=bundle.prefix, name=name)
    if role in _OBJECTS:
        return Entry(name, role, "", None, indexed.nbytes, key)
    if _is_counter(name, indexed):
        role = Role.STATE
    return Entry(
        name, role, indexed.dtype, indexed.shape, indexed.nbytes, key, slot, of, indexed.crc32c
    )


def _is_counter(name: str, entry: BundleEntry) -> bool:
    return name == "save_counter" and entry.dtype == "int64"


def _owner(key: str) -> str:
    """The prefix that all keys of one object share; "" for a key chosen by the object itself."""
    return "".join(key.rpartition(keys.ATTRIBUTES)[:2])


def _plain_name(key: str) -> str:
    """The path in a key; TF1 keys have no escapes to undo."""
    return ("/".join(keys.edges(key)) or names.ROOT) if keys.ATTRIBUTES in key else key
