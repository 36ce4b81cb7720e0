"""The names of the layers in a model or list, as far as a stored graph shows them.

A layer's name is one of the scopes in its variables' names, ``<scope>/…/<layer>/…/<variable>``; the
graph shows how many layers lead to each variable. How many scopes precede the layer depends on how
the model was built, and a nested layer need not have opened a scope: Keras 3 builds the inside of a
layer late, in the layer's own scope. So each component that could be the layer's stays a candidate
until the layer's other variables and the other layers rule it out. If several or no candidates are
left, the name is unknown: a wrong one could match another layer.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import weak_base

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfckpt.stored.formats.graph_reader import GraphReader

INNER = "_functional"
OPERATIONS = "_operations"
_DEEPEST = 64  # no writer nests layers deeper


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
    if INNER not in edges:
        return [(name, "") for name in layer_names(scopes, 0)]
    # Keras 3 builds the layers of a sequential model in its scope, all other layers in none; but
    # those of a model that is called first in the scope of that model, which is no layer's name.
    names = []
    for name, each in zip(layer_names(scopes, 1), scopes, strict=True):
        own = [scope.path for scope in each if len(scope.path) == 1]
        known = not own or reader.scopes[own[0]] == len(own)
        names.append((name if known else "", ""))
    return names


def listed_names(reader: GraphReader, layers: list[int]) -> list[tuple[str, str]]:
    """The same for layers in a list.

    Unknown where a layer built another one first: the variables then show only that one's name.
    """
    scopes = _scopes(reader, layers)
    certain = (all(len(scope.path) >= scope.depth for scope in each) for each in scopes)
    return [(name * sure, "") for name, sure in zip(layer_names(scopes), certain, strict=True)]


def attribute_names(reader: GraphReader, index: int) -> dict[int, str]:
    """Node of each (possible) layer that an attribute of a node leads to → its name, if known."""
    top = reader.levels[index]
    layers = [
        target
        for target in dict.fromkeys(reader.edges[index].values())
        if reader.levels[target] > top
        and not (reader.nodes[target].attributes or reader.is_container(target))
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
    below = [_variables(reader, layer) for layer in layers]
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


def _variables(reader: GraphReader, index: int) -> list[tuple[int, int, int]]:
    """``(depth, sequences, variable)`` below a layer: how many layers, and models, lead to it.

    What is as near to the root as the layer is not below it: a block may refer to its model. Empty
    if layers are nested too deeply for a name.
    """
    found, top = [], reader.levels[index]
    seen, todo = {index}, [(1, int(reader.is_sequence(index)), index)]
    while todo:
        depth, sequences, current = todo.pop()
        if depth > _DEEPEST:
            return []
        if reader.is_sequence(current) or not reader.is_optimizer(current):
            for child in _below(reader, current):
                if child in seen:
                    continue
                seen.add(child)
                if reader.nodes[child].attributes:
                    found.append((depth, sequences, child))
                elif reader.levels[child] <= top:
                    continue
                elif reader.is_container(child):
                    todo.append((depth, sequences, child))
                else:
                    todo.append((depth + 1, sequences + reader.is_sequence(child), child))
    return found


def _below(reader: GraphReader, index: int) -> Iterable[int]:
    if reader.is_sequence(index):
        return reader.sequence_layers(index)
    return reader.edges[index].values()


Path = tuple[str, ...]


class Scope(NamedTuple):
    """Where a variable of a layer was made.

    Attributes:
        path: the variable's own name without the last component.
        depth: how many layers lead to it, the layer in question included.
        sequences: how many of them are functional or sequential models.
    """

    path: Path
    depth: int = 1
    sequences: int = 0


def layer_names(layers: Sequence[Sequence[Scope]], usual: int | None = None) -> list[str]:
    """The name of each layer, "" if unknown; ``layers`` has the scopes of each layer's variables.

    ``usual`` is how many scopes normally precede a layer's name; None in a list of layers.

    >>> cell, dense = Scope(("net", "lstm", "lstm_cell"), depth=2), Scope(("net", "dense"))
    >>> layer_names([[cell], [dense]])
    ['lstm', 'dense']
    >>> layer_names([[Scope(("net",))], [Scope(("net",))]])
    ['', '']
    """
    return _unique([path[-1] if path else "" for path in _paths(layers, usual)])


def slashed_names(layers: Sequence[Sequence[Scope]]) -> list[tuple[str, str]]:
    """The name of each layer if names may contain slashes, and its name if they may not.

    In tf_keras `conv1/conv` is a layer of that name, or `conv` made by a layer `conv1`. If other
    layers of the model have other scopes, it is the former: a model makes its layers in one scope.

    >>> slashed_names([[Scope(("conv1", "conv"))], [Scope(("conv1", "bn"))], [Scope(("fc",))]])
    [('conv1/conv', 'conv'), ('conv1/bn', 'bn'), ('fc', 'fc')]
    >>> slashed_names([[Scope(("net", "a"))], [Scope(("net", "b"))]])
    [('a', 'a'), ('b', 'b')]
    """
    paths = _paths(layers, 0)
    parents = [path[:-1] for path in paths if path]
    sides = zip(*parents, strict=False)
    common = sum(1 for _ in takewhile(lambda scopes: len(set(scopes)) == 1, sides))
    long = _unique(["/".join(path[common:]) for path in paths])
    return list(zip(long, _unique([path[-1] if path else "" for path in paths]), strict=True))


def _paths(layers: Sequence[Sequence[Scope]], usual: int | None) -> list[Path]:
    """The scopes that lead to each layer, its own last; () if unknown."""
    users = Counter(prefix for scopes in layers for prefix in _all_prefixes(scopes))
    possible = [[p for p in _possible(scopes) if users[p] == 1] for scopes in layers]
    parents = Counter(prefixes[0][:-1] for prefixes in possible if len(prefixes) == 1)
    paths: list[Path] = []
    for prefixes in possible:
        ranks = [(len(prefix) - 1 == usual, parents[prefix[:-1]]) for prefix in prefixes]
        best = [p for p, rank in zip(prefixes, ranks, strict=True) if rank == max(ranks)]
        paths.append(best[0] if len(best) == 1 else ())
    return paths


def _unique(names: list[str]) -> list[str]:
    times = Counter(names)
    return [name if times[name] == 1 else "" for name in names]


def _all_prefixes(scopes: Iterable[Scope]) -> set[Path]:
    return {scope.path[:end] for scope in scopes for end in range(len(scope.path) + 1)}


def _possible(scopes: Iterable[Scope]) -> list[Path]:
    """The prefixes that may end in a layer's name, from its own variables alone."""
    candidates: list[set[Path]] = []
    for path, depth, sequences in scopes:
        # Each layer in between adds one component or none; an inner model always adds one.
        ends = range(max(1, len(path) - depth + 1), len(path) - sequences + 1)
        if path:  # else made outside of any layer, like those of a tf.Module
            candidates.append({path[:end] for end in ends})
    if not candidates:
        return []
    if common := set.intersection(*candidates):
        return sorted(common)
    # A variable added later, by LoRA for example, has the layer's scope and none before it.
    last = set.intersection(*({prefix[-1] for prefix in prefixes} for prefixes in candidates))
    longest = {prefix[-1]: prefix for prefix in sorted(set.union(*candidates), key=len)}
    return [longest[name] for name in sorted(last)]
