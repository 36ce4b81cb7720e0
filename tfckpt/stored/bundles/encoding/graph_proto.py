"""Decodes the object graph of a checkpoint (trackable_object_graph.proto)."""

from __future__ import annotations

import dataclasses

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.bundles.encoding.index_proto import (
    INT32,
    WireError,
    as_message,
    as_number,
    as_text,
    fields,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Child:
    """An edge of the object graph: the name of a child node."""

    node_id: int = 0
    local_name: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Attribute:
    """A value of a node: its name in the node, the variable's own name, its key in the index."""

    name: str = ""
    full_name: str = ""
    checkpoint_key: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SlotVariable:
    """A slot of an optimizer: the nodes of the variable and of the slot."""

    original_variable_node_id: int = 0
    slot_name: str = ""
    slot_variable_node_id: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredSaver:
    """The registered saver that wrote a node."""

    name: str = ""
    object_name: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class GraphNode:
    """One object; ``has_checkpoint_values`` is None where the writer did not set it."""

    children: tuple[Child, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    slot_variables: tuple[SlotVariable, ...] = ()
    registered_saver: RegisteredSaver | None = None
    has_checkpoint_values: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectGraph:
    """The objects of a checkpoint (TrackableObjectGraph); node 0 is the root."""

    nodes: tuple[GraphNode, ...]


def parse_object_graph(data: bytes, *, path: str = "", name: str = "") -> ObjectGraph:
    """Decode the value of ``_CHECKPOINTABLE_OBJECT_GRAPH``; ``path`` and ``name`` are for messages.

    Raises:
        DamagedCheckpointError: the message is invalid, or refers to a node that does not exist.

    >>> parse_object_graph(bytes([0x0A, 0])).nodes
    (GraphNode(children=(), attributes=(), slot_variables=(), registered_saver=None, \
has_checkpoint_values=None),)
    """
    try:
        nodes = tuple(
            _parse_node(as_message(value)) for number, value in fields(data) if number == 1
        )
        _check_references(nodes)
    except WireError as error:
        message = f"the object graph cannot be read: {error}"
        raise DamagedCheckpointError(message, path=path, name=name) from None
    return ObjectGraph(nodes)


def _check_references(nodes: tuple[GraphNode, ...]) -> None:
    count = len(nodes)
    for node in nodes:
        for child in node.children:
            if child.node_id >= count:
                raise WireError(f"{child.local_name!r} refers to node {child.node_id} of {count}")
        for slot in node.slot_variables:
            if max(slot.original_variable_node_id, slot.slot_variable_node_id) >= count:
                raise WireError(f"slot {slot.slot_name!r} refers to a node that does not exist")


def _parse_node(data: bytes) -> GraphNode:
    children: list[Child] = []
    attributes: list[Attribute] = []
    slots: list[SlotVariable] = []
    saver: RegisteredSaver | None = None
    has_values: bool | None = None
    for number, value in fields(data):
        inner = dict(fields(as_message(value))) if number <= 5 else {}
        if number == 1:
            children.append(Child(as_number(inner.get(1, 0), INT32), as_text(inner.get(2, b""))))
        elif number == 2:
            texts = (as_text(inner.get(field, b"")) for field in (1, 2, 3))
            attributes.append(Attribute(*texts))
        elif number == 3:
            original, slot = (as_number(inner.get(field, 0), INT32) for field in (1, 3))
            slots.append(SlotVariable(original, as_text(inner.get(2, b"")), slot))
        elif number == 4:
            saver = RegisteredSaver(*(as_text(inner.get(field, b"")) for field in (1, 2)))
        elif number == 5:
            has_values = bool(as_number(inner.get(1, 0), 1 << 64))
    return GraphNode(tuple(children), tuple(attributes), tuple(slots), saver, has_values)
