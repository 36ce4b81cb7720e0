"""Matches values that a file identifies by their index in a layer rather than by a certain name.

Keras 3's files number the values of a layer or an optimizer. Keras 2's list all values below a
layer, under names of scopes that say little about attributes. Keras assigns them by index, whatever
the variables are called. tfckpt does too, but only if all else agrees: equally many values on both
sides, the same shapes at the same indices, and no known name at another index. Otherwise the live
values without a match are refused: a model that is half restored must not go unnoticed.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import SEQUENCE, Role, rebased, unnumbered
from tfckpt.core.optimizer_names import is_another_class
from tfckpt.core.text import without_repeat
from tfckpt.planning.matching.align import is_resized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfckpt.core.inventory import Inventory, Layer, Ordered, Shape

_UNNAMED = re.compile(r"vars/\d+")
_HINT = "map the values with `rename`, or exclude them to keep the model's"

_OPTIMIZER_HINT = (
    "optimizer: {slots: reset} resets the slots; TensorFlow's format stores them by name"
)
_FROZEN_THEN = (
    "the checkpoint identifies the variables of {!r} only by index, and does not say which layers "
    "were frozen; it could be of another layer"
)


class _StoredIndex(NamedTuple):
    """The layer in whose order a stored value is; ``deep`` if the order is of all below it."""

    layer: str
    deep: bool


class _LayerMatch(NamedTuple):
    """Stored name → live name for the values of one layer, or the reason for a refusal.

    ``unsure``: why they may be others.
    """

    names: Mapping[str, str]
    reason: str = ""
    unsure: str = ""


class _ValueMatch(NamedTuple):
    """Where a stored value goes, None if the orders do not match, and between which layers."""

    target: str | None
    layers: tuple[str, str] | None = None
    refusal: str = ""


class Orders:
    """Resolves stored values that are identified by index."""

    def __init__(self, stored: Inventory, live: Inventory, keeps_order: Callable[[], bool]) -> None:
        self._stored = stored
        self._live = live
        self._keeps_order = keeps_order  # whether the layers are in one order on both sides
        self._positions = {
            value.name: _StoredIndex(layer, deep)
            for orders, deep in ((stored.deep_orders, True), (stored.own_orders, False))
            for layer, order in orders.items()
            for value in order
        }
        self._verdicts: dict[tuple[_StoredIndex, str], _LayerMatch] = {}
        self._failed: dict[str, str] = {}  # live layer → why it is refused
        self._layers: dict[str, tuple[str, str]] = {}

    def resolve(self, name: str, target: str) -> str | None:
        """The live name of a stored value with a target name.

        The target itself if no order concerns it, None if the orders do not match.
        """
        found = self.match(name, target)
        if found.layers is not None:
            self._layers[name] = found.layers
            if found.refusal:
                self._failed[found.layers[1]] = found.refusal
        return found.target

    def match(self, name: str, target: str) -> _ValueMatch:
        """What :meth:`resolve` would find, for a target that may not be the value's."""
        if (position := self._positions.get(name)) is None:
            return _ValueMatch(target)
        tail = name[len(position.layer) :]
        if not target.endswith(tail):  # a rule names the value itself
            return _ValueMatch(target)
        layers = position.layer, self._resolve(target.removesuffix(tail))
        verdict = self._verdict(position, layers[1])
        live = None if verdict.reason else verdict.names.get(name, target)
        return _ValueMatch(live, layers, verdict.reason)

    def layers(self, stored: str) -> tuple[str, str] | None:
        """The stored and the live layer between which a value was resolved."""
        return self._layers.get(stored)

    def ambiguity(self, live: str) -> tuple[str, str]:
        """Why a live value without a match may be in the checkpoint, and a hint."""
        end = live.rfind("/")
        while end > 0:
            if (reason := self._failed.get(live[:end])) is not None:
                if live[:end] in self._live.optimizers:
                    return reason, _OPTIMIZER_HINT
                return reason, _HINT
            end = live.rfind("/", 0, end)
        return "", ""

    def unsure(self, stored: str) -> str:
        """Why a slot that was resolved may be of another variable; ``""`` for no reason."""
        position, layers = self._positions.get(stored), self._layers.get(stored)
        if position is None or layers is None or self._stored.entries[stored].role is not Role.SLOT:
            return ""
        return self._verdict(position, layers[1]).unsure

    def why(self, stored: str) -> str:
        """Why a stored value could not be resolved."""
        layers = self._layers.get(stored)
        return self._failed.get(layers[1], "") if layers else ""

    def _resolve(self, layer: str) -> str:
        """A live layer's canonical path."""
        for _ in range(layer.count("/") + 2):
            if (other := rebased(layer, self._live.aliases)) is None:
                break
            layer = other
        return layer

    def _verdict(self, position: _StoredIndex, live_path: str) -> _LayerMatch:
        if (position, live_path) not in self._verdicts:
            sides = (self._stored, self._live)
            old, new = (
                (side.deep_orders if position.deep else side.own_orders).get(layer, ())
                for side, layer in zip(sides, (position.layer, live_path), strict=True)
            )
            of_optimizer = live_path in self._live.optimizers
            compare = self._compare_optimizer if of_optimizer else self._compare_own
            compare = self._compare_deep if position.deep else compare
            self._verdicts[position, live_path] = compare(position.layer, live_path, old, new)
        return self._verdicts[position, live_path]

    def _compare_optimizer(
        self, stored_path: str, live_path: str, old: Sequence[Ordered], new: Sequence[Ordered]
    ) -> _LayerMatch:
        """Match by index what is of one class, and of layers in one order, the same ones frozen.

        An optimizer has no slots before it trains, and no learning rate beside a schedule.
        """
        if len(old) < len(new):
            own = [x for x in new if self._live.entries[x.name].role is not Role.SLOT]
            scalars = all(self._shape(self._stored, x.name) == () for x in old)
            new = own if scalars and len(old) <= len(own) else new
        rates = self._rates(self._stored, old), self._rates(self._live, new)
        if len(old) != len(new) and not all(rates):
            old, new = ([x for x in each if x not in rates[0] | rates[1]] for each in (old, new))
        was, now = (
            side.optimizers.get(path, "")
            for side, path in ((self._stored, stored_path), (self._live, live_path))
        )
        slots = (one for one in new if self._live.entries[one.name].role is Role.SLOT)
        of_others = any(one.frozen for one in slots)
        if new and is_another_class(was, now):
            names = (repr(each) if each else "of an unknown class" for each in (now, was))
            why = "is {} in the model and {} in the checkpoint".format(*names)
        elif new and not self._keeps_order():
            why = "has the variables of layers that are in another order in the model"
        elif of_others and (frozen := self._frozen_since):
            why = f"has the variables of other layers: {frozen}"
        else:
            found = self._compare_own(stored_path, live_path, old, new)
            certain = not of_others or self._frozen_since is not None
            return found if certain else found._replace(unsure=_FROZEN_THEN.format(stored_path))
        return self._refuse(stored_path, live_path, why)

    @cached_property
    def _frozen_since(self) -> str | None:
        """A layer that one side alone has frozen, ``""`` for none; None if it is not known."""
        old, new = (
            {
                f"{path}/{layer.place}": layer.trainable
                for path, held in side.containers.items()
                for layer in held.layers
                if layer.trainable is not None
            }
            for side in (self._stored, self._live)
        )
        changed = sorted(path for path in old.keys() & new.keys() if old[path] != new[path])
        if changed:
            side = "the model" if old[changed[0]] else "the checkpoint"
            return f"{changed[0]!r} is frozen in {side}"
        frozen = {path: path for path, trainable in old.items() if not trainable}
        known = (rebased(path, frozen) for path, trainable in new.items() if not trainable)
        return "" if old and all(known) else None

    def _compare_own(
        self, stored_path: str, live_path: str, old: Sequence[Ordered], new: Sequence[Ordered]
    ) -> _LayerMatch:
        """Match by index; names that were guessed from the file must not contradict."""
        guessed = [self._guessed(one, stored_path, live_path) for one in old]
        if not new and not any(name in self._live.entries for name in guessed):
            return _LayerMatch({})  # the live layer has no such order
        live_names = {one.name for one in new}
        indices = enumerate(zip(guessed, new, strict=False))
        clashes = ((index, name, one) for index, (name, one) in indices if name != one.name)
        clash = next(
            ((index, name, one.name) for index, name, one in clashes if name in live_names), None
        )
        if not new:
            why = "has variables in the model whose order is unknown"
        elif clash is not None:
            why = f"has {clash[2]!r} at index {clash[0]}, where the checkpoint has {clash[1]!r}"
        elif len(old) == len(new) or all(
            name == one.name for name, one in zip(guessed, new, strict=False)
        ):
            return self._by_place(stored_path, live_path, old, new)
        else:
            why = f"has {len(new)} in the model and {len(old)} in the checkpoint"
        return self._refuse(stored_path, live_path, why)

    @staticmethod
    def _rates(side: Inventory, values: Sequence[Ordered]) -> set[Ordered]:
        return {x for x in values if side.entries[x.name].role is Role.HYPERPARAMETER}

    def _guessed(self, one: Ordered, stored_path: str, live_path: str) -> str | None:
        tail = one.name[len(stored_path) + 1 :]
        return None if _UNNAMED.fullmatch(tail) else f"{live_path}/{tail}"

    def _compare_deep(
        self, stored_path: str, live_path: str, old: Sequence[Ordered], new: Sequence[Ordered]
    ) -> _LayerMatch:
        """Match by name if the model has all names, else by index if the scopes agree."""
        names = [live_path + one.name[len(stored_path) :] for one in old]
        listed = bool(_layers(self._stored, stored_path))
        if all(name in self._live.entries for name in names) and (listed or not _numbered(names)):
            return _LayerMatch({})  # match by name
        if len(old) != len(new):
            count = f"has {len(new)} in the model and {len(old)} in the checkpoint"
            return self._refuse(stored_path, live_path, count)
        old = _as_frozen(old, new)
        names = [live_path + one.name[len(stored_path) :] for one in old]
        live_indices = {one.name: index for index, one in enumerate(new)}
        indices = [live_indices.get(name) for name in names]
        if why := self._renamed(live_path, old, new) or _differ_in_scopes(old, new, indices):
            return self._refuse(stored_path, live_path, why)
        return self._by_place(stored_path, live_path, old, new)

    def _renamed(self, live_path: str, old: Sequence[Ordered], new: Sequence[Ordered]) -> str:
        """Which layer of a nested model has a user-given name that the checkpoint lacks."""
        named = {layer.place for layer in _layers(self._live, live_path) if not layer.auto}
        for one, other in zip(old, new, strict=True):
            layer = other.name.removeprefix(f"{live_path}/").partition("/")[0]
            if layer in named and layer not in one.path.split("/"):
                return f"has the layer {layer!r} where the checkpoint has {one.path!r}"
        return ""

    def _by_place(
        self, stored_path: str, live_path: str, old: Sequence[Ordered], new: Sequence[Ordered]
    ) -> _LayerMatch:
        pairs = list(zip(old, new, strict=False))
        shapes = [
            (self._shape(self._stored, one.name), self._shape(self._live, other.name))
            for one, other in pairs
        ]
        sides = [{*side} for side in zip(*shapes, strict=True)]
        for (one, other), (was, now) in zip(pairs, shapes, strict=True):
            fits = was == now or self._live.takes(other.name, was)
            if not fits and not is_resized(was, now, *sides):
                return self._refuse(
                    stored_path,
                    live_path,
                    f"has {other.name!r} of shape {now} where the checkpoint has "
                    f"{one.name!r} of shape {was}",
                )
        return _LayerMatch({one.name: self._below(live_path, other.name) for one, other in pairs})

    def _below(self, live_path: str, name: str) -> str:
        """The name of a live value below the layer, if necessary an alias."""
        if name.startswith(live_path + "/"):
            return name
        others = (path for path, own in self._live.aliases.items() if own == name)
        return next((path for path in others if path.startswith(live_path + "/")), name)

    def _shape(self, side: Inventory, name: str) -> Shape | None:
        entry = side.entries.get(name)
        return None if entry is None else entry.shape

    def _refuse(self, stored_path: str, live_path: str, why: str) -> _LayerMatch:
        return _LayerMatch(
            {},
            f"the checkpoint identifies the variables of {stored_path!r} only by index; "
            f"{live_path!r} {why}",
        )


