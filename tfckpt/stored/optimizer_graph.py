"""One optimizer in a stored object graph: its own values, and its slots by variable.

TensorFlow's graph addresses Keras's slots by position. Three writers, three ways back to the
variable: Keras 3 lists ``_trainable_variables`` beside the slots; tf_keras says it in the slot's
name, ``Adam/m/dense/kernel``; tf_keras's legacy optimizers store it outright.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfckpt.names import Node, Slot, optimizer_value, slot_name
from tfckpt.records import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.stored.graph import GraphReader

_BOOKS = frozenset({"_variables", "_trainable_variables", "_trainable_variables_indices"})


class OptimizerGraph:
    """A node of the graph that is an optimizer."""

    def __init__(self, reader: GraphReader, index: int, node: Node) -> None:
        self._reader = reader
        self._index = index
        self._node = node
        self._edges = reader.edges[index]

    def own(self) -> Iterator[tuple[str, int]]:
        """Name → node of what is not a slot: scalars and inner optimizers."""
        for edge, target in self._edges.items():
            if edge in _BOOKS:
                continue
            if self._reader.nodes[target].attributes:
                yield optimizer_value(edge)[0], target
            elif self._reader.is_optimizer(target):
                yield edge, target

    def finish(self) -> None:
        """Roles, the optimizer's class, and the slots, once the model's variables are nodes."""
        for edge, child in self._node.children:
            child.role = optimizer_value(edge)[1]
        self._node.label = self._class()
        done = {id(child) for _, child in self._node.children}
        variables = self._trainable()
        by_name = self._by_full_name()
        for edge, target in self._slot_lists():
            for position, value in sorted(self._reader.edges[target].items(), key=_numeric):
                of = variables.get(int(position)) if position.isdigit() else None
                if of is None:
                    of = by_name.get(_variable_of(self._reader.full_name(value)))
                self._slot(edge, of, value, position, done)
        for slot in self._reader.nodes[self._index].slot_variables:
            of = slot.original_variable_node_id
            self._slot(slot.slot_name, of, slot.slot_variable_node_id, str(of), done)
        self._leftovers(variables, by_name, done)

    def _leftovers(
        self, variables: dict[int, int], by_name: dict[str, int], done: set[int]
    ) -> None:
        """Values in ``_variables`` that no slot list has; their own names say what they are."""
        listed = self._edges.get("_variables")
        if listed is None:
            return
        prefixes = {
            self._reader.full_name(v).replace("/", "_") + "_": v for v in variables.values()
        }
        for position, value in sorted(self._reader.edges[listed].items(), key=_numeric):
            full = self._reader.full_name(value)
            parts = full.split("/")
            if len(parts) > 2 and "/".join(parts[2:]) in by_name:  # tf_keras: Adam/m/a/kernel
                self._slot(parts[1], by_name["/".join(parts[2:])], value, position, done)
                continue
            matching = [prefix for prefix in prefixes if parts[-1].startswith(prefix)]
            prefix = max(matching, key=len, default="")
            if prefix:
                slot = parts[-1].removeprefix(prefix)
                self._slot(slot, prefixes[prefix], value, position, done)
            else:
                self._slot("variables", None, value, position, done)

    def _slot(self, name: str, of: int | None, value: int, position: str, done: set[int]) -> None:
        node = self._reader.node(value)
        if id(node) in done:
            return
        done.add(id(node))
        node.role = Role.SLOT
        owner = Node(self._node.kind, label=position) if of is None else self._reader.node(of)
        self._node.slots.append(Slot(slot_name(name), owner, node))

    def _slot_lists(self) -> Iterator[tuple[str, int]]:
        for edge, target in self._edges.items():
            edges = self._reader.edges[target]
            if edge not in _BOOKS and edges and all(key.isdigit() for key in edges):
                if not self._reader.is_optimizer(next(iter(edges.values()))):
                    yield edge, target

    def _trainable(self) -> dict[int, int]:
        listed = self._edges.get("_trainable_variables")
        if listed is None:
            return {}
        edges = self._reader.edges[listed]
        return {int(key): target for key, target in edges.items() if key.isdigit()}

    def _by_full_name(self) -> dict[str, int]:
        """The graph's variables by their own names, those that only one has."""
        own = set(self._edges.values())
        if "_variables" in self._edges:
            own |= set(self._reader.edges[self._edges["_variables"]].values())
        found: dict[str, int | None] = {}
        for index, stored in enumerate(self._reader.nodes):
            if stored.attributes and index not in own:
                name = self._reader.full_name(index)
                found[name] = None if name in found else index
        return {name: index for name, index in found.items() if name and index is not None}

    def _class(self) -> str:
        """``adam``, where a name says so: ``adam/iteration``, ``Adam/m/dense/kernel``."""
        for edge in ("_iterations", "_learning_rate"):
            if edge in self._edges:
                name = self._reader.full_name(self._edges[edge])
                if "/" in name:
                    return re.sub(r"_\d+$", "", name.partition("/")[0])
        for _, target in self._slot_lists():
            for value in self._reader.edges[target].values():
                name = self._reader.full_name(value)
                if name.count("/") >= 2:
                    return name.partition("/")[0].lower()
        return ""


def _variable_of(full_name: str) -> str:
    return "/".join(full_name.split("/")[2:])


def _numeric(item: tuple[str, int]) -> tuple[int, str]:
    return len(item[0]), item[0]
