"""Builds the tree of live objects that :mod:`tfckpt.core.names` names.

A Keras object is walked by its attributes, not by TensorFlow's object graph, which misses what
Keras 3 keeps in lists and dicts, seed generators and metrics (keras#18398). What Keras tracks but
no attribute reaches is taken from the layer's own bookkeeping lists, so that no Keras variable is
ever left out. Other objects are walked as TensorFlow walks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.inventory import Role, snake_case, weak_base
from tfckpt.core.names import Node, NodeKind, escaped
from tfckpt.core.versions import in_use
from tfckpt.errors import CoverageError
from tfckpt.live import optimizers
from tfckpt.live.flavors import (
    Flavor,
    flavor_of,
    flavors,
    holds_values,
    is_optimizer,
    is_v1,
    name_of,
    only_copied,
)
from tfckpt.live.private import either_keras, tf_keras
from tfckpt.live.private.either_keras import with_layers_below
from tfckpt.live.private.tensorflow import (
    OF_TRAINERS,
    Delegating,
    Trackable,
    any_saver,
    has_saver,
    serializes,
)
from tfckpt.live.variables import is_variable, last_name, meant, owner, path, raw
from tfckpt.live.vocabularies import vocabularies

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# FeatureSpace's names for the layers of unnamed features, with a number before the end:
# `float_normalized_2_preprocessor` (feature_space.py of both flavors).
_FEATURES = frozenset(
    f"{feature}_preprocessor"
    for feature in (
        "float",
        "float_discretized",
        "float_normalized",
        "float_rescaled",
        "integer_categorical",
        "integer_hashed",
        "string_categorical",
        "string_hashed",
    )
)

_DEEP = 50  # objects of plain TensorFlow nested deeper than this wait, so that no stack overflows


class Tree:
    """The nodes of a set of live objects, each object once."""

    def __init__(self) -> None:
        self.unbuilt: list[tuple[Any, Node]] = []
        self.optimizers: list[tuple[Any, Node]] = []
        self.layers: list[tuple[Any, Node, Flavor]] = []
        self.plain: list[tuple[Any, Node]] = []
        self.inner: dict[int, list[Any]] = {}  # by id of a layer, the layers that it lists
        self.keras = False
        self._nodes: dict[int, Node] = {}
        self._keep: list[Any] = []
        self._depth = self._within_keras = 0
        self._waiting: list[tuple[Any, Node]] = []
        self._copied: set[int] = set()
        self.variables: list[Any] = []
        self.others: list[Any] = []  # objects other than variables that are values
        self._savers = any_saver()
        self._flavors = flavors()
        self._without = {bool, int, float, str, type(None)}  # classes whose objects hold no value

    def node(self, obj: Any, role: Role = Role.WEIGHT) -> Node | None:
        """The node of an object; None if it cannot hold a value.

        ``role`` is for a variable that has no node yet.
        """
        cls = type(obj)
        if cls in self._without:
            return None
        if is_variable(obj):
            return self.variable(obj, role)
        return self._nodes.get(id(obj)) or self._new(obj, role)

    def _new(self, obj: Any, role: Role) -> Node | None:
        cls = type(obj)
        if not holds_values(obj.__class__, self._flavors) and not isinstance(obj, Trackable):
            if obj.__class__ is cls:  # no proxy of another object
                self._without.add(cls)
            return None
        if (cls is tuple or cls is list) and self._without.issuperset(map(type, obj)):
            return None
        flavor = flavor_of(obj)
        self.keras |= flavor is not None
        if flavor is not None and isinstance(obj, flavor.loss_scale):
            return self._scaled(obj)
        if flavor is None and isinstance(obj, Delegating):
            return self._delegated(obj, role)
        node = Node(NodeKind.GROUP)
        self._remember(obj, node)
        self._depth += 1
        self._fill(obj, node, flavor)
        while self._depth == 1 and self._waiting:
            self._children(*self._waiting.pop())
        self._depth -= 1
        return node

    def _fill(self, obj: Any, node: Node, flavor: Flavor | None) -> None:
        if is_optimizer(obj):
            node.kind = NodeKind.OPTIMIZER
            self.optimizers.append((obj, node))
            optimizers.describe(self, obj, node)
        elif flavor is not None:
            self._within_keras += 1  # a layer looks at what is below it
            self._keras(obj, node, flavor)
            self._within_keras -= 1
        elif not isinstance(obj, (dict, list, tuple)) and (
            serializes(obj) or (self._savers and has_saver(obj))
        ):
            iterator = isinstance(obj, tf.data.Iterator)
            node.role = Role.ITERATOR if iterator else Role.OBJECT
            node.kind, node.value = NodeKind.VALUE, obj
            self.others.append(obj)
        elif self._depth > _DEEP and not self._within_keras:
            self._waiting.append((obj, node))
        else:
            self._children(obj, node)

    def _children(self, obj: Any, node: Node) -> None:
        """Walk what a list, a dict or an object of plain TensorFlow holds."""
        if isinstance(obj, dict):
            node.kind = NodeKind.LIST
            for key, value in obj.items():
                self.attach(node, str(key), value)
        elif isinstance(obj, (list, tuple)):
            node.kind, node.indexed = NodeKind.LIST, True
            for index, value in enumerate(obj):
                self.attach(node, str(index), value)
        else:
            self.plain.append((obj, node))
            for edge, child in sorted(tf.train.TrackableView.children(obj).items()):
                if is_variable(child):
                    node.children.append((escaped(edge), self.variable(child)))
                else:
                    self.attach(node, edge, child)

    def attach(self, parent: Node, edge: str, obj: Any) -> None:
        """Add an object below a node, if it can hold a value."""
        if (node := self.node(obj)) is not None:
            parent.children.append((escaped(edge), node))

    def variable(self, variable: Any, role: Role = Role.WEIGHT) -> Node:
        if (known := self._nodes.get(id(inner := raw(variable)))) is not None:
            return known
        variable = owner(variable)
        inner = raw(variable)
        if (known := self._nodes.get(id(inner))) is not None:
            return known
        if self._savers and has_saver(variable):
            role = Role.OBJECT
        node = Node(NodeKind.VALUE, label=path(variable), role=role, value=variable)
        self._remember(inner, node)
        self.variables.append(variable)
        return node

    def reaches(self, variable: Any) -> bool:
        """Whether it has a node for a variable."""
        return is_variable(variable) and (
            id(raw(variable)) in self._nodes or id(raw(owner(variable))) in self._nodes
        )

    def _remember(self, obj: Any, node: Node) -> None:
        self._nodes[id(obj)] = node
        self._keep.append(obj)  # an id is only unique while its object lives

    def _scaled(self, outer: Any) -> Node | None:
        """The node of the inner optimizer, with the values of the outer one."""
        node = self.node(outer.inner_optimizer)
        if node is not None:
            self._remember(outer, node)
            others = [(known, other) for known, other in self.optimizers if other is not node]
            self.optimizers = [*others, (outer, node)]
            optimizers.describe_scale(self, outer, node)
        return node

    def _delegated(self, obj: Any, role: Role) -> Node | None:
        """The node of the trackable that an object delegates to."""
        node = self.node(meant(obj), role)
        if node is not None:
            self._remember(obj, node)
            if node.role in (Role.OBJECT, Role.ITERATOR):
                node.value = obj  # TensorFlow's object graph has this one
        return node

    def _keras(self, obj: Any, node: Node, flavor: Flavor) -> None:
        if isinstance(obj, flavor.metric):
            for variable in obj.variables:
                node.children.append((last_name(variable), self.variable(variable, Role.METRIC)))
        elif isinstance(obj, flavor.seeds):
            self._seed(obj, node)
        else:
            self._layer(obj, node, flavor)

    def _seed(self, generator: Any, node: Node) -> None:
        state = getattr(generator, "state", None)  # Keras 3's SeedGenerator
        if state is None:  # tf_keras's RandomGenerator, stateful only on request
            state = tf_keras.seed_state(generator)
        if state is not None:
            inner = raw(state)
            node.kind, node.role, node.value = NodeKind.VALUE, Role.SEED, state
            self._remember(inner, node)
            self.variables.append(state)

    def _layer(self, layer: Any, node: Node, flavor: Flavor) -> None:
        self.layers.append((layer, node, flavor))
        node.label, node.cls = name_of(layer), snake_case(type(layer).__name__)
        bases = {flavor.automatic(type(layer).__name__), *_FEATURES}
        if isinstance(layer, flavor.sequences):
            bases |= {"functional", "model"}
        node.base = weak_base(node.label, bases)
        bookkeeping: frozenset[str] = frozenset()
        if isinstance(layer, flavor.sequences):
            bookkeeping = flavor.sequence_attributes
            node.kind = NodeKind.SEQUENCE
            node.layers = [n for inner in layer.layers if (n := self.node(inner)) is not None]
        self._copied.update(map(id, only_copied(layer, flavor)))
        if not layer.built and id(layer) not in self._copied:
            self.unbuilt.append((layer, node))
        self._states(layer)
        self.inner[id(layer)] = [*layer._flatten_layers(include_self=False, recursive=False)]
        model = isinstance(layer, flavor.model)
        for attribute, value in list(vars(layer).items()):
            if attribute in flavor.plain_attributes or attribute in bookkeeping:
                continue
            if model and attribute in OF_TRAINERS and not _has_layers(value, flavor):
                continue
            if isinstance(value, flavor.metric):
                continue
            self.attach(node, attribute, value)
        self._unnamed(layer, node, flavor)
        if model:
            self._model(layer, node, flavor)
        else:
            for metric in getattr(layer, "_metrics", ()):
                self._metric(metric, node)

    def _states(self, layer: Any) -> None:
        """Of a stateful recurrent layer: what it computed last, no weights."""
        states = getattr(layer, "states", None) if getattr(layer, "stateful", False) else None
        for state in filter(is_variable, tf.nest.flatten(states)):
            self.variable(state, Role.STATE)

    def _unnamed(self, layer: Any, node: Node, flavor: Flavor) -> None:
        """Add what Keras tracks on a layer but no attribute reaches, and its vocabulary."""
        below = _reached(node)
        own = [*either_keras.trainable_of(layer), *either_keras.others_of(layer)]
        for variable in filter(is_variable, own):  # tf_keras counts a lookup's table as a weight
            child = self.variable(variable)
            if id(child) not in below:
                node.children.append((last_name(variable), child))
        for inner in self.inner[id(layer)]:
            found = None if isinstance(inner, flavor.metric) else self.node(inner)
            if found is not None and id(found) not in below:
                # In a Python set, say. Only their order identifies them, as in a layer sequence.
                node.kind = NodeKind.SEQUENCE
                node.layers.append(found)
        generators = map(self.node, getattr(layer, "_seed_generators", ()))
        unnamed = [found for found in generators if found is not None and id(found) not in below]
        for index, found in enumerate(unnamed):
            node.children.append((f"seed_generator_{index}" if index else "seed_generator", found))
        if isinstance(layer, (flavor.lookups, flavor.bins)):
            for words in vocabularies(layer, flavor):
                self.others.append(words)
                value = Node(NodeKind.VALUE, label=words.name, role=Role.VOCABULARY, value=words)
                node.children.append((words.name, value))

    def _model(self, model: Any, node: Node, flavor: Flavor) -> None:
        optimizer = getattr(model, "optimizer", None)
        if isinstance(optimizer, flavor.optimizers):
            self.attach(node, "optimizer", optimizer)
        try:
            own = model.metrics
        except AttributeError:  # the property names what `compile` makes
            own = []
        # It may leave out some that the model holds.
        for metric in (*own, *getattr(model, "_metrics", ())):
            # Keras 3 hides the compiled metrics behind one CompileMetrics.
            for each in getattr(metric, "metrics", None) or (metric,):
                self._metric(each, node)

    def _metric(self, metric: Any, node: Node) -> None:
        child = self.node(metric)
        known = (each for _, each in node.metrics)
        if child is not None and child.children and all(each is not child for each in known):
            node.metrics.append((metric.name, child))


def _reached(node: Node) -> set[int]:
    """The ids of a node's layers and children, also of those below nodes that are not layers."""
    found: set[int] = set()
    stack = [*node.layers, *(child for _, child in node.children)]
    while stack:
        child = stack.pop()
        if id(child) in found:
            continue
        found.add(id(child))
        if child.kind is NodeKind.LIST or (child.kind is NodeKind.GROUP and not child.label):
            stack.extend(inner for _, inner in child.children)
    return found