def _layers(inventory: Inventory, path: str) -> tuple[Layer, ...]:
    """The layers of a functional or sequential model; () for anything else."""
    held = inventory.containers.get(path)
    return held.layers if held is not None and held.kind == SEQUENCE else ()


def _last(name: str) -> str:
    """The variable's own name, without the ``~2`` of a repeated one."""
    last = without_repeat(name).rpartition("/")[2]
    return last.removeprefix("depthwise_")


def _numbered(names: Sequence[str]) -> bool:
    """Whether some layers differ only by the numbers of their automatic names."""
    layers = {tuple(name.split("/")[:-1]) for name in names}
    return len({tuple(map(unnumbered, parts)) for parts in layers}) < len(layers)


def _words(path: str) -> tuple[str, ...]:
    """The components of a scope without the numbers of automatic names."""
    return tuple(map(unnumbered, path.split("/")))


def _as_frozen(old: Sequence[Ordered], new: Sequence[Ordered]) -> Sequence[Ordered]:
    """The stored values in the order of the live ones, if as much is frozen as was then.

    Keras 2 lists frozen layers last, and no file stores which were; automatic numbers, which follow
    the order of creation, must say the same.
    """
    groups: dict[tuple[str, ...], tuple[list[int], list[int]]] = {}
    for side, values in enumerate((old, new)):
        for index, one in enumerate(values):
            groups.setdefault(_words(one.path), ([], []))[side].append(index)
    found = list(old)
    for before, live in groups.values():
        now = sorted(live, key=lambda index: new[index].frozen)
        if len(before) != len(now) or _ranks(old, before) != _ranks(new, now):
            return old
        for at, index in zip(now, before, strict=True):
            found[at] = old[index]
    return found


