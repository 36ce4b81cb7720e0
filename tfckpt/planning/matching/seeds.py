"""Random seeds of unnamed layers: whose is ``seed/dropout_1`` after a Dropout went away?

Layers that hold no weights stand in no stack, so nothing but the number in its name says which
layer a seed belongs to. Where the two sides have seeds of such a class, and not equally many, the
numbers say nothing: none of them is loaded, which is noted and disturbs nothing else. Names that do
not count up from the bare one, ``drop_1`` and ``drop_2``, somebody chose, and they are believed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.policy import Policy

_NUMBERED = re.compile(r"(.+)_([1-9]\d{0,8})")
_Class = tuple[str, str]


class Seeds:
    """The seeds of two inventories, by class of layer."""

    def __init__(self, policy: Policy, stored: Inventory, live: Inventory) -> None:
        self._old, self._new = _classes(stored), _classes(live)
        self._trusted = tuple(policy.match) == ("name",)

    def ambiguity(self, seed: Entry) -> str:
        """Why a seed of either side should not be matched by name, ``""`` where it may be."""
        if seed.role is not Role.SEED or self._trusted:
            return ""
        for place, _ in _components(seed.name):
            old, new = self._old.get(place, set()), self._new.get(place, set())
            if old and new and len(old) != len(new) and _automatic(old) and _automatic(new):
                path = "/".join(filter(None, place))
                return (
                    f"{path!r} has {len(new)} automatic names in the model and {len(old)} in the "
                    "checkpoint, so which seed belongs to which layer is unknown"
                )
        return ""


def _classes(inventory: Inventory) -> dict[_Class, set[int]]:
    """Path and name without number → the numbers it has, 0 for none."""
    found: dict[_Class, set[int]] = {}
    for entry in inventory.entries.values():
        if entry.role is Role.SEED:
            for place, number in _components(entry.name):
                found.setdefault(place, set()).add(number)
    return found


def _components(name: str) -> Iterator[tuple[_Class, int]]:
    path = ""
    for component in name.split("/"):
        numbered = _NUMBERED.fullmatch(component)
        base, number = numbered.groups() if numbered else (component, 0)
        yield (path, base), int(number)
        path = f"{path}/{component}" if path else component


def _automatic(numbers: set[int]) -> bool:
    return numbers == set(range(len(numbers)))