def _has_layers(value: Any, flavor: Flavor) -> bool:
    """Whether it is a layer other than a metric, or a list or dict that holds one."""
    if isinstance(value, (list, tuple, dict)):
        inner = value.values() if isinstance(value, dict) else value
        return any(_has_layers(each, flavor) for each in inner)
    return isinstance(value, flavor.layer) and not isinstance(value, flavor.metric)


def is_value(obj: Any) -> bool:
    """Whether a non-Keras trackable is itself a value, such as a table or an iterator."""
    obj = meant(obj)
    return is_variable(obj) or serializes(obj) or (any_saver() and has_saver(obj))


def check_listed(tree: Tree) -> None:
    """Compare a tree with the lists of its layers and optimizers."""
    for name, variables in _lists(tree):
        for variable in variables:
            # tf_keras counts a lookup's table as a weight.
            if hasattr(type(variable), "assign") and not tree.reaches(variable):
                raise CoverageError(
                    f"{name}.variables has {getattr(variable, 'name', variable)!r}, which none of "
                    "its attributes that tfckpt knows leads to",
                    hint=f"nothing was done; {in_use()}",
                )


def _lists(tree: Tree) -> Iterator[tuple[str, Iterable[Any]]]:
    """Each list of variables, with the name of its owner."""
    inside: set[int] = set()
    for layer, _, _ in list(tree.layers):
        if id(layer) not in inside and layer.built:
            inside.update(map(id, with_layers_below(layer)))
            yield name_of(layer), _listed(layer)
    for optimizer, _ in list(tree.optimizers):
        if not is_v1(optimizer):
            yield type(optimizer).__name__, _listed(optimizer)


def _listed(obj: Any) -> list[Any]:
    try:
        found = obj.variables
        return list(found() if callable(found) else found)
    except Exception:  # a user's class may raise anything
        return []
