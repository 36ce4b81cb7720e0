"""Traits that distinguish live layers with automatic names, besides their names and order.

These are their connections, their settings, and whether a name only looks automatic. Keras does not
record whether a user chose a name, but it counts the names that it generates. A number beyond the
count was chosen by a user, or read from a configuration, or Keras has reset its count since
(``clear_session``). In the last two cases no automatic name of the model is within the count. So a
name counts as chosen only if the model or one of its layers (an unnamed input, say) has a name
within the count, and if the numbers are not consecutive as Keras's are.
"""

from __future__ import annotations

import types
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role, digest, name_number, unnumbered
from tfckpt.core.names import NodeKind, walk
from tfckpt.core.topology import Graph, LayerCall, Tensor, on_branches, wires
from tfckpt.live.private import either_keras
from tfckpt.live.variables import raw

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from tfckpt.core.names import Node
    from tfckpt.live.flavors import Flavor
    from tfckpt.live.tree import Tree

if TYPE_CHECKING:
    _Found = tuple[Any, Node, Flavor]


_OF_EACH = frozenset({"name", "built"})
_PLAIN = frozenset({bool, int, float, str, type(None)})
_NAMED = (types.FunctionType, types.BuiltinFunctionType, type)


def given_names(tree: Tree) -> frozenset[int]:
    """The ids of the nodes of layers whose names look automatic, but were chosen by a user."""
    found: set[int] = set()
    held: set[int] = set()
    for parent, _, flavor in list(tree.layers):
        if inner := tree.inner[id(parent)]:  # alone, no layer has the name of another
            nodes = [n for layer in (parent, *inner) if (n := tree.node(layer)) is not None]
            held.update(map(id, nodes))
            found |= _chosen(nodes, flavor)
    # Keras does not list the layers of a tf.Module
    others = [(node, flavor) for _, node, flavor in tree.layers if id(node) not in held]
    for flavor in {flavor for _, flavor in others}:
        found |= _chosen([node for node, each in others if each is flavor], flavor)
    return frozenset(found)


def _chosen(nodes: Iterable[Node], flavor: Flavor) -> set[int]:
    """Those that have the name of another one, or one beyond Keras's count."""
    judged = [node for node in dict.fromkeys(nodes) if _judged(node)]
    times = Counter(node.label for node in judged)
    found = {id(node) for node in judged if times[node.label] > 1}
    beyond = [node for node in judged if not _counted(node, flavor)]
    if len(beyond) < len(judged):
        in_turn = _in_turn(judged, flavor)
        found |= {id(node) for node in beyond if unnumbered(node.label) not in in_turn}
    return found


def _in_turn(nodes: Sequence[Node], flavor: Flavor) -> set[str]:
    """The automatic names that are numbered consecutively from a number that Keras has used.

    Keras generated them if it has reset its count since, or has another count in this thread
    (keras/src/backend/common/global_state.py).
    """
    numbers: dict[str, list[int]] = {}
    for node in nodes:
        numbers.setdefault(unnumbered(node.label), []).append(name_number(node.label))
    return {
        base
        for base, (first, *others) in numbers.items()
        if first < flavor.counted(base) and others == [*range(first + 1, first + 1 + len(others))]
    }


def _judged(node: Node) -> bool:
    """Whether Keras may have numbered the name by class, not by the name of a feature."""
    return bool(node.base) and not node.base.endswith("_preprocessor")


def _counted(node: Node, flavor: Flavor) -> bool:
    """Whether Keras may have generated the name in this process."""
    number = name_number(node.label)
    base = unnumbered(node.label)
    return node.label == (f"{base}_{number}" if number else base) and (
        number < flavor.counted(base)
    )


