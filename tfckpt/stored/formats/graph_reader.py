"""Reads the object graph of a TF2 checkpoint into the tree that :mod:`tfckpt.core.names` names.

The graph holds edges (attributes, list indices) and each variable's own name, but no classes and no
layer names. These follow from its structure, as seen in checkpoints of Keras 3 and tf_keras:

- a node with ``layer_with_weights-N`` is a functional or sequential model of tf_keras; a node with
  a list ``_operations`` is one of Keras 3, in a sequential model below ``_functional``. The layers'
  names are in the variables' names: ``inner/dense/kernel``;
- a node with ``_variables`` and ``_iterations``, or with slot variables, is an optimizer. The
  elements of a slot list are in the order of ``_trainable_variables`` (Keras 3), or have the
  variable's name in their own (tf_keras: ``Adam/m/dense/kernel``).

A layer of unknown name keeps TensorFlow's edge, ``layer_with_weights-2``, and a slot of an unknown
variable its index: both stay visible and never match by accident.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from tfckpt.core import names
from tfckpt.core.inventory import Role, weak_base
from tfckpt.core.names import Node, NodeKind
from tfckpt.core.optimizer_names import LOSS_SCALE, optimizer_value, promote_optimizer
from tfckpt.stored.formats import roots as roots_of
from tfckpt.stored.formats.graph_layers import (
    INNER,
    OPERATIONS,
    attribute_names,
    listed_names,
    sequence_names,
)
from tfckpt.stored.formats.graph_optimizer import OptimizerGraph, scale_values, wrapped
from tfckpt.stored.formats.keras_config import wire
from tfckpt.stored.formats.keras_layers import KERAS_BASES
from tfckpt.stored.io.messages import drop

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Root
    from tfckpt.stored.formats.saved_model import Metadata
    from tfckpt.stored.io.messages import Message

VARIABLE_VALUE = "VARIABLE_VALUE"
ITERATOR = "ITERATOR"  # tensorflow/python/data/ops/iterator_ops.py

_LAYER_EDGE = re.compile(r"layer_with_weights-(\d+)")
_OTHER_LAYER_EDGE = re.compile(r"layer-\d+")
_TFCKPT = "_tfckpt"
_V1_SCALED = {"base_optimizer", LOSS_SCALE}  # tf.compat.v1.mixed_precision
_TRAINABLE = "_trainable_variables"
# Bookkeeping that Keras writes into an object graph, which is not part of a variable's name. In a
# SavedModel each Keras object has lists of all its variables and a child `keras_api` with the same
# lists and the metrics (serialized_attributes.py in tf_keras's saving/legacy). TensorFlow 1.13 and
# 1.14 stored each layer's configuration as a value (tensorflow/python/trackable/constants.py).
KERAS_API, CONFIG, _METRICS = "keras_api", "OBJECT_CONFIG_JSON", "metrics"
_LISTS = frozenset({KERAS_API, "variables", "trainable_variables", "regularization_losses"})


class GraphReader:
    """One object graph, turned into nodes."""

    def __init__(
        self,
        graph: Message,
        bases: Collection[str] = (),
        metadata: Mapping[tuple[str, ...], Metadata] = MappingProxyType({}),
    ) -> None:
        self.nodes = list(graph.nodes)
        drop_configs(self.nodes)
        self.edges: list[dict[str, int]] = [
            {child.local_name: child.node_id for child in node.children} for node in self.nodes
        ]
        by_node = {self._at(path): each for path, each in metadata.items()}
        self._labels = {index: each.name for index, each in by_node.items()}
        self._configs = {index: each.config for index, each in by_node.items() if index is not None}
        self.bookkeeping = take_bookkeeping(self.edges)
        self.levels = _levels(self.edges)
        self._containers = [all(map(str.isdecimal, each)) and bool(each) for each in self.edges]
        self._sequences = [
            "layer_with_weights-0" in each or self._operations(index) is not None
            for index, each in enumerate(self.edges)
        ]
        self.bases = KERAS_BASES | set(bases)
        self._inside = wrapped(self)
        self._outer = {inner: outer for outer, inner in self._inside.items()}
        self._made: dict[int, Node] = {}
        self._called: dict[int, str] = {}
        self._listed_layers: set[int] = set()
        self._optimizers: list[tuple[int, Node]] = []
        self.live_roots: dict[str, Root] = {}  # by keyword, after `roots` was called

    def roots(self, live: Mapping[str, Root] | None = None) -> tuple[dict[str, Node], set[str]]:
        """First component → node, and which of them are Keras models."""
        children = dict(self.edges[0])
        children.pop(_TFCKPT, None)
        components = roots_of.components(self, children, live)
        self.live_roots = roots_of.live_roots(self, children, components, live or {})
        roots = {}
        root_component = components.pop("", None)
        if root_component is not None:
            loose = {edge: node for edge, node in children.items() if edge in components}
            roots[root_component] = self._node(0, without=loose.keys() | {"save_counter"})
            if "save_counter" in children:
                loose["save_counter"] = children["save_counter"]
            children = loose
        for edge, index in children.items():
            roots[components.get(edge, names.escaped(edge))] = node = self._node(index)
            has_keyword = live is None or edge in live  # else an attribute of the root object
            if has_keyword and node.kind is NodeKind.VALUE and node.role is Role.WEIGHT:
                node.role = Role.STATE
        promote_optimizer(roots)
        for index, node in self._optimizers:
            OptimizerGraph(self, index, node).finish()
        self._orphans(roots)
        self._call_by_attribute()
        sequences = ((self._made.get(index), config) for index, config in self._configs.items())
        wire(
            [
                (node, config)
                for node, config in sequences
                if node and node.kind is NodeKind.SEQUENCE
            ]
        )
        return roots, {component for component in roots if component == names.MODEL}

    def _call_by_attribute(self) -> None:
        """Label the layers that attributes lead to, but no model or list."""
        for index, name in self._called.items():
            node = self._made.get(index)
            if node is not None and index not in self._listed_layers:
                node.label, node.base = name, weak_base(name, self.bases)

    def extras(self) -> Iterator[tuple[str, Node]]:
        """The values below tfckpt's own child of the root, by canonical name."""
        for edge, index in (
            self.edges[self.edges[0][_TFCKPT]].items() if self.written_by_tfckpt() else ()
        ):
            yield edge, self._node(index)

    def _at(self, path: tuple[str, ...]) -> int | None:
        """The node that edges lead to from the root."""
        index: int | None = 0
        for edge in path:
            index = None if index is None else self.edges[index].get(edge)
        return index

    def label(self, index: int) -> str:
        """The name of an object in Keras's metadata, ``""`` if unknown."""
        return self._labels.get(index, "")

    def written_by_tfckpt(self) -> bool:
        return _TFCKPT in self.edges[0]

    def is_sequence(self, index: int) -> bool:
        return self._sequences[index]

    def is_optimizer(self, index: int) -> bool:
        edges = self.edges[index]
        newer = "_variables" in edges and ("_iterations" in edges or "iterations" in edges)
        legacy = "iter" in edges and bool({"learning_rate", "decay"} & edges.keys())
        scaled = edges.keys() == _V1_SCALED
        return newer or legacy or scaled or bool(self.nodes[index].slot_variables)

    def inner(self, index: int) -> int:
        """The inner optimizer of a wrapper; any other node itself."""
        return self._inside.get(index, index)

    def outer(self, index: int) -> int | None:
        """The optimizer that wraps this one."""
        return self._outer.get(index)

    def full_name(self, index: int) -> str:
        return next((a.full_name for a in self.nodes[index].attributes), "")

    @cached_property
    def scopes(self) -> Counter[tuple[str, ...]]:
        """How many variables were made in each scope."""
        variables = (index for index, node in enumerate(self.nodes) if node.attributes)
        return Counter(tuple(self.full_name(index).split("/")[:-1]) for index in variables)

    def node(self, index: int) -> Node:
        return self._node(index)

    def _node(self, index: int, without: Collection[str] = ()) -> Node:
        """The :class:`Node` of a graph node, made once; iterative, since graphs may be deep."""
        index = self._inside.get(index, index)
        if (node := self._made.get(index)) is not None:
            return node
        todo = [index]
        made = self._made
        made[index] = Node(NodeKind.GROUP)
        while todo:
            current = todo.pop()
            node = made[current]
            todo.extend(self._fill(current, node, without if current == index else ()))
        return made[index]

    def _get(self, index: int, fresh: list[int]) -> Node:
        index = self._inside.get(index, index)
        node = self._made.get(index)
        if node is None:
            node = self._made[index] = Node(NodeKind.GROUP)
            fresh.append(index)
        return node

    def _fill(self, index: int, node: Node, without: Collection[str]) -> list[int]:
        """Set a node's kind and children; returns the graph nodes of new children."""
        fresh: list[int] = []
        stored, edges = self.nodes[index], self.edges[index]
        if stored.attributes or stored.registered_saver.name:
            self._value(stored, node)
            return fresh
        if self.is_optimizer(index):
            self._optimizer(index, node, fresh)
            return fresh
        skip = set(without)
        if self.is_sequence(index):
            node.kind = NodeKind.SEQUENCE
            layers = self.sequence_layers(index)
            node.layers = self._layers(layers, sequence_names(self, layers, edges), fresh)
            skip |= {OPERATIONS, INNER}
            skip |= {edge for edge in edges if _is_layer_edge(edge)}
            size = sum(1 for edge in edges if _OTHER_LAYER_EDGE.fullmatch(edge))
            node.sizes = (size or len(layers),)
        elif self.is_container(index):
            node.kind, node.indexed = NodeKind.LIST, True
            listed = self._listed(index)
            self._layers(listed, listed_names(self, listed), fresh)
        else:
            self._called |= attribute_names(self, index)
        weight_names, led_to = self._weight_names(index)
        for edge, target in edges.items():
            if edge in skip:
                continue
            if edge in weight_names and target in led_to:
                node.asides.append((edge, self._get(target, fresh)))
                continue
            if edge == "_random_generator" and (seed := self._seed_state(target)) is not None:
                state = self._get(seed, fresh)
                node.children.append((edge, state))
                state.role = Role.SEED
                continue
            node.children.append((names.escaped(edge), self._get(target, fresh)))
        self._bookkeeping(index, node, fresh)
        return fresh

    def _bookkeeping(self, index: int, node: Node, fresh: list[int]) -> None:
        """Add what only Keras's bookkeeping lists lead to, metrics for example."""
        bookkeeping = self.bookkeeping.get(index, {})
        for number, metric_node in metrics(self.edges, bookkeeping):
            metric = Node(NodeKind.GROUP)
            for edge, target in self.edges[metric_node].items():
                if self.nodes[target].attributes:
                    metric.children.append((edge, self._get(target, fresh)))
            node.metrics.append((self._labels.get(metric_node, number), metric))
        node.asides.extend(
            (edge, self._get(target, fresh))
            for edge, target in bookkeeping.items()
            if edge != KERAS_API
        )

    def _layers(
        self, layers: list[int], layer_names: Iterable[tuple[str, str]], fresh: list[int]
    ) -> list[Node]:
        """The nodes of sibling layers, labelled with ``(name, alternative)`` where known."""
        nodes = []
        self._listed_layers.update(layers)
        for layer, (name, other) in zip(layers, layer_names, strict=True):
            child = self._get(layer, fresh)
            if not child.label:
                label = self._labels.get(layer)
                child.label, child.other = (name, other) if label is None else (label, "")
            child.base = weak_base(child.label, self.bases)
            nodes.append(child)
        return nodes

    def _listed(self, index: int) -> list[int]:
        """The (possible) layers in a list."""
        items = sorted(self.edges[index].items(), key=lambda item: int(item[0]))
        return [c for _, c in items if not (self.nodes[c].attributes or self.is_container(c))]

    def _weight_names(self, index: int) -> tuple[set[str], set[int]]:
        """Edges named after ``add_weight``'s ``name``; variables that other edges lead to as well.

        tf_keras stores ``self.scale = self.add_weight(name="s")`` as both ``s`` and ``scale``. The
        canonical name uses the attribute, the only one of the two that Keras 3 has.
        """
        edges = self.edges[index]
        weight_names = {edge for edge, target in edges.items() if self._last_name(target) == edge}
        led_to: set[int] = set()
        if weight_names:
            targets = {edges[edge] for edge in weight_names}
            for edge, target in edges.items():
                if edge not in weight_names and target != index:
                    led_to |= self._held(target, targets)
        return weight_names, led_to

    def _last_name(self, index: int) -> str:
        return self.full_name(index).rpartition("/")[2]

    def _held(self, index: int, targets: set[int]) -> set[int]:
        """A variable itself, the variables of a list, or of a dict if all are ``targets``."""
        edges = self.edges[index]
        if self.nodes[index].attributes:
            return {index}
        if not self.is_container(index):
            own_attribute = any(self._last_name(t) == edge.lstrip("_") for edge, t in edges.items())
            dictionary = bool(edges) and targets.issuperset(edges.values()) and not own_attribute
            return set(edges.values()) if dictionary else set()
        variables, seen, todo = set[int](), {index}, [index]
        while todo:
            for child in self.edges[todo.pop()].values():
                if self.nodes[child].attributes:
                    variables.add(child)
                elif child not in seen and self.is_container(child):
                    seen.add(child)
                    todo.append(child)
        return variables

    def _optimizer(self, index: int, node: Node, fresh: list[int]) -> None:
        node.kind = NodeKind.OPTIMIZER
        self._optimizers.append((index, node))
        for edge, child in OptimizerGraph(self, index, node).own():
            node.children.append((edge, self._get(child, fresh)))
        if scale := scale_values(self, index):
            group = Node(NodeKind.GROUP)
            node.children.append((LOSS_SCALE, group))
            for edge, child in scale.items():
                name, role = optimizer_value(edge)
                value = self._get(child, fresh)
                group.children.append((name, value))
                value.role = role

    def _seed_state(self, index: int) -> int | None:
        generator = self.edges[index].get("_generator")
        return None if generator is None else self.edges[generator].get("_state_var")

    def _value(self, stored: Message, node: Node) -> None:
        node.kind = NodeKind.VALUE
        attributes = stored.attributes
        node.value = attributes[0].checkpoint_key if attributes else ""
        node.label = attributes[0].full_name if attributes else ""
        if not attributes or attributes[0].name != VARIABLE_VALUE or len(attributes) > 1:
            iterator = bool(attributes) and attributes[0].name == ITERATOR
            node.role = Role.ITERATOR if iterator else Role.OBJECT

    def sequence_layers(self, index: int) -> list[int]:
        if (operations := self._operations(index)) is not None:
            order = self.edges[operations]
            return [order[key] for key in sorted(order, key=lambda key: (len(key), key))]
        edges = self.edges[index].items()
        numbered = [(m, node) for edge, node in edges if (m := _LAYER_EDGE.fullmatch(edge))]
        return [node for _, node in sorted(numbered, key=lambda item: int(item[0].group(1)))]

    def _operations(self, index: int) -> int | None:
        """Keras 3's list of a model's layers; a sequential model's is below ``_functional``."""
        edges = self.edges[index]
        for each in (self.edges[edges[INNER]] if INNER in edges else {}, edges):
            if (operations := each.get(OPERATIONS)) is not None and self.is_container(operations):
                return operations
        return None

    def is_container(self, index: int) -> bool:
        """A list: all its edges are numbers."""
        return self._containers[index]

    def _orphans(self, roots: dict[str, Node]) -> None:
        """Add variables that only an optimizer leads to: Keras 3 did not save them in the model.

        Their own names may be another variable's, too, so the index in the optimizer precedes it:
        a name that no live value has.
        """
        reached = {id(node) for root in roots.values() for node in names.walk(root)}
        for index, optimizer in self._optimizers:
            trained = self.edges[index].get(_TRAINABLE)
            if trained is None:
                continue
            lost = Node(NodeKind.GROUP)
            for position, target in self.edges[trained].items():
                node = self._node(target)
                if id(node) not in reached and node.kind is NodeKind.VALUE:
                    reached.add(id(node))
                    lost.children.append((f"{position}/{node.label}".rstrip("/"), node))
            if lost.children:
                roots.get(names.MODEL, optimizer).children.append((_TRAINABLE, lost))


