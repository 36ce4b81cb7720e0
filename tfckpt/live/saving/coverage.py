"""Completes a save: adds what TensorFlow's object graph does not reach.

TensorFlow's keys stay unchanged, so plain TensorFlow restores what tfckpt writes. What its graph
misses in Keras 3 objects (variables and tables in lists and dicts, seed generators, metrics;
keras#18398), and vocabularies, are saved by canonical name under one extra child of the root,
``_tfckpt``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Entry
from tfckpt.errors import CoverageError, DamagedCheckpointError
from tfckpt.live.private.tensorflow import GraphView, Reference, Trackable
from tfckpt.live.variables.flavors import has_named_slots
from tfckpt.live.variables.variables import is_variable, meant, raw
from tfckpt.stored.bundles.keys import EXTRA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfckpt.live.objects.collect import Live
    from tfckpt.stored.bundles.bundle import Bundle


class _Extra(Trackable):  # type: ignore[misc]
    """The extra child: canonical name → variable, for one save."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> Mapping[str, Any]:
        return self._variables if save_type == "checkpoint" else {}


class _View(GraphView):  # type: ignore[misc]
    """TensorFlow's view of the objects without some of them, for one save.

    A save asks for the children of each object four times; each is asked once here.
    """

    def __init__(self, root: Any, attached: Any, hidden: Iterable[Any] = ()) -> None:
        super().__init__(root, attached_dependencies=attached)
        self._hidden = {id(obj) for obj in hidden}
        self._children: dict[int, list[Any]] = {}
        self._walked: tuple[list[Any], Any] | None = None

    def with_attached(self, attached: Any, hidden: Iterable[Any]) -> _View:
        """The same objects with other attached ones."""
        other = _View(self.root, attached, hidden)
        other._children = {key: of for key, of in self._children.items() if key != id(self.root)}
        return other

    def list_children(self, obj: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if args or kwargs:
            return self._shown(super().list_children(obj, *args, **kwargs))
        if id(obj) not in self._children:
            self._children[id(obj)] = super().list_children(obj)
        return self._shown(self._children[id(obj)])

    def _shown(self, children: list[Any]) -> list[Any]:
        return [child for child in children if id(child.ref) not in self._hidden]

    def breadth_first_traversal(self) -> tuple[list[Any], Any]:
        if self._walked is None:
            self._walked = super().breadth_first_traversal()
        objects, paths = self._walked
        return list(objects), paths


def whole_view(view: Any, live: Live, hidden: Iterable[Any] = ()) -> Any:
    """TensorFlow's view of the objects, without ``hidden``, plus the values that it misses.

    The extra child exists even when it is empty: a checkpoint that has it but no commit record has
    lost its record.
    """
    plain = _View(view.root, view.attached_dependencies)
    ids = {id(meant(obj)) for obj in plain.breadth_first_traversal()[0]}
    missed = {name: value for name, value in live.variables.items() if not ids & _identities(value)}
    slots = {name for name in missed if _kept_as_slot(name, live)}
    extra = {name: value for name, value in missed.items() if name not in slots}
    attached = [*(view.attached_dependencies or ()), Reference(EXTRA, _Extra(extra))]
    return plain.with_attached(attached, hidden)


def _kept_as_slot(name: str, live: Live) -> bool:
    """Whether TensorFlow saves it with its variable, as slots of legacy optimizers."""
    entry = live.inventory.entries[name]
    return bool(entry.of) and any(
        name.startswith(path + "/") and has_named_slots(optimizer)
        for path, optimizer in live.optimizers.items()
    )


def _identities(value: Any) -> set[int]:
    return {id(value), id(raw(value) if is_variable(value) else meant(value))}


def keys_of(live: Live, objects: list[Any], graph: Any) -> dict[str, str]:
    """Canonical name → checkpoint key, for every live value.

    ``objects`` are in TensorFlow's order, which is the order of the nodes of ``graph``, a
    ``TrackableObjectGraph``.
    """
    by_id: dict[int, str] = {}
    for obj, node in zip(objects, graph.nodes, strict=False):  # slot variables come after
        if node.attributes:
            by_id[id(obj)] = by_id[id(meant(obj))] = node.attributes[0].checkpoint_key
        elif node.HasField("registered_saver"):
            by_id[id(obj)] = ""
    by_id.update(_legacy_slots(objects, graph))
    keys: dict[str, str] = {}
    for name, value in live.variables.items():
        key = next((by_id[i] for i in _identities(value) if i in by_id), None)
        if key is None:
            raise CoverageError(
                f"{name} would have been left out of the checkpoint", hint="nothing was written"
            )
        keys[name] = key
    return keys


def recorded(live: Live, keys: Mapping[str, str], bundle: Bundle) -> dict[str, Entry]:
    """The record's entry for each value, from the index that was read back."""
    entries = {}
    for name, entry in live.inventory.entries.items():
        key = keys[name]
        found = bundle.entries.get(key)
        as_it_was = found is not None and (found.dtype, found.shape) == (entry.dtype, entry.shape)
        if entry.shape is not None and key and not as_it_was:  # a registered saver has its own keys
            actual = "is missing" if found is None else f"is {found.dtype} {found.shape}"
            message = f"{actual} when read back after writing, not {entry.dtype} {entry.shape}"
            raise DamagedCheckpointError(message, path=bundle.prefix, name=name)
        nbytes, crc32c = (found.nbytes, found.crc32c) if found else (0, entry.crc32c)
        _, role, dtype, shape, _, _, slot, of, _ = entry
        entries[name] = Entry(name, role, dtype, shape, nbytes, key, slot, of, crc32c)
    return entries


def _legacy_slots(objects: list[Any], graph: Any) -> Iterator[tuple[int, str]]:
    """The ids and keys of slots of tf_keras's legacy optimizers, which are nobody's children."""
    for obj, node in zip(objects, graph.nodes, strict=False):
        for slot in node.slot_variables:
            attributes = graph.nodes[slot.slot_variable_node_id].attributes
            variable = obj.get_slot(objects[slot.original_variable_node_id], slot.slot_name)
            if attributes and variable is not None:
                yield id(variable), attributes[0].checkpoint_key