class Traits:
    """What distinguishes the layers of a tree besides names and order.

    What may change is taken from the layers now; :meth:`store` looks at nothing else.
    """

    def __init__(self, tree: Tree) -> None:
        given = given_names(tree)
        for layer, node, _ in tree.layers:
            node.given = not node.base or id(node) in given
            node.trainable = getattr(layer, "trainable", None)  # tf_keras's FeatureSpace has none
        self._attributes = [(node, _attributes(layer)) for layer, node, _ in tree.layers]
        self._functional = [_taken(tree, *found) for found in _functional(tree)]

    def store(self) -> None:
        """Store it at the nodes."""
        for node, found in self._attributes:
            parts = [f"{name} {getattr(value, '__name__', value)!r}" for name, value in found]
            node.settings = digest(sorted(parts))
        for node, graph, nodes in self._functional:
            _connect(node, graph(), nodes)


def _taken(
    tree: Tree, model: Any, node: Node, flavor: Flavor
) -> tuple[Node, Callable[[], Graph], dict[int, Node]]:
    """A functional model's node, its graph, and the nodes of its layers by their ids."""
    layers = model.layers
    node.sizes = len(layers), len(getattr(model, "operations", layers))
    nodes = {id(each): found for each in layers if (found := tree.node(each))}
    return node, partial(_graph, [*model.inputs], [*model.outputs], flavor), nodes


def _connect(model: Node, graph: Graph, nodes: Mapping[int, Node]) -> None:
    """Store how the layers of a functional model are connected."""
    shapes = {key: sides for key, each in nodes.items() if (sides := _shapes(each))}
    model.wires = wires(graph, {key: nodes[key] for key in shapes})
    alike: dict[Hashable, list[int]] = {}
    for key, of_weights in shapes.items():
        each = nodes[key]
        alike.setdefault((each.base or each.cls, of_weights), []).append(key)
    groups = [group for group in alike.values() if len(group) > 1]
    for key in on_branches(graph, groups) if groups else ():
        nodes[key].beside = True


def _shapes(layer: Node) -> tuple[str, ...]:
    """Of the weights of a layer."""
    below = [child for _, child in layer.children]
    if layer.layers or any(child.kind is not NodeKind.VALUE for child in below):
        below = [*walk(layer)]
    values = (each for each in below if each.kind is NodeKind.VALUE)
    return tuple(sorted(str(raw(v.value).shape) for v in values if v.role is Role.WEIGHT))


def _functional(tree: Tree) -> Iterator[_Found]:
    # tf_keras's Sequential is a functional model, which has no inputs before it is built.
    return (
        (model, node, flavor)
        for model, node, flavor in tree.layers
        if isinstance(model, flavor.functional) and model.inputs and model.outputs
    )


def _graph(inputs: Sequence[Any], outputs: Sequence[Any], flavor: Flavor) -> Graph:
    layers: dict[Any, Any] = {}

    def tensors(found: Iterable[Any]) -> list[Tensor]:
        histories = [getattr(x, "_keras_history", (x, 0, 0)) for x in found]
        layers.update({id(layer): layer for layer, _, _ in histories})
        return [Tensor(id(layer), call, output) for layer, call, output in histories]

    def call(tensor: Tensor) -> LayerCall | None:
        layer = layers[tensor.layer]
        nodes = either_keras.calls_of(layer)
        if tensor.call >= len(nodes):  # an input, or a node that was removed
            return None
        return LayerCall(type(layer).__name__, tensors(flavor.inputs(nodes[tensor.call])))

    return Graph(tensors(inputs), tensors(outputs), call)


class _Text(str):
    """The ``repr`` of a list as it was."""

    __slots__ = ()
    __repr__ = str.__str__


def _attributes(layer: Any) -> list[tuple[str, Any]]:
    """A layer's public plain attributes, and its functions."""
    found: list[tuple[str, Any]] = []
    for name, value in vars(layer).items():
        if name[:1] == "_" or name in _OF_EACH:
            continue
        cls = type(value)
        if cls in _PLAIN or issubclass(cls, _NAMED):
            found.append((name, value))
        elif issubclass(cls, (list, tuple)) and all(type(each) in _PLAIN for each in value):
            found.append((name, _Text(repr(value))))
    return found
