"""What tells live layers of automatic names from each other, beside their names and their order.

What feeds them and what they feed, what they were made with, and whether a name only looks
automatic. Keras notes of no name who gave it; but it counts the names that it gives. One beyond the
count was given, or was read from a configuration, or Keras has forgotten its count since
(``clear_session``). In the latter cases no automatic name of the model is within the count; so a
name is taken for a given one only beside one that is: of the model that holds it, or of a layer of
that, an unnamed input say; and only where the numbers are not those that Keras gives in turn.
"""

from __future__ import annotations

import dataclasses
import re
import types
from typing import TYPE_CHECKING, Any

from tfckpt.core.automatic_names import name_number
from tfckpt.core.topology import Graph, LayerCall, Tensor, digest, wires

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tfckpt.core.inventory import Layer
    from tfckpt.core.names import Names, Node
    from tfckpt.live.objects.tree import Tree
    from tfckpt.live.variables.flavours import Flavour

    _Found = tuple[Any, Node, Flavour]

_OF_EACH = frozenset({"name", "built"})
_PLAIN = (bool, int, float, str, type(None))
_NAMED = (types.FunctionType, types.BuiltinFunctionType, type)


def given_names(tree: Tree) -> frozenset[int]:
    """The ids of the nodes of layers whose names look automatic, and were given."""
    found: set[int] = set()
    for parent, _, flavour in list(tree.layers):
        inner = parent._flatten_layers(include_self=True, recursive=False)
        nodes = [n for layer in inner if (n := tree.node(layer)) is not None and _judged(n)]
        beyond = [node for node in nodes if not _counted(node, flavour)]
        if len({id(node) for node in beyond}) < len({id(node) for node in nodes}):
            in_turn = _in_turn(nodes, flavour)
            found |= {id(node) for node in beyond if _base(node) not in in_turn}
    return frozenset(found)


def _in_turn(nodes: Sequence[Node], flavour: Flavour) -> set[str]:
    """The automatic names that are numbered in turn from 0, or from a number that Keras has given.

    Keras has given them where it has begun its count anew since, or keeps another one for this
    thread (keras/src/backend/common/global_state.py).
    """
    numbers: dict[str, list[int]] = {}
    for node in dict.fromkeys(nodes):
        numbers.setdefault(_base(node), []).append(name_number(node.label))
    return {
        base
        for base, (first, *others) in numbers.items()
        if first < flavour.counted(base) and others == [*range(first + 1, first + 1 + len(others))]
    }


def _base(node: Node) -> str:
    return re.sub(r"_\d+$", "", node.label)


def _judged(node: Node) -> bool:
    """Whether Keras may have given the name by its count of the class, not by a feature's name."""
    return bool(node.base) and not node.base.endswith("_preprocessor")


def _counted(node: Node, flavour: Flavour) -> bool:
    """Whether the process may have given the name itself."""
    number = name_number(node.label)
    base = _base(node)
    return node.label == (f"{base}_{number}" if number else base) and (
        number < flavour.counted(base)
    )


def wire(tree: Tree) -> None:
    """Note at the node of each functional model how its layers are wired."""
    for model, node, flavour in tree.layers:
        # tf_keras's Sequential is a functional model, which has no inputs before it is built.
        if isinstance(model, flavour.functional) and model.inputs and model.outputs:
            nodes = {id(each): found for each in model.layers if (found := tree.node(each))}
            node.wires = wires(_graph(model, flavour), nodes)


def _graph(model: Any, flavour: Flavour) -> Graph:
    layers: dict[Any, Any] = {}

    def tensors(found: Iterable[Any]) -> list[Tensor]:
        told = [getattr(x, "_keras_history", (x, 0, 0)) for x in found]
        layers.update({id(layer): layer for layer, _, _ in told})
        return [Tensor(id(layer), call, output) for layer, call, output in told]

    def call(tensor: Tensor) -> LayerCall | None:
        layer = layers[tensor.layer]
        nodes = getattr(layer, "_inbound_nodes", ())
        if tensor.call >= len(nodes):  # an input, or what somebody has taken out
            return None
        return LayerCall(type(layer).__name__, tensors(flavour.inputs(nodes[tensor.call])))

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
    for path, told in named.sequences.items():
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
        name: value.__name__ if issubclass(type(value), _NAMED) else value
        for name, value in vars(layer).items()
        if not name.startswith("_") and name not in _OF_EACH
    }
    return digest(f"{name} {value!r}" for name, value in sorted(told.items()) if _plain(value))


def _plain(value: Any) -> bool:
    if issubclass(type(value), (list, tuple)):
        return all(type(each) in _PLAIN for each in value)
    return type(value) in _PLAIN
