"""Which seed is whose.

The seed of a layer with weights is where the layer is, as its weights are. Whose is
``seed/dropout_1`` after a Dropout was removed? It has no position in a layer sequence, so only the
number in its name identifies its layer. If the two sides have different numbers of seeds of one
class, those numbers mean nothing: none of these seeds is loaded, and the plan notes it. Names that
do not count up from the bare one, such as ``drop_1`` and ``drop_2``, were chosen by the user and
are trusted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.core.names import MODEL, SEED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.policy import Policy

_NUMBERED = re.compile(r"(.+)_([1-9]\d{0,8})")
_Class = tuple[str, str]


def layer_of(seed: str) -> str:
    """The path of the layer that has a seed.

    >>> layer_of("seed/encoder/dropout"), layer_of("generator/seed/dropout")
    ('model/encoder/dropout', 'generator/dropout')
    """
    root, _, path = f"/{seed}".partition(f"/{SEED}/")
    return f"{root.removeprefix('/') or MODEL}/{path}"


def seed_of(layer: str) -> str:
    """The name of a layer's seed.

    >>> seed_of("model/encoder/dropout"), seed_of("generator/dropout")
    ('seed/encoder/dropout', 'generator/seed/dropout')
    """
    root, _, path = layer.partition("/")
    return f"{SEED}/{path}" if root == MODEL else f"{root}/{SEED}/{path}"


class Seeds:
    """The seeds of two inventories, by class of layer."""

    def __init__(self, policy: Policy, stored: Inventory, live: Inventory) -> None:
        self._old, self._new = _classes(stored), _classes(live)
        self._trusted = tuple(policy.match) == ("name",)

    def ambiguity(self, seed: Entry) -> str:
        """Why a stored or live seed should not be matched by name; ``""`` if it may be."""
        if seed.role is not Role.SEED or self._trusted:
            return ""
        for parent_and_base, _ in _components(seed.name):
            old, new = self._old.get(parent_and_base, set()), self._new.get(parent_and_base, set())
            if old and new and len(old) != len(new) and _automatic(old) and _automatic(new):
                path = "/".join(filter(None, parent_and_base))
                return (
                    f"{path!r} has {len(new)} automatic names in the model and {len(old)} in the "
                    "checkpoint, so which seed belongs to which layer is unknown"
                )
        return ""


def _classes(inventory: Inventory) -> dict[_Class, set[int]]:
    """Parent and name without number → the numbers that occur, 0 for none."""
    numbers: dict[_Class, set[int]] = {}
    for entry in inventory.entries.values():
        if entry.role is Role.SEED:
            for parent_and_base, number in _components(entry.name):
                numbers.setdefault(parent_and_base, set()).add(number)
    return numbers


def _components(name: str) -> Iterator[tuple[_Class, int]]:
    path = ""
    for component in name.split("/"):
        numbered = _NUMBERED.fullmatch(component)
        base, number = numbered.groups() if numbered else (component, 0)
        yield (path, base), int(number)
        path = f"{path}/{component}" if path else component


def _automatic(numbers: set[int]) -> bool:
    return numbers == set(range(len(numbers)))
