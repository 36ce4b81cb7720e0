"""Values of which a file tells the place in their layer, and not, or not for certain, the name.

Keras 3's files number a layer's own values, and an optimizer's; Keras 2's list all values below a
layer, by names of scopes that say little of the attributes they are reached by. Keras assigns by
place, whatever the variables are called. Here the place decides as well, but only where all else
agrees: as many values on both sides, of the same shapes at the same places, and no name that is
told speaks of another place. Where one of these does not hold, what is left here without a value is
refused: beside other layers that were restored, it would be a model half restored without a word.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import rebased

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfckpt.core.inventory import Inventory, Ordered, Shape

_UNNAMED = re.compile(r"vars/\d+")
_HINT = "map the values with `rename`, or exclude them to keep the model's"

_OPTIMIZER_HINT = (
    "optimizer: {slots: reset} resets the slots; TensorFlow's format stores them by name"
)
_FROZEN_HINT = f"unfreeze all layers during the restore; or {_OPTIMIZER_HINT}"


class _StoredIndex(NamedTuple):
    """Where a stored value is in the order of a layer."""

    layer: str
    deep: bool


class _LayerMatch(NamedTuple):
    """Stored name → live name for the values of one layer, or why there is none."""

    names: Mapping[str, str]
    reason: str = ""


class Orders:
    """The live names of stored values that are known by their place."""

    def __init__(self, stored: Inventory, live: Inventory) -> None:
        self._stored = stored
        self._live = live
        self._places = {
            one.name: _StoredIndex(layer, deep)
            for orders, deep in ((stored.deep_orders, True), (stored.own_orders, False))
            for layer, order in orders.items()
            for one in order
        }
        self._verdicts: dict[tuple[_StoredIndex, str], _LayerMatch] = {}
        self._failed: dict[str, tuple[str, str]] = {}
        self._layers: dict[str, tuple[str, str]] = {}

    @property
    def silent(self) -> bool:
        """Whether it leaves every value at the name that it is aimed at."""
        return not self._places

    def resolve(self, name: str, target: str) -> str | None:
        """The live name of a stored value that is aimed at ``target``.

        The target itself where no order says more, None where the order says that it is not that.
        """
        if (place := self._places.get(name)) is None:
            return target
        tail = name[len(place.layer) :]
        if not target.endswith(tail):  # a rule that names the value itself
            return target
        here = self._resolve(target.removesuffix(tail))
        self._layers[name] = place.layer, here
        verdict = self._verdict(place, here)
        if verdict.reason:
            self._failed[here] = place.layer, verdict.reason
            return None
        return verdict.names.get(name, target)

    def layers(self, stored: str) -> tuple[str, str] | None:
        """The stored layer and the live one between which a value was settled."""
        return self._layers.get(stored)

    def ambiguity(self, live: str) -> tuple[str, str]:
        """Why a live value that nothing is meant for may be in the checkpoint, and a hint."""
        end = live.rfind("/")
        while end > 0:
            if (failed := self._failed.get(live[:end])) is not None:
                _, reason = failed
                if live[:end] in self._live.optimizers:
                    ordered = live[:end] in self._live.own_orders
                    return reason, _OPTIMIZER_HINT if ordered else _FROZEN_HINT
                return reason, _HINT
            end = live.rfind("/", 0, end)
        return "", ""

    def why(self, stored: str) -> str:
        """Why a stored value could not be settled."""
        layers = self._layers.get(stored)
        return self._failed[layers[1]][1] if layers and layers[1] in self._failed else ""

    def _resolve(self, layer: str) -> str:
        """A live layer's own path, where it is known by another as well."""
        for _ in range(layer.count("/") + 2):
            if (other := rebased(layer, self._live.aliases)) is None:
                break
            layer = other
        return layer

    def _verdict(self, place: _StoredIndex, here: str) -> _LayerMatch:
        if (place, here) not in self._verdicts:
            sides = (self._stored, self._live)
            old, new = (
                (side.deep_orders if place.deep else side.own_orders).get(layer, ())
                for side, layer in zip(sides, (place.layer, here), strict=True)
            )
            compare = self._compare_deep if place.deep else self._compare_own
            self._verdicts[place, here] = compare(place.layer, here, old, new)
        return self._verdicts[place, here]

    def _compare_own(
        self, there: str, here: str, old: Sequence[Ordered], new: Sequence[Ordered]
    ) -> _LayerMatch:
        """Own values go by place; what the file was guessed to call them must not contradict."""
        told = [self._guessed(one, there, here) for one in old]
        if not new and not any(name in self._live.entries for name in told):
            return _LayerMatch({})  # nothing that lists values has that path here
        mine = {one.name for one in new}
        places = enumerate(zip(told, new, strict=False))
        clashes = ((at, name, one) for at, (name, one) in places if name != one.name)
        clash = next(((at, name, one.name) for at, name, one in clashes if name in mine), None)
        if not new:
            why = "has variables in the model whose order is unknown"
            if here in self._live.optimizers:
                why += ", as when layers are frozen; the file does not store which were"
        elif (kinds := self._kinds(there, here)) and kinds[0] != kinds[1]:
            why = f"is {kinds[1]!r} in the model and {kinds[0]!r} in the checkpoint"
        elif clash is not None:
            why = f"has {clash[2]!r} at index {clash[0]}, where the checkpoint has {clash[1]!r}"
        elif len(old) == len(new) or all(
            name == one.name for name, one in zip(told, new, strict=False)
        ):
            return self._by_place(there, here, old, new)
        else:
            why = f"has {len(new)} in the model and {len(old)} in the checkpoint"
        return self._refuse(there, here, why)

    def _kinds(self, there: str, here: str) -> tuple[str, str] | None:
        """The classes of two optimizers, where both are known."""
        kinds = self._stored.optimizers.get(there, ""), self._live.optimizers.get(here, "")
        return kinds if all(kinds) else None

    def _guessed(self, one: Ordered, there: str, here: str) -> str | None:
        tail = one.name[len(there) + 1 :]
        return None if _UNNAMED.fullmatch(tail) else f"{here}/{tail}"

    def _compare_deep(
        self, there: str, here: str, old: Sequence[Ordered], new: Sequence[Ordered]
    ) -> _LayerMatch:
        """Names first, where all are known here; else by place, as the scopes allow."""
        names = [here + one.name[len(there) :] for one in old]
        mine = {one.name: place for place, one in enumerate(new)}
        places = [mine.get(name) for name in names]
        if all(name in self._live.entries for name in names):
            known = [place for place in places if place is not None]
            if known == sorted(known) or there in self._stored.sequences or not _numbered(names):
                return _LayerMatch({})  # each is what it is called
            return self._refuse(there, here, "has its layers in another order in the model")
        if len(old) != len(new):
            count = f"has {len(new)} in the model and {len(old)} in the checkpoint"
            return self._refuse(there, here, count)
        if why := self._renamed(here, old, new) or _differ_in_scopes(old, new, places):
            return self._refuse(there, here, why)
        return self._by_place(there, here, old, new)

    def _renamed(self, here: str, old: Sequence[Ordered], new: Sequence[Ordered]) -> str:
        """Which layer of an inner model has a name that was given to it, and another one there."""
        given = {layer.name for layer in self._live.sequences.get(here, ()) if not layer.base}
        for one, other in zip(old, new, strict=True):
            layer = other.name.removeprefix(f"{here}/").partition("/")[0]
            if layer in given and layer not in one.path.split("/"):
                return f"has the layer {layer!r} where the checkpoint has {one.path!r}"
        return ""

    def _by_place(
        self, there: str, here: str, old: Sequence[Ordered], new: Sequence[Ordered]
    ) -> _LayerMatch:
        for one, other in zip(old, new, strict=False):
            shapes = self._shape(self._stored, one.name), self._shape(self._live, other.name)
            if shapes[0] != shapes[1] and not self._live.takes(other.name, shapes[0]):
                return self._refuse(
                    there,
                    here,
                    f"has {other.name!r} of shape {shapes[1]} where the checkpoint has "
                    f"{one.name!r} of shape {shapes[0]}",
                )
        pairs = zip(old, new, strict=False)
        return _LayerMatch({one.name: self._below(here, other.name) for one, other in pairs})

    def _below(self, here: str, name: str) -> str:
        """The name of a live value by way of the layer, where it has another one as well."""
        if name.startswith(here + "/"):
            return name
        others = (path for path, own in self._live.aliases.items() if own == name)
        return next((path for path in others if path.startswith(here + "/")), name)

    def _shape(self, side: Inventory, name: str) -> Shape | None:
        entry = side.entries.get(name)
        return None if entry is None else entry.shape

    def _refuse(self, there: str, here: str, why: str) -> _LayerMatch:
        return _LayerMatch(
            {},
            f"the checkpoint identifies the variables of {there!r} only by index; {here!r} {why}",
        )


