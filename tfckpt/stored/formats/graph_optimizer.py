"""One optimizer in a stored object graph: its own values, and its slots by variable.

TensorFlow's graph identifies Keras's slots by index only. The variable of a slot is found in one of
three ways: Keras 3 lists ``_trainable_variables`` beside the slots; tf_keras has it in the slot's
name, ``Adam/m/dense/kernel``; tf_keras's legacy optimizers store the reference itself. Keras up to
3.6 stores its slots in ``_variables`` only: their names identify them, or else their order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role, snake_case
from tfckpt.core.names import OPTIMIZER, Node, Slot
from tfckpt.core.optimizer_names import (
    LOSS_SCALE,
    by_slot_path,
    named_slot,
    optimizer_class,
    optimizer_value,
    slot_among,
    slot_name,
    split_slot,
    v1_class,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from tfckpt.stored.formats.graph_reader import GraphReader

_INNER = "inner_optimizer"
_V1_STEP = "global_step"
_V1_WRAPPER = {OPTIMIZER, _V1_STEP}
_SCALE = ("_iterations", "_learning_rate", "dynamic_scale", "step_counter")
_BOOKKEEPING = frozenset({"_variables", "_trainable_variables", "_trainable_variables_indices"})


def wrapped(reader: GraphReader) -> dict[int, int]:
    """Optimizers that wrap another → the inner one; the two are treated as one optimizer.

    These are Keras 3's loss-scale optimizer (tf_keras stores it as one node with the inner one) and
    Keras 2's wrapper of an optimizer of ``tf.compat.v1.train``.
    """
    inner_of = {}
    for index, edges in enumerate(reader.edges):
        # The root itself may consist of just an optimizer and a step.
        if index and edges.keys() == _V1_WRAPPER and reader.is_optimizer(edges[OPTIMIZER]):
            inner_of[index] = edges[OPTIMIZER]
            continue
        inner = edges.get(_INNER)
        if inner is None or not (reader.is_optimizer(index) and reader.is_optimizer(inner)):
            continue
        # Its scale is created on first use; before that, only its name shows what it is.
        count = edges.get("_iterations", edges.get("iterations"))  # the latter before Keras 3.5
        name = "" if count is None else reader.full_name(count)
        if "dynamic_scale" in edges or re.match(r"loss_scale_optimizer(_\d+)?/", name):
            inner_of[index] = inner
    return inner_of


def scale_values(reader: GraphReader, index: int) -> dict[str, int]:
    """Edge → node of a loss-scale optimizer's own values; empty for any other optimizer.

    ``index`` is the inner optimizer; in tf_keras's files it is the outer one, too.
    """
    edges = reader.edges
    if (outer := reader.outer(index)) is not None:
        return {edge: edges[outer][edge] for edge in _SCALE if edge in edges[outer]}
    scale = edges[index].get(LOSS_SCALE)
    return {} if scale is None else edges[scale]


class OptimizerGraph:
    """A node of the graph that is an optimizer."""

    def __init__(self, reader: GraphReader, index: int, node: Node) -> None:
        self._reader = reader
        self._index = index
        self._node = node
        self._edges = reader.edges[index]

    def own(self) -> Iterator[tuple[str, int]]:
        """Name → node of everything but slots: scalars and inner optimizers."""
        edges = dict(self._edges)
        if (outer := self._reader.outer(self._index)) is not None:
            step = self._reader.edges[outer].get(_V1_STEP)
            edges |= {} if step is None else {"iterations": step}
        for edge, target in edges.items():
            if edge in _BOOKKEEPING:
                continue
            if self._reader.nodes[target].attributes:
                yield optimizer_value(edge)[0], target
            elif self._reader.is_optimizer(target):
                yield edge, target

    def finish(self) -> None:
        """Set roles, class and slots; called once the model's variables are nodes."""
        for edge, child in self._node.children:
            child.role = optimizer_value(edge)[1]
        by_name = self._by_full_name()
        self._node.label = self._class(by_name) or self._reader.label(self._index)
        done = {id(child) for _, child in self._node.children}
        variables = self._trainable()
        for edge, target in self._slot_lists():
            listed = self._reader.edges[target]
            complete = len(listed) == len(variables)  # else an index does not identify the variable
            for position, value in sorted(listed.items(), key=_numeric):
                of = variables.get(int(position)) if complete else None
                if of is None:
                    of = named_slot(self._reader.full_name(value), by_name)[2]
                if of is None and variables:
                    continue  # `_leftovers` handles it
                self._slot(edge, of, value, position, done)
        references = self._reader.nodes[self._index].slot_variables
        slot_names = {slot.slot_name for slot in references}
        for slot in references:
            of = slot.original_variable_node_id
            name = slot_among(slot.slot_name, slot_names)
            self._slot(name, of, slot.slot_variable_node_id, str(of), done)
        self._leftovers(variables, by_name, done)

    def _leftovers(
        self, variables: dict[int, int], by_name: dict[str, int], done: set[int]
    ) -> None:
        """Values in ``_variables`` that are in no slot list; their own names identify them."""
        listed = self._edges.get("_variables")
        if listed is None:
            return
        paths = by_slot_path((self._reader.full_name(v), v) for v in variables.values())
        unnamed: list[tuple[str, int]] = []
        named: set[int] = set()
        for position, value in sorted(self._reader.edges[listed].items(), key=_numeric):
            if id(self._reader.node(value)) in done:
                continue
            full = self._reader.full_name(value)
            _, slot, of = named_slot(full, by_name)
            if of is None:
                of, slot = split_slot(full.rpartition("/")[2], paths)
            if of is None:
                unnamed.append((position, value))
                continue
            self._slot(slot, of, value, position, done)
            named.add(of)
            unnamed = self._factors(unnamed, of, done)
        others = [of for _, of in sorted(variables.items()) if of not in named]
        for position, value, slot, of in self._in_order(unnamed, others):
            self._slot(slot, of, value, position, done)
        for position, value in unnamed:
            self._slot("variables", None, value, position, done)

    def _in_order(
        self, unnamed: list[tuple[str, int]], variables: list[int]
    ) -> list[tuple[str, int, str, int | None]]:
        """Slots named after a variable's path in the model, which is not in the file, by order.

        ``model_dense_kernel_momentum`` belongs to ``model/kernel`` if the names come in as many
        groups as there are variables, each ends as its variable does, and all have the same slots.
        """
        own = [self._reader.full_name(of).rpartition("/")[2] for of in variables]
        last_names = frozenset(own)
        groups: dict[str, dict[str, tuple[str, int]]] = {}
        for position, value in unnamed:
            name = self._reader.full_name(value).rpartition("/")[2]
            path, slot = _split_after(name, last_names)
            groups.setdefault(path, {})[slot] = position, value
        slots = {frozenset(group) for group in groups.values()}
        if len(groups) != len(variables) or len(slots) != 1:
            return []
        if sum(map(len, groups.values())) != len(unnamed):
            return []
        if not all(f"_{path}".endswith(f"_{last}") for path, last in zip(groups, own, strict=True)):
            return []
        return [
            (position, value, slot, of)
            for group, of in zip(groups.values(), variables, strict=True)
            for slot, (position, value) in group.items()
        ]

    def _factors(
        self, unnamed: list[tuple[str, int]], of: int, done: set[int]
    ) -> list[tuple[str, int]]:
        """Adafactor's row and column slots of a variable, which precede its velocity.

        Both have the variable's own last name; the lists ``_r`` and ``_c`` are stored empty.
        """
        own = self._reader.full_name(of).rpartition("/")[2]
        before = [self._reader.full_name(value).rpartition("/")[2] for _, value in unnamed[-2:]]
        if not {"_r", "_c"} <= self._edges.keys() or before != [own, own]:
            return unnamed
        for slot, (position, value) in zip(("r", "c"), unnamed[-2:], strict=True):
            self._slot(slot, of, value, position, done)
        return unnamed[:-2]

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
            listed = bool(edges) and all(key.isdecimal() for key in edges)
            if (
                edge in _BOOKKEEPING
                or not listed
                or self._reader.is_optimizer(next(iter(edges.values())))
            ):
                continue
            yield edge, target

    def _trainable(self) -> dict[int, int]:
        listed = self._edges.get("_trainable_variables")
        if listed is None:
            return {}
        edges = self._reader.edges[listed]
        return {int(key): target for key, target in edges.items() if key.isdecimal()}

    def _by_full_name(self) -> dict[str, int]:
        """The graph's variables by their own names, if these are unique.

        Of two variables with one name (of a copied model, for example), the one below the
        optimizer's own model is taken.
        """
        own = set(self._edges.values())
        if "_variables" in self._edges:
            own |= set(self._reader.edges[self._edges["_variables"]].values())
        others = [index for index in range(len(self._reader.nodes)) if index not in own]
        mine = self._below_owner()
        return self._unique(others) | self._unique(index for index in others if index in mine)

    def _unique(self, indices: Iterable[int]) -> dict[str, int]:
        by_name: dict[str, int | None] = {}
        for index in indices:
            if self._reader.nodes[index].attributes:
                name = self._reader.full_name(index)
                by_name[name] = None if name in by_name else index
        return {name: index for name, index in by_name.items() if name and index is not None}

    def _below_owner(self) -> set[int]:
        """The nodes below the model that was compiled with this optimizer; empty if ambiguous.

        The root of the checkpoint counts as a model only if no other object has the optimizer.
        """
        edges = self._reader.edges
        owners = [i for i, below in enumerate(edges) if below.get(OPTIMIZER) == self._index]
        owners = [i for i in owners if i != 0] or owners
        if len(owners) != 1:
            return set()
        seen, todo = {self._index, owners[0]}, [owners[0]]
        while todo:
            new = set(edges[todo.pop()].values()) - seen
            seen |= new
            todo.extend(new)
        return seen

    def _class(self, by_name: Mapping[str, int]) -> str:
        """``adam``, if a name shows it: ``adam/iteration``, ``Adam/iter``, ``Adam/m/kernel``."""
        full_name = self._reader.full_name
        for edge in ("_iterations", "_learning_rate", "iter"):
            if edge in self._edges and (name := _first(full_name(self._edges[edge]))):
                return name
        for _, target in self._slot_lists():
            for value in self._reader.edges[target].values():
                if name := named_slot(full_name(value), by_name)[0]:
                    return optimizer_class(name)
        for slot in self._reader.nodes[self._index].slot_variables:
            # tf.compat.v1.train: `a/kernel/Adam`, `a/kernel/Adam_1`; tf_keras: `a/kernel/momentum`
            of, value = slot.original_variable_node_id, slot.slot_variable_node_id
            name = full_name(value).removeprefix(f"{full_name(of)}/")
            return optimizer_class(v1_class(name)) if name[:1].isupper() else ""
        return ""


def _first(full_name: str) -> str:
    """The optimizer class in the name of one of its own values."""
    name, slash, _ = full_name.partition("/")
    return optimizer_class(snake_case(name)) if slash else ""


def _split_after(name: str, endings: Collection[str]) -> tuple[str, str]:
    """The path and the slot in a Keras 3 slot name, if only the path's last part is known.

    The longest path that ends in one of ``endings`` is used; ("", "") if there is none of up to
    four words.

    >>> _split_after("encoder_dense_kernel_momentum", {"kernel", "bias"})
    ('encoder_dense_kernel', 'momentum')
    """
    parts = name.split("_")
    for end in range(len(parts) - 1, 0, -1):
        if any("_".join(parts[start:end]) in endings for start in range(max(0, end - 4), end)):
            return "_".join(parts[:end]), "_".join(parts[end:])
    return "", ""


def _numeric(item: tuple[str, int]) -> tuple[int, str]:
    return len(item[0]), item[0]
