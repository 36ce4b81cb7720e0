"""The names of a model's layers, which a checkpoint shows only through its variables' names.

A variable's name is ``<scope>/…/<layer>/…/<variable>``. How many scopes precede the layer depends
on how the model was built, and a nested layer need not have opened a scope: Keras 3 builds the
inside of a layer late, in the layer's own scope. So each component that could be the layer's stays
a candidate until the layer's other variables and the other layers rule it out. If several or no
candidates are left, the name is unknown: a wrong one could match another layer.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
