"""Checks that a tree reaches every variable that Keras lists in public.

The tree follows attributes, many of them private. What ``layer.variables`` and
``optimizer.variables`` list and the tree does not reach would be left out of a save.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.core.versions import in_use
from tfckpt.errors import CoverageError
from tfckpt.live.private.either_keras import with_layers_below
from tfckpt.live.variables.flavors import is_v1, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfckpt.live.objects.tree import Tree


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
