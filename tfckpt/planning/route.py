"""Which live value each stored value is meant for.

Rename rules come first and see the stored name alone. What no rule names goes to the same name, or,
under ``match: structure``, to the layer at the same position. The slots of an optimizer follow
their variable, so that renaming a layer does not orphan its momentum. A value that two paths reach
(tied weights, a shared layer) is found by either of them, on either side.

Two stored values meant for one live value are both refused; which of them was wanted is nothing
that an order of rules should decide.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfckpt.planning.structure import Positions, slot_path, slot_suffix

if TYPE_CHECKING:
    from tfckpt.planning.rules import Renames
    from tfckpt.policy import Policy
    from tfckpt.records import Entry, Inventory


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """Where one stored value goes.

    Attributes:
        stored: the value.
        target: canonical name of the live value, or the name it would have.
        live: the live value of that name, or None.
        rule: the rule that renamed it, in words; ``""`` where none did.
        explicit: whether a rename rule matched this value's own name.
        alias: whether the live value goes by another name than the one aimed at.

    """

    stored: Entry
    target: str
    live: Entry | None
    rule: str = ""
    explicit: bool = False
    alias: bool = False


class Router:
    """Routes of stored values, for one policy and two inventories."""

    def __init__(
        self, policy: Policy, renames: Renames, stored: Inventory, live: Inventory
    ) -> None:
        self._renames = renames
        self._stored = stored
        self._live = live
        self._by_position = tuple(policy.match) == ("structure",)
        self._positions = Positions(stored, live)
        self._variables: dict[str, tuple[str | None, str]] = {}

    def route(self, stored: Entry) -> Route:
        target, rule, explicit = self._aim(stored)
        if target is None:
            return Route(stored, stored.name, None, rule)
        if (live := self._live.entries.get(target)) is not None:
            return Route(stored, target, live, rule, explicit)
        if (live := self._by_alias(stored, target)) is not None:
            return Route(stored, live.name, live, rule, explicit, alias=True)
        return Route(stored, target, None, rule, explicit)

    def known_as(self, live: Entry) -> Entry | None:
        """The stored value that the checkpoint also has under the name of this live one."""
        if self._by_position or not self._stored.aliases or live.name in self._stored.entries:
            return None
        if (stored := self._stored.find(live.name)) is not None:
            return stored
        if (variable := self._stored.find(live.of)) is None or not (path := slot_path(live)):
            return None
        return self._stored.entries.get(path + slot_suffix(live.slot, variable.name))

    def _aim(self, stored: Entry) -> tuple[str | None, str, bool]:
        if (renamed := self._renames.apply(stored.name)) is not None:
            return (*renamed, True)
        if not stored.of:
            return (*self._unruled(stored.name), False)
        variable, rule = self._variable(stored.of)
        if variable is None:
            return None, rule, False
        if variable == stored.of or not (path := slot_path(stored)):
            return stored.name, "", False
        return path + slot_suffix(stored.slot, variable), rule, False

    def _variable(self, name: str) -> tuple[str | None, str]:
        """Where a variable goes; asked for by each of its slots."""
        if name not in self._variables:
            self._variables[name] = self._renames.apply(name) or self._unruled(name)
        return self._variables[name]

    def _unruled(self, name: str) -> tuple[str | None, str]:
        if not self._by_position:
            return name, ""
        target = self._positions.target(name)
        return target, "" if target == name else "match: structure, by position"

    def _by_alias(self, stored: Entry, target: str) -> Entry | None:
        if not self._live.aliases:
            return None
        if (live := self._live.find(target)) is not None:
            return live
        variable, _ = self._variable(stored.of) if stored.of else (None, "")
        if variable is None or (found := self._live.find(variable)) is None:
            return None
        path = slot_path(stored)
        return self._live.entries.get(path + slot_suffix(stored.slot, found.name)) if path else None
