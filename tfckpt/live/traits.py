"""What tells live layers of automatic names from each other, beside their names and their order.

What feeds them and what they feed, what they were made with, and whether a name only looks
automatic. Keras notes of no name who gave it; but it counts the names that it gives. One beyond the
count was given, or was read from a configuration, or Keras has forgotten its count since
(``clear_session``). In the latter cases no automatic name of the model is within the count; so a
name is taken for a given one only beside one that is: of the model that holds it, or of a layer of
that, an unnamed input say.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from tfckpt.automatic_names import name_number
from tfckpt.wiring import Call, Graph, Tensor, digest, wires

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tfckpt.live.flavours import Flavour
    from tfckpt.live.tree import Tree
    from tfckpt.names import Names, Node
    from tfckpt.records import Layer

    _Found = tuple[Any, Node, Flavour]

_OF_EACH = frozenset({"name", "built"})
_PLAIN = (bool, int, float, str, type(None))


def given_names(tree: Tree) -> frozenset[int]:
    """The ids of the nodes of layers whose names look automatic, and were given."""
    found: set[int] = set()
    for parent, _, flavour in list(tree.layers):
        inner = parent._flatten_layers(include_self=True, recursive=False)
        nodes = [n for layer in inner if (n := tree.node(layer)) is not None and _judged(n)]
        beyond = {id(node) for node in nodes if not _counted(node, flavour)}
        if len(beyond) < len({id(node) for node in nodes}):
            found |= beyond
    return frozenset(found)


def _judged(node: Node) -> bool:
    """Whether Keras may have given the name by its count of the class, not by a feature's name."""
    return bool(node.base) and not node.base.endswith("_preprocessor")


def _counted(node: Node, flavour: Flavour) -> bool:
    """Whether the process may have given the name itself."""
    number = name_number(node.label)
    base = re.sub(r"_\d+$", "", node.label)
    return node.label == (f"{base}_{number}" if number else base) and (
        number < flavour.counted(base)
    )


def wire(tree: Tree) -> None:
    """Note at the node of each functional model how its layers are wired."""
    for model, node, flavour in tree.layers:
        if isinstance(model, flavour.functional):
            nodes = {id(each): found for each in model.layers if (found := tree.node(each))}
            node.wires = wires(_graph(model, flavour), nodes)


def _graph(model: Any, flavour: Flavour) -> Graph:
    layers: dict[Any, Any] = {}

    def tensors(found: Iterable[Any]) -> list[Tensor]:
        told = [getattr(x, "_keras_history", (x, 0, 0)) for x in found]
        layers.update({id(layer): layer for layer, _, _ in told})
        return [Tensor(id(layer), call, output) for layer, call, output in told]

    def call(tensor: Tensor) -> Call | None:
        layer = layers[tensor.layer]
        nodes = getattr(layer, "_inbound_nodes", ())
        if not nodes:
            return None
        return Call(type(layer).__name__, tensors(flavour.inputs(nodes[tensor.call])))

    return Graph(tensors(model.inputs), tensors(model.outputs), call)


def with_traits(tree: Tree, named: Names, given: Collection[int]) -> dict[str, tuple[Layer, ...]]:
    """The layers of each stack with what else tells them, beside their wires.

    Args:
        tree: of the live objects.
        named: their names.
        given: the nodes of layers whose names were given.
    """
    layers = {named.paths[id(n)]: each for each in tree.layers if id(n := each[1]) in named.paths}
    found = {}
    for path, told in named.stacks.items():
        below = ((one, f"{path}/{one.name}") for one in told)
        pairs = [(one, layers.get(named.aliases.get(at, at))) for one, at in below]
        found[path] = tuple(
            one if pair is None else _told(one, pair, given=id(pair[1]) in given)
            for one, pair in pairs
        )
    return found


def _told(one: Layer, pair: _Found, *, given: bool) -> Layer:
    layer, node, _ = pair
    label = node.label if given and not one.base else one.label  # a name in a list
    traits = one.traits._replace(settings=_settings(layer), given=given)
    return dataclasses.replace(one, label=label, traits=traits)


def _settings(layer: Any) -> str:
    """What a layer was made with, as far as it keeps that in plain values, and its functions."""
    told = {
        name: getattr(value, "__name__", value)
        for name, value in vars(layer).items()
        if not name.startswith("_") and name not in _OF_EACH
    }
    return digest(f"{name} {value!r}" for name, value in sorted(told.items()) if _plain(value))


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(each, _PLAIN) for each in value)
    return isinstance(value, _PLAIN)