def _last(name: str) -> str:
    """The variable's own word; a name that two variables had has a number behind it."""
    last = re.sub(r"~\d+$", "", name).rpartition("/")[2]
    return last.removeprefix("depthwise_")


def _numbered(names: Sequence[str]) -> bool:
    """Whether layers in there are told apart by the numbers of automatic names alone."""
    layers = {tuple(name.split("/")[:-1]) for name in names}
    return len({tuple(re.sub(r"_\d+$", "", part) for part in parts) for parts in layers}) < len(
        layers
    )


def _words(path: str) -> tuple[str, ...]:
    """A scope without the numbers that a process gives its layers."""
    return tuple(re.sub(r"_\d+$", "", part) for part in path.split("/"))


def _differ_in_scopes(
    old: Sequence[Ordered], new: Sequence[Ordered], places: Sequence[int | None]
) -> str:
    """What speaks against values of as many places being the same ones.

    Args:
        old: the stored ones.
        new: the live ones.
        places: those that the names of the stored ones have here.
    """
    scopes = _scopes([one.path for one in new])
    for place, (one, other) in enumerate(zip(old, new, strict=True)):
        same = _last(one.name) == _last(other.name) or _last(one.path) == _last(other.path)
        if not same or places[place] not in (None, place):
            return f"has {other.name!r} at index {place}, where the checkpoint has {one.path!r}"
        if place not in _nearest(one.path, scopes):
            return f"has {other.path!r} at index {place}, where the checkpoint has {one.path!r}"
    if displaced := _displaced(old, new):
        return (
            f"has its layers in another order than the numbers in the checkpoint, e.g. "
            f"{displaced!r}; Keras 2 lists frozen layers last"
        )
    return ""