def _ranks(values: Sequence[Ordered], indices: Sequence[int]) -> list[int]:
    """The ranks of the numbers in the paths of some of the values."""
    numbers = [_numbers(values[index].path) for index in indices]
    rank = {each: at for at, each in enumerate(sorted(set(numbers)))}
    return [rank[each] for each in numbers]


def _differ_in_scopes(
    old: Sequence[Ordered], new: Sequence[Ordered], indices: Sequence[int | None]
) -> str:
    """Why two lists of equal length may not match; ``indices`` are those of the stored names."""
    scopes = _scopes([one.path for one in new])
    for index, (one, other) in enumerate(zip(old, new, strict=True)):
        same = _last(one.name) == _last(other.name) or _last(one.path) == _last(other.path)
        if not same or indices[index] not in (None, index):
            return f"has {other.name!r} at index {index}, where the checkpoint has {one.path!r}"
        if index not in _nearest(one.path, scopes):
            return f"has {other.path!r} at index {index}, where the checkpoint has {one.path!r}"
    if displaced := _displaced(old, new):
        return (
            f"has its layers in another order than the numbers in the checkpoint, e.g. "
            f"{displaced!r}; Keras 2 lists frozen layers last"
        )
    return ""


def _displaced(old: Sequence[Ordered], new: Sequence[Ordered]) -> str:
    """The path of a stored value whose layer's number has another rank than the live one's.

    Keras 2 lists frozen layers last, and no file stores which were frozen. Automatic numbers follow
    the order of creation, which is the same for the same code. If live layers have explicit names,
    the stored ones must be in order of creation.
    """
    groups: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for one, other in zip(old, new, strict=True):
        groups.setdefault(_words(one.path)[:-1], []).append((one.path, other.path))
    for pairs in groups.values():
        stored_numbers, live_numbers = (
            [_numbers(path) for path in side] for side in zip(*pairs, strict=True)
        )
        alike = len({_words(path)[:-1] for _, path in pairs}) == 1
        if not alike or len(set(live_numbers)) != len(set(stored_numbers)):
            first = {numbers: rank for rank, numbers in enumerate(dict.fromkeys(stored_numbers))}
            live_numbers = [(first[numbers],) for numbers in stored_numbers]
        old_at, new_at = (
            {numbers: rank for rank, numbers in enumerate(sorted(set(side)))}
            for side in (stored_numbers, live_numbers)
        )
        for (path, _), one_numbers, other_numbers in zip(
            pairs, stored_numbers, live_numbers, strict=True
        ):
            if old_at[one_numbers] != new_at[other_numbers]:
                return path
    return ""


def _numbers(path: str) -> tuple[int, ...]:
    """The numbers of the automatic names in a scope."""
    matches = (re.search(r"_(\d{1,9})$", part) for part in path.split("/")[:-1])
    return tuple(int(match[1]) if match else 0 for match in matches)


def _scopes(paths: Sequence[str]) -> dict[tuple[str, ...], set[int]]:
    """End of a scope → the indices where it occurs."""
    indices: dict[tuple[str, ...], set[int]] = {}
    for index, path in enumerate(paths):
        parts = _words(path)
        for start in range(len(parts)):
            indices.setdefault(parts[start:], set()).add(index)
    return indices


def _nearest(path: str, scopes: Mapping[tuple[str, ...], set[int]]) -> set[int]:
    """The indices of the scopes with the longest common end with a stored one."""
    parts = _words(path)
    for start in range(len(parts)):
        if (indices := scopes.get(parts[start:])) is not None:
            return indices
    return set().union(*scopes.values())
