"""The names of the layers in a model or list, as far as a stored graph shows them.

A layer's name is one of the scopes in its variables' names
(:mod:`tfckpt.stored.graphs.layer_names`); the graph shows how many layers lead to each variable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core.inventory import weak_base
from tfckpt.stored.graphs.layer_names import Scope, layer_names, slashed_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfckpt.stored.graphs.reader import GraphReader

INNER = "_functional"
OPERATIONS = "_operations"


def sequence_names(
    reader: GraphReader, layers: list[int], edges: Mapping[str, int]
) -> list[tuple[str, str]]:
    """The name of each layer of a functional or sequential model, and an alternative or ``""``.

    ``layers`` are nodes of the graph, ``edges`` those of the model.
    """
    scopes = _scopes(reader, layers)
    if not {INNER, OPERATIONS} & edges.keys():
        return [
            (long if long and not weak_base(short, reader.bases) else short, short)
            for long, short in slashed_names(scopes)
        ]
    # Keras 3 builds the layers of a sequential model in its scope, all other layers in none.
    return [(name, "") for name in layer_names(scopes, 1 if INNER in edges else 0)]


def listed_names(reader: GraphReader, layers: list[int]) -> list[tuple[str, str]]:
    """The same for layers in a list.

    Unknown where a layer built another one first: the variables then show only that one's name.
    """
    scopes = _scopes(reader, layers)
    certain = (all(len(scope.path) >= scope.depth for scope in each) for each in scopes)
    return [(name * sure, "") for name, sure in zip(layer_names(scopes), certain, strict=True)]


def attribute_names(reader: GraphReader, edges: Mapping[str, int]) -> dict[int, str]:
    """Node of each (possible) layer that an attribute leads to → its name, if known."""
    layers = [
        target
        for target in dict.fromkeys(edges.values())
        if not (reader.nodes[target].attributes or reader.is_container(target))
        and not reader.is_optimizer(target)
    ]
    variable_names = (name for name, _ in listed_names(reader, layers))
    labels = {
        layer: reader.label(layer) or name
        for layer, name in zip(layers, variable_names, strict=True)
    }
    return {layer: name for layer, name in labels.items() if name}


def _scopes(reader: GraphReader, layers: list[int]) -> list[list[Scope]]:
    """The scopes below each layer; a variable below several belongs to the nearest."""
    below = [list(_variables(reader, layer)) for layer in layers]
    nearest: dict[int, int] = {}
    for variables in below:
        for depth, _, variable in variables:
            nearest[variable] = min(depth, nearest.get(variable, depth))
    return [
        [
            Scope(tuple(reader.full_name(variable).split("/")[:-1]), depth, sequences)
            for depth, sequences, variable in variables
            if depth == nearest[variable]
        ]
        for variables in below
    ]


def _variables(reader: GraphReader, index: int) -> Iterator[tuple[int, int, int]]:
    """``(depth, sequences, variable)`` below a layer: how many layers, and models, lead to it."""
    seen, todo = {index}, [(1, int(reader.is_sequence(index)), index)]
    while todo:
        depth, sequences, current = todo.pop()
        if reader.is_sequence(current) or not reader.is_optimizer(current):
            for child in _below(reader, current):
                if child in seen:
                    continue
                seen.add(child)
                if reader.nodes[child].attributes:
                    yield depth, sequences, child
                elif reader.is_container(child):
                    todo.append((depth, sequences, child))
                else:
                    todo.append((depth + 1, sequences + reader.is_sequence(child), child))


def _below(reader: GraphReader, index: int) -> Iterable[int]:
    if reader.is_sequence(index):
        return reader.sequence_layers(index)
    return reader.edges[index].values()