def _displaced(old: Sequence[Ordered], new: Sequence[Ordered]) -> str:
    """What a stored value is called whose layer's number has another rank than the one here.

    Keras 2 lists frozen layers last, and no file tells which were. Automatic numbers follow the
    order in which layers were made, the same wherever the same code makes them. Layers that have
    names of their own here tell none; those there must then stand as they were made.
    """
    groups: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for one, other in zip(old, new, strict=True):
        groups.setdefault(_words(one.path)[:-1], []).append((one.path, other.path))
    for pairs in groups.values():
        there, here = ([_numbers(path) for path in side] for side in zip(*pairs, strict=True))
        alike = len({_words(path)[:-1] for _, path in pairs}) == 1
        if not alike or len(set(here)) != len(set(there)):
            first = {numbers: rank for rank, numbers in enumerate(dict.fromkeys(there))}
            here = [(first[numbers],) for numbers in there]
        old_at, new_at = (
            {numbers: rank for rank, numbers in enumerate(sorted(set(side)))}
            for side in (there, here)
        )
        for (path, _), one_numbers, other_numbers in zip(pairs, there, here, strict=True):
            if old_at[one_numbers] != new_at[other_numbers]:
                return path
    return ""


def _numbers(path: str) -> tuple[int, ...]:
    """The numbers that a process gave the layers of a scope."""
    found = (re.search(r"_(\d{1,9})$", part) for part in path.split("/")[:-1])
    return tuple(int(match[1]) if match else 0 for match in found)


def _scopes(paths: Sequence[str]) -> dict[tuple[str, ...], set[int]]:
    """The ends of scopes → the places that they are found at."""
    found: dict[tuple[str, ...], set[int]] = {}
    for place, path in enumerate(paths):
        words = _words(path)
        for start in range(len(words)):
            found.setdefault(words[start:], set()).add(place)
    return found


def _nearest(path: str, scopes: Mapping[tuple[str, ...], set[int]]) -> set[int]:
    """The places whose scopes have most in common with a stored one's, from the end."""
    words = _words(path)
    for start in range(len(words)):
        if (found := scopes.get(words[start:])) is not None:
            return found
    return set().union(*scopes.values())
