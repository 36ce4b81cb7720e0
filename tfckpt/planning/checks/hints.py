"""Suggests ``rename`` rules for layers that seem to have been renamed in the model.

A rule is suggested only if it is very likely right: all variables of a layer in the model are
missing, all variables of a layer in the checkpoint are unused, both have the same names, roles and
shapes, and no other pair of layers fits as well. If several fit, those whose paths end alike are
paired: ``backbone/conv`` with ``encoder/conv``. Ends that are automatic names do not count; such a
layer must be the only one of its kind on both sides. The rule names the highest parents for which
it takes no value away from its present match.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Entry, Inventory, Role, Shape

RENAMED = "renamed? rename: "
_Values = frozenset[tuple[str, "Role", "Shape | None"]]
_MOST_LEVELS = 50  # names come from files
_PLAIN = re.compile(r"[^*?\[\]\"\\]+")
_KEY = re.compile(r"(checkpoint|model): (?=\")")


def rule_of(hint: str) -> str:
    """The rule in a hint, as Python; "" if it has none.

    >>> rule_of('renamed? rename: [{checkpoint: "model/a/**", model: "model/b/**"}]')
    '{"checkpoint": "model/a/**", "model": "model/b/**"}'
    """
    rule = hint.removeprefix(f"{RENAMED}[").removesuffix("]")
    return _KEY.sub(r'"\1": ', rule) if hint.startswith(RENAMED) else ""


class RenameHints:
    """``rename`` rules that would map unused stored values to missing live ones.

    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> old = Entry("model/backbone/conv/kernel", Role.WEIGHT, "float32", (3, 3))
    >>> new = Entry("model/encoder/conv/kernel", Role.WEIGHT, "float32", (3, 3))
    >>> sides = Inventory("", {old.name: old}), Inventory("", {new.name: new})
    >>> RenameHints(*sides, [old], [new]).of(new)
    'renamed? rename: [{checkpoint: "model/backbone/**", model: "model/encoder/**"}]'
    """

    def __init__(
        self, stored: Inventory, live: Inventory, left: Sequence[Entry], missing: Sequence[Entry]
    ) -> None:
        self._stored = stored.entries
        self._live = live.entries
        self._sides = stored, live
        self._left = left
        self._missing = missing

    def of(self, entry: Entry) -> str:
        """The rule for a missing or unused value, or for its variable; ``""`` for none."""
        return self._hints.get((entry.of or entry.name).rpartition("/")[0], "")

    @cached_property
    def _hints(self) -> dict[str, str]:
        """Path of a stored or live layer → the hint with its rule."""
        if not self._left or not self._missing:
            return {}
        hints = {}
        chosen = {e.name for e in self._left}, {e.name for e in self._missing}
        layers = _layers(self._stored), _layers(self._live)
        kinds = [Counter(side.values()) for side in layers]
        weak = _automatic(self._sides[0]) | _automatic(self._sides[1])
        names = sorted(self._stored)
        for old, new in _pairs(*(_whole(*both) for both in zip(layers, chosen, strict=True))):
            alone = all(kind[layers[0][old]] == 1 for kind in kinds)
            if not alone and (old in weak or new in weak) and _end(old) != _end(new):
                continue
            for stored_path, live_path in _heads(old, new):
                if self._fits(stored_path, live_path, names, *chosen):
                    rule = f'{{checkpoint: "{stored_path}/**", model: "{live_path}/**"}}'
                    hints[old] = hints[new] = f"{RENAMED}[{rule}]"
                    break
        return hints

    def _fits(
        self,
        stored_path: str,
        live_path: str,
        names: Sequence[str],
        left: Collection[str],
        missing: Collection[str],
    ) -> bool:
        """Whether a rule would move only unused values, and only to missing ones."""
        if not _PLAIN.fullmatch(stored_path + live_path):
            return False
        for index in range(bisect_left(names, f"{stored_path}/"), len(names)):
            name = names[index]
            if not name.startswith(f"{stored_path}/"):
                break
            target = live_path + name.removeprefix(stored_path)
            other = self._live.get(target)
            if name not in left or (
                other is not None
                and (target not in missing or other.shape != self._stored[name].shape)
            ):
                return False
        return True


def _layers(entries: Mapping[str, Entry]) -> dict[str, _Values]:
    """Path of each layer → its variables."""
    layers: dict[str, list[Entry]] = {}
    for entry in entries.values():
        if not entry.of and "/" in entry.name:
            layers.setdefault(entry.name.rpartition("/")[0], []).append(entry)
    return {
        path: frozenset((_end(each.name), each.role, each.shape) for each in values)
        for path, values in layers.items()
    }


def _whole(layers: Mapping[str, _Values], chosen: Collection[str]) -> dict[str, _Values]:
    """The layers whose variables are all among the chosen."""
    return {
        path: values
        for path, values in layers.items()
        if all(f"{path}/{variable}" in chosen for variable, _, _ in values)
    }


def _automatic(inventory: Inventory) -> set[str]:
    """The paths of layers with automatic or unknown names."""
    sequences = inventory.sequences.items()
    return {
        f"{p}/{layer.name}"
        for p, each in sequences
        for layer in each
        if layer.base or not layer.named
    }


def _end(path: str) -> str:
    return path.rpartition("/")[2]


def _pairs(old: Mapping[str, _Values], new: Mapping[str, _Values]) -> Iterator[tuple[str, str]]:
    """Pairs of stored and live layers with equal variables, best matching path ends first."""
    rest = dict(old), dict(new)
    depth = max((path.count("/") + 1 for side in rest for path in side), default=0)
    for levels in range(min(depth, _MOST_LEVELS), -1, -1):
        alike: dict[object, tuple[list[str], list[str]]] = {}
        for number, side in enumerate(rest):
            for path, values in side.items():
                parts = path.split("/")
                if len(parts) >= levels:
                    end = tuple(parts[len(parts) - levels :])
                    alike.setdefault((end, values), ([], []))[number].append(path)
        for stored_paths, live_paths in alike.values():
            if not stored_paths or not live_paths:
                continue
            if len(stored_paths) == len(live_paths) == 1:
                yield stored_paths[0], live_paths[0]
            for number, paths in enumerate((stored_paths, live_paths)):
                for path in paths:
                    del rest[number][path]


def _heads(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Both paths without their common end, the shortest first."""
    parts = old.split("/"), new.split("/")
    same = 0
    while same < min(map(len, parts)) - 1 and parts[0][-1 - same] == parts[1][-1 - same]:
        same += 1
    for levels in range(same, -1, -1):
        stored_path, live_path = ("/".join(part[: len(part) - levels]) for part in parts)
        if stored_path != live_path:
            yield stored_path, live_path
