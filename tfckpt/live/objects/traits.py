"""Traits that distinguish live layers with automatic names, besides their names and order.

These are their connections, their settings, and whether a name only looks automatic. Keras does not
record whether a user chose a name, but it counts the names that it generates. A number beyond the
count was chosen by a user, or read from a configuration, or Keras has reset its count since
(``clear_session``). In the last two cases no automatic name of the model is within the count. So a
name counts as chosen only if the model or one of its layers (an unnamed input, say) has a name
within the count, and if the numbers are not consecutive as Keras's are.
"""

from __future__ import annotations

import dataclasses
import types
from collections import Counter
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import digest, name_number, unnumbered
from tfckpt.core.topology import (
    Graph,
    LayerCall,
    LayerGraph,
    Tensor,
    named_calls,
    wires,
)
from tfckpt.live.private import either_keras

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

    from tfckpt.core.inventory import Layer
    from tfckpt.core.names import Names, Node
    from tfckpt.live.objects.tree import Tree
    from tfckpt.live.variables.flavors import Flavor

    _Found = tuple[Any, Node, Flavor]

_OF_EACH = frozenset({"name", "built"})
_PLAIN = (bool, int, float, str, type(None))
_NAMED = (types.FunctionType, types.BuiltinFunctionType, type)


def given_names(tree: Tree) -> frozenset[int]:
    """The ids of the nodes of layers whose names look automatic, but were chosen by a user."""
    found: set[int] = set()
    held: set[int] = set()
    for parent, _, flavor in list(tree.layers):
        inner = either_keras.layers_of(parent)
        nodes = [n for layer in (parent, *inner) if (n := tree.node(layer)) is not None]
        held.update(map(id, nodes if inner else ()))
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


def wire(tree: Tree) -> None:
    """Store at the node of each functional model how its layers are connected."""
    for model, node, flavor in _functional(tree):
        nodes = {id(each): found for each in model.layers if (found := tree.node(each))}
        node.wires = wires(_graph(model, flavor), nodes)


def graphs(tree: Tree, named: Names) -> dict[str, LayerGraph]:
    """Path of each functional model → how its layers are connected."""
    found = {}
    for model, node, flavor in _functional(tree):
        if (path := named.paths.get(id(node))) is not None:
            weighty = {
                f"{path}/{layer.name}": layer.name for layer in named.sequences.get(path, ())
            }
            paths = ((id(each), named.paths.get(id(tree.node(each)), "")) for each in model.layers)
            names: dict[Hashable, str] = {key: weighty[at] for key, at in paths if at in weighty}
            found[path] = LayerGraph(
                named_calls(_graph(model, flavor), names),
                (len(model.layers), len(getattr(model, "operations", model.layers))),
            )
    return found


def _functional(tree: Tree) -> Iterator[_Found]:
    # tf_keras's Sequential is a functional model, which has no inputs before it is built.
    return (
        (model, node, flavor)
        for model, node, flavor in tree.layers
        if isinstance(model, flavor.functional) and model.inputs and model.outputs
    )


def _graph(model: Any, flavor: Flavor) -> Graph:
    layers: dict[Any, Any] = {}

    def tensors(found: Iterable[Any]) -> list[Tensor]:
        histories = [either_keras.history_of(x) for x in found]
        layers.update({id(layer): layer for layer, _, _ in histories})
        return [Tensor(id(layer), call, output) for layer, call, output in histories]

    def call(tensor: Tensor) -> LayerCall | None:
        layer = layers[tensor.layer]
        nodes = either_keras.calls_of(layer)
        if tensor.call >= len(nodes):  # an input, or a node that was removed
            return None
        return LayerCall(type(layer).__name__, tensors(flavor.inputs(nodes[tensor.call])))

    return Graph(tensors(model.inputs), tensors(model.outputs), call)


def with_traits(tree: Tree, named: Names, given: Collection[int]) -> dict[str, tuple[Layer, ...]]:
    """The layers of each layer sequence, with their traits besides the connections.

    ``given`` holds the ids of nodes whose names were chosen by a user.
    """
    layers = {named.paths[id(n)]: each for each in tree.layers if id(n := each[1]) in named.paths}
    found = {}
    for path, described_layers in named.sequences.items():
        below = ((described, f"{path}/{described.name}") for described in described_layers)
        pairs = [(described, layers.get(named.aliases.get(at, at))) for described, at in below]
        found[path] = tuple(
            described
            if pair is None
            else _layer_with_traits(described, pair, given=id(pair[1]) in given)
            for described, pair in pairs
        )
    return found


def _layer_with_traits(described: Layer, pair: _Found, *, given: bool) -> Layer:
    layer, node, _ = pair
    label = node.label if given and not described.base else described.label  # a name in a list
    traits = described.traits._replace(settings=_settings(layer), given=given)
    return dataclasses.replace(described, label=label, traits=traits)


def _settings(layer: Any) -> str:
    """A digest of a layer's public plain attributes and the names of its functions."""
    settings = {
        name: value.__name__ if issubclass(type(value), _NAMED) else value
        for name, value in vars(layer).items()
        if not name.startswith("_") and name not in _OF_EACH
    }
    return digest(
        [f"{name} {value!r}" for name, value in sorted(settings.items()) if _plain(value)]
    )


def _plain(value: Any) -> bool:
    if issubclass(type(value), (list, tuple)):
        return all(type(each) in _PLAIN for each in value)
    return type(value) in _PLAIN
