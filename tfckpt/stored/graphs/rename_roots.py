"""A recorded inventory in the terms of the live side: the same keyword is the same object.

A lone model is ``model`` whatever its keyword, so the first component of a name depends on what
else was given. What was saved as ``teacher=`` alone must not become the student of a program that
has both; and an encoder saved beside a decoder is the encoder where it is given alone. So where the
two sides were given different objects, the stored names are moved: a keyword that the live side has
too decides, and a lone model meets a lone model under any keyword. What would otherwise land on a
live model or optimizer of another keyword has its own keyword in front, or stands aside as
`model~2`, which nothing live is.

The keywords in a file of plain TensorFlow are read by :mod:`tfckpt.stored.graphs.reader`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfckpt.core.inventory import rebased
from tfckpt.core.names import METRICS, MODEL, OPTIMIZER, SEED

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from tfckpt.core.inventory import Entry, Inventory, Root


def moved_to(inventory: Inventory, live: Mapping[str, Root]) -> Inventory:
    """The inventory with its names moved to where the live side has the same objects.

    >>> from tfckpt.core.inventory import Entry, Inventory, Role, Root
    >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2,))
    >>> lone = Inventory("", {kernel.name: kernel}, roots={"teacher": Root("model", "model")})
    >>> both = {name: Root(name, "model") for name in ("student", "teacher")}
    >>> list(moved_to(lone, both).entries)
    ['teacher/a/kernel']
    """
    targets = _targets(inventory, live)
    if all(old == new for old, new in targets.items()):
        return inventory
    return Move(inventory, _heads(inventory, targets)).done()


def _targets(inventory: Inventory, live: Mapping[str, Root]) -> dict[str, str]:
    """Stored first component, or path of a part of the root object → what it is to be."""
    stored, taken = inventory.roots, {root.component for root in live.values()}
    targets = _parts_of_root(inventory, live)
    # Keywords that both sides have come first: the others stand aside for them.
    for keyword, root in sorted(stored.items(), key=lambda item: item[0] not in live):
        if keyword in live and live[keyword].component:
            targets[root.component] = live[keyword].component
            continue
        target = root.component
        several = sum(other.kind == root.kind for other in live.values()) > 1
        if keyword and root.kind and several:
            target = keyword
        if target in targets.values():
            target = free_name(target, taken | set(targets.values()))
        targets.setdefault(root.component, target)
    return targets


def _parts_of_root(inventory: Inventory, live: Mapping[str, Root]) -> dict[str, str]:
    """What TensorFlow has under a keyword of the live side: an attribute of the root object."""
    root, found = inventory.roots.get(""), dict[str, str]()
    if root is None or "" in live:
        return found
    for keyword in live.keys() - inventory.roots.keys():
        path = f"{root.component}/{keyword}"
        path = rebased(path, inventory.aliases) or path
        part, whole = (_below(inventory, each) for each in (path, root.component))
        own = live[keyword].parts
        if live[keyword].component and own & part and len(own & part) >= len(own & whole):
            found[path] = live[keyword].component
    return found


def _below(inventory: Inventory, path: str) -> set[str]:
    """The next component of the names below a path."""
    start = path + "/"
    names = (name for name in inventory.entries if name.startswith(start))
    return {name[len(start) :].partition("/")[0] for name in names}


def free_name(name: str, taken: Container[str]) -> str:
    """The name, with a number behind it where it is taken: ``model~2``."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}~{number}", number + 1
    return free


def _heads(inventory: Inventory, targets: Mapping[str, str]) -> dict[str, str]:
    kinds = {root.component: root.kind for root in inventory.roots.values()}
    heads: dict[str, str] = {}
    for old, new in targets.items():
        heads[old] = new
        if old == new or kinds.get(old) != MODEL:
            continue
        # What a lone model has at the top, one of several has below itself.
        owned = [SEED, METRICS]
        if OPTIMIZER not in (targets if old == MODEL else targets.values()):
            owned.append(OPTIMIZER)
        for word in owned:
            there = word if old == MODEL else f"{old}/{word}"
            heads[there] = word if new == MODEL else f"{new}/{word}"
    return heads


class Move:
    """One inventory, and the beginnings of its names that change: old → new, all at once."""

    def __init__(self, inventory: Inventory, heads: Mapping[str, str]) -> None:
        self._inventory = inventory
        self._heads = heads

    def done(self) -> Inventory:
        inventory, name = self._inventory, self._name
        entries: dict[str, Entry] = {}
        for entry in map(self._entry, inventory.entries.values()):
            free = free_name(entry.name, entries)
            entries[free] = entry._replace(name=free)
        return dataclasses.replace(
            inventory,
            entries=entries,
            sequences={name(path): layers for path, layers in inventory.sequences.items()},
            aliases={name(path): name(target) for path, target in inventory.aliases.items()},
            optimizers={name(path): label for path, label in inventory.optimizers.items()},
            roots={
                keyword: dataclasses.replace(root, component=name(root.component))
                for keyword, root in inventory.roots.items()
            },
            unordered=frozenset(map(name, inventory.unordered)),
            labels={name(path): label for path, label in inventory.labels.items()},
            private=inventory.private
            and {name(path): edge for path, edge in inventory.private.items()},
            left_out={name(path): reason for path, reason in inventory.left_out.items()},
        )

    def _name(self, name: str) -> str:
        moved = rebased(name, self._heads)
        return name if moved is None else moved

    def _entry(self, entry: Entry) -> Entry:
        if not entry.of:
            return entry._replace(name=self._name(entry.name))
        of = self._name(entry.of)
        head, _, repeated = entry.name.rpartition(_tail(entry.of))  # `~2` where two have the name
        if not head.endswith(f"/{entry.slot}"):
            return entry._replace(name=self._name(entry.name), of=of)
        return entry._replace(name=self._name(head) + _tail(of) + repeated, of=of)


def _tail(of: str) -> str:
    return "/" + of.removeprefix(MODEL + "/")
