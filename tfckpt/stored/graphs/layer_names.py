"""The names of a stack's layers, which a checkpoint tells only through its variables' names.

A variable's name is ``<scope>/…/<layer>/…/<variable>``. How many scopes stand before the layer
depends on how the model was built, and what lies between layer and variable need not have opened
one: Keras 3 builds the inside of a layer late, in the layer's own scope. So each part of the name
that could be the layer's stays in question until the layer's other variables and the other layers
rule it out. Where two are left, or none, the name is not known: a wrong one could match.
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
        depth: how many layers lead to it, the layer in question among them.
        stacks: how many of them are functional or sequential models.
    """

    path: Path
    depth: int = 1
    sequences: int = 0


def layer_names(layers: Sequence[Sequence[Scope]], usual: int | None = None) -> list[str]:
    """The name of each layer of a stack, "" where it is not known.

    Args:
        layers: per layer, where its variables were made.
        usual: how many scopes stand before a layer's name in such a stack, as a rule; None where
            there is no rule, as in a list of layers.

    >>> cell, dense = Scope(("net", "lstm", "lstm_cell"), depth=2), Scope(("net", "dense"))
    >>> layer_names([[cell], [dense]])
    ['lstm', 'dense']
    >>> layer_names([[Scope(("net",))], [Scope(("net",))]])
    ['', '']
    """
    return _unique([path[-1] if path else "" for path in _paths(layers, usual)])


def slashed_names(layers: Sequence[Sequence[Scope]]) -> list[tuple[str, str]]:
    """The name of each layer where names may have slashes in them, and the name if it has none.

    In tf_keras `conv1/conv` is a layer of that name, or `conv` that another layer `conv1` made. If
    other layers of the stack were made elsewhere, it is the former: a stack makes its layers in one
    scope.

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
    """The scopes that lead to each layer, its own last; () where they are not known."""
    users = Counter(prefix for scopes in layers for prefix in _all_prefixes(scopes))
    possible = [[p for p in _possible(scopes) if users[p] == 1] for scopes in layers]
    parents = Counter(found[0][:-1] for found in possible if len(found) == 1)
    paths: list[Path] = []
    for found in possible:
        ranks = [(len(prefix) - 1 == usual, parents[prefix[:-1]]) for prefix in found]
        best = [p for p, rank in zip(found, ranks, strict=True) if rank == max(ranks)]
        paths.append(best[0] if len(best) == 1 else ())
    return paths


def _unique(names: list[str]) -> list[str]:
    times = Counter(names)
    return [name if times[name] == 1 else "" for name in names]


def _all_prefixes(scopes: Iterable[Scope]) -> set[Path]:
    return {scope.path[:end] for scope in scopes for end in range(len(scope.path) + 1)}


def _possible(scopes: Iterable[Scope]) -> list[Path]:
    """The prefixes that end in a layer's name, as far as its own variables tell."""
    told: list[set[Path]] = []
    for path, depth, sequences in scopes:
        # Each layer in between adds a component or none; one in an inner stack always does.
        ends = range(max(1, len(path) - depth + 1), len(path) - sequences + 1)
        if path:  # else made outside of any layer, as a tf.Module's are
            told.append({path[:end] for end in ends})
    if not told:
        return []
    if common := set.intersection(*told):
        return sorted(common)
    # A variable that came later, LoRA's, stands in the layer's scope and in none before it.
    last = set.intersection(*({prefix[-1] for prefix in prefixes} for prefixes in told))
    longest = {prefix[-1]: prefix for prefix in sorted(set.union(*told), key=len)}
    return [longest[name] for name in sorted(last)]