def _levels(edges: Sequence[Mapping[str, int]]) -> list[int]:
    """How many edges lead from the root to each node."""
    found, level = {0: 0}, [0]
    while level:
        below = {child: found[node] + 1 for node in level for child in edges[node].values()}
        level = [child for child in below if child not in found]
        found |= {child: below[child] for child in level}
    return [found.get(index, len(edges)) for index in range(len(edges))]


def _is_layer_edge(edge: str) -> bool:
    return bool(_LAYER_EDGE.fullmatch(edge) or _OTHER_LAYER_EDGE.fullmatch(edge))


def drop_configs(nodes: Iterable[Message]) -> None:
    """Take the configurations of layers out of the nodes of a graph."""
    for node in nodes:
        drop(node.attributes, lambda value: value.name == CONFIG)


def take_bookkeeping(edges: Sequence[dict[str, int]]) -> dict[int, dict[str, int]]:
    """Remove Keras's lists from the edges of its objects; returns node → removed edges."""
    return {
        index: {edge: own.pop(edge) for edge in _LISTS & own.keys()}
        for index, own in enumerate(edges)
        if KERAS_API in own
    }


def metrics(
    edges: Sequence[dict[str, int]], bookkeeping: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """Index and node of each metric of a model."""
    listed = edges[bookkeeping[KERAS_API]].get(_METRICS) if bookkeeping else None
    yield from (edges[listed] if listed is not None else {}).items()
