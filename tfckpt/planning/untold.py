"""Layers whose names a file of plain TensorFlow does not tell.

TensorFlow stores a functional or sequential model's layers by number; their names are read off
their variables' names, and a nested model's own name may be in none of them. Such a layer is
matched by its position, as TensorFlow does, but only where all else agrees: as many layers on both
sides, each of known name at its own place, and below the layer in question the same values of the
same shapes and types. Where one of these does not hold, the layers here that are left without a
partner are refused: to leave them as they are, beside others that were restored, would be a model
half restored without a word.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.records import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.records import Entry, Inventory, Layer

_UNSTORED = frozenset({Role.SEED, Role.METRIC})  # plain TensorFlow leaves them out
_SHOWN = 3


class _Pair(NamedTuple):
    """A stored stack and the live one that it is: their paths."""

    there: str
    here: str


class Untold:
    """The live names of stored values below such layers."""

    def __init__(self, stored: Inventory, live: Inventory) -> None:
        self._stored = stored
        self._live = live
        self._unknown = {
            path: {layer.name: place for place, layer in enumerate(layers) if not layer.told}
            for path, layers in stored.stacks.items()
            if not all(layer.told for layer in layers)
        }
        self._names = (sorted(stored.entries), sorted(live.entries)) if self._unknown else ([], [])
        self._differences: dict[_Pair, str] = {}
        self._agreements: dict[_Pair, bool] = {}
        self._failed: dict[str, set[tuple[str, str, str]]] = {}
        self._partners: dict[str, set[str]] = {}

    def settle(self, name: str, target: str) -> tuple[str, str]:
        """The live name of a stored value that is aimed at ``target``, and why it is that one.

        The target itself, and ``""``, where no such layer is on the way or it has no partner.
        """
        if not self._unknown:
            return target, ""
        found, crossed = self._translate(name, target)
        for pair in crossed:
            if not self._agree(pair):
                stack, layer = _split(pair.here)
                there, candidate = _split(pair.there)
                why = f"{candidate!r} there does not hold the same names, shapes and types"
                self._fail(stack, layer, there, why)
                return target, ""
        if found is None or not crossed:
            return target, ""
        for pair in crossed:
            stack, layer = _split(pair.here)
            self._partners.setdefault(stack, set()).add(layer)
        there, here = crossed[-1]
        reason = (
            f"the file does not tell the layer's name: {there!r} and {here!r} agree in position"
        )
        return found, f"{reason} and in the shapes below"

    def doubt(self, live: str) -> tuple[str, str]:
        """Why a live variable that nothing is meant for may be in the checkpoint, and a hint.

        Of all stored values that were settled before; ``""`` where there is no such reason.
        """
        for stack in sorted(self._failed):
            layer = live.removeprefix(stack + "/").partition("/")[0]
            found = sorted(each for each in self._failed[stack] if each[0] in {"", layer})
            layers = [each.name for each in self._live.stacks[stack]]
            if not live.startswith(stack + "/") or layer not in layers or not found:
                continue
            _, there, why = found[0]
            told = {each.name for each in self._stored.stacks[there] if each.told}
            if layer in told | self._partners.get(stack, set()):
                continue
            place = layers.index(layer)
            unknown = sorted(
                self._unknown[there], key=lambda each: abs(self._at(there, each) - place)
            )
            shown = " or ".join(map(repr, unknown[:_SHOWN])) + " …" * (len(unknown) > _SHOWN)
            reason = (
                f"the checkpoint does not tell the names of all layers of {there!r}: {layer!r}, at "
                f"position {place + 1} of {stack!r} here, may be {shown} there, but {why}"
            )
            rule = f'{{checkpoint: "{there}/{unknown[0]}/**", model: "{stack}/{layer}/**"}}'
            hint = f"if they are one: rename: [{rule}]; `match: structure` trusts the positions"
            return reason, hint
        return "", ""

    def layers(self, there: str, here: str) -> tuple[Layer, ...]:
        """The layers of a stored stack; those of unknown name as the live ones at their places."""
        layers = self._stored.stacks[there]
        if there not in self._unknown or self._difference(_Pair(there, here)):
            return layers
        both = zip(layers, self._live.stacks[here], strict=True)
        return tuple(old if old.told else new for old, new in both)

    def _fail(self, stack: str, layer: str, there: str, why: str) -> None:
        """A layer of a live stack, or with ``""`` none of them, has no partner in a stored one."""
        self._failed.setdefault(stack, set()).add((layer, there, why))

    def _at(self, there: str, layer: str) -> int:
        return self._unknown[there][layer]

    def _translate(self, name: str, target: str) -> tuple[str | None, list[_Pair]]:
        """A name by position alone, and the untold layers on its way with their partners."""
        crossed: list[_Pair] = []
        end = name.find("/")
        while end != -1:
            there, tail = name[:end], name[end:]
            layer, slash, rest = tail[1:].partition("/")
            if layer in self._unknown.get(there, ()) and target.endswith(tail):
                here = target.removesuffix(tail)
                if here not in self._live.stacks:
                    return None, crossed
                if why := self._difference(_Pair(there, here)):
                    self._fail(here, "", there, why)
                    return None, crossed
                partner = f"{here}/{self._live.stacks[here][self._at(there, layer)].name}"
                crossed.append(_Pair(f"{there}/{layer}", partner))
                target = partner + slash + rest
            end = name.find("/", end + 1)
        return target, crossed

    def _difference(self, pair: _Pair) -> str:
        """What speaks against two stacks being one, as far as their layers' names tell."""
        if pair not in self._differences:
            old, new = self._stored.stacks[pair.there], self._live.stacks[pair.here]
            self._differences[pair] = _differ(old, new)
        return self._differences[pair]

    def _agree(self, pair: _Pair) -> bool:
        """Whether a stored layer and a live one hold the same values, by name, shape and type."""
        if pair not in self._agreements:
            names, live = self._names
            there = {
                (
                    self._translate(e.name, pair.here + e.name[len(pair.there) :])[0],
                    e.shape,
                    e.dtype,
                )
                for e in _below(pair.there, names, self._stored)
            }
            here = {(e.name, e.shape, e.dtype) for e in _below(pair.here, live, self._live)}
            self._agreements[pair] = there == here
        return self._agreements[pair]


def _differ(old: Sequence[Layer], new: Sequence[Layer]) -> str:
    if len(old) != len(new):
        return f"the stack has {len(new)} layers here and {len(old)} in the checkpoint"
    for place, (there, here) in enumerate(zip(old, new, strict=True)):
        if there.told and there.name != here.name:
            return (
                f"at position {place + 1} stands {here.name!r} here and {there.name!r} in the "
                "checkpoint"
            )
    return ""


def _below(path: str, names: Sequence[str], inventory: Inventory) -> Iterator[Entry]:
    for index in range(bisect_left(names, path + "/"), len(names)):
        if not names[index].startswith(path + "/"):
            return
        entry = inventory.entries[names[index]]
        if entry.role not in _UNSTORED:
            yield entry


def _split(path: str) -> tuple[str, str]:
    stack, _, layer = path.rpartition("/")
    return stack, layer
