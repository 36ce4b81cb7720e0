"""Matches layers whose names a file of plain TensorFlow does not store.

TensorFlow stores a functional or sequential model's layers by number; tfckpt takes their names from
their variables' names, and a nested model's own name may be in none of them. Such a layer is
matched by position, as TensorFlow does, but only if all else agrees: equally many layers on both
sides, each layer with a known name at its own position, and the same values with the same shapes
and dtypes in the layer itself. Otherwise the live layers without a partner are refused: a model
that is half restored must not go unnoticed.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import Role
from tfckpt.planning.matching.alignment import Alignments, Pair, descend
from tfckpt.planning.matching.evidence import which_hint
from tfckpt.planning.matching.sides import containers, names_below
from tfckpt.planning.matching.values_by_index import Orders

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Entry, Inventory, Shape
    from tfckpt.planning.matching.alignment import Alignment
    from tfckpt.planning.matching.rules import Renames

    _Value = tuple[str | None, Shape | None, str]  # name, if it is certain, shape and dtype

# plain TensorFlow leaves them out, or only a stateful layer has them
_UNSTORED = frozenset({Role.SEED, Role.METRIC, Role.VOCABULARY, Role.STATE})
_SHOWN = 3


class _Crossing(NamedTuple):
    """An unnamed layer on the path of a value: the sequences, its stored name, and both paths."""

    sequences: Pair
    layer: str
    pair: Pair


class _Failure:
    """A stored and a live container, of which some live layers have no partner.

    Attributes:
        unnamed: position and name of each stored layer that has no known name.
        paths: of the live layers; None for a layer that is matched by name.
        reasons: path of a live layer, ``""`` for all → why it has no partner.
    """

    def __init__(self, pair: Pair, alignment: Alignment, unknown: Mapping[str, int]) -> None:
        self.pair = pair
        by_name = alignment.by_name
        named = {f"{pair.live}/{name}" for name in by_name}
        paths = map(alignment.path, alignment.layers)
        self.unnamed = sorted((at, name) for name, at in unknown.items() if name not in by_name)
        self.paths = [None if path in named else path for path in paths]
        self.reasons: dict[str, str] = {}

    def describe(self, index: int, why: str) -> str:
        """What a live layer without a partner may be in the checkpoint, nearest first."""
        (stored, live), layer = self.pair, self.paths[index] or ""
        at = bisect_left(self.unnamed, (index, ""))
        near = self.unnamed[max(0, at - _SHOWN) : at + _SHOWN]
        near = sorted(near, key=lambda each: abs(each[0] - index))[:_SHOWN]
        more = " …" * (len(self.unnamed) > _SHOWN)
        return (
            f"the checkpoint does not store the names of all layers of {stored!r}: "
            f"{layer.removeprefix(f'{live}/')!r}, at position {index + 1} of {live!r} in the "
            f"model, may be {' or '.join(repr(name) for _, name in near)}{more}, but {why}"
        )


class Unnamed:
    """Resolves stored values below such layers; ``orders`` does so within a layer.

    Attributes:
        silent: whether every value keeps the target name that rules give it.
        alignments: of the containers of both sides.
    """

    def __init__(self, stored: Inventory, live: Inventory, renames: Renames) -> None:
        self._stored = stored
        self._live = live
        unnamed = {
            path: {layer.name: index for index, layer in enumerate(layers) if not layer.named}
            for path, layers in stored.sequences.items()
        }
        # Layers that Keras lists for a subclassed live model are not known by their names.
        unnamed |= {
            path: {layer.name: index for index, layer in enumerate(stored.sequences[path])}
            for path in (stored.listed if stored.listed and live.members else ())
        }
        self._unknown = {path: layers for path, layers in unnamed.items() if layers}
        self._names = (sorted(stored.entries), sorted(live.entries)) if self._unknown else ([], [])
        self.silent = not self._unknown and not stored.by_position
        self.alignments = Alignments(stored, live, renames)
        self._agreements: dict[Pair, bool] = {}
        self._failed: dict[Pair, _Failure] = {}
        # path of a live layer → the failures of its containers, with its position there
        self._failed_at: dict[str, list[tuple[Pair, int]]] = {}
        self._alike: dict[Pair, Pair | None] = {}
        self._partners: dict[str, set[str]] = {}

    @cached_property
    def orders(self) -> Orders:
        return Orders(self._stored, self._live)

    def resolve(self, name: str, target: str) -> tuple[str | None, str]:
        """The live name of a stored value with a target name, and the reason.

        The target itself and ``""`` without such a layer on its path; None if one has no partner,
        or if the value has no position in it.
        """
        if not self._unknown:
            return self.orders.resolve(name, target), ""
        resolved, crossed, refused = self._translate(name, target)
        if refused is not None:
            self._fail(refused, "", self.alignments.of(refused).refusal)
        resolved = None if resolved is None else self.orders.resolve(name, resolved)
        for step in crossed:
            if not self._agree(step.pair):
                why = f"{step.layer!r} in the checkpoint has other names, shapes or dtypes"
                self._fail(step.sequences, step.pair.live, why)
                return None, ""
        if resolved is None or not crossed:
            return resolved, ""
        for step in crossed:
            self._partners.setdefault(step.sequences.live, set()).add(step.pair.live)
        stored, live = crossed[-1].pair
        reason = (
            f"the file does not store the layer's name, but {stored!r} and {live!r} have the same "
            "position and the same shapes"
        )
        return resolved, reason

    def ambiguity(self, live: str) -> tuple[str, str]:
        """Why a live variable without a match may be in the checkpoint, and a hint.

        Considers the stored values resolved so far; ``""`` twice for no reason.
        """
        failures = (at for path, *_ in containers(live) for at in self._failed_at.get(path, ()))
        for pair, index in sorted(failures, key=lambda at: (at[0].live, at[0].stored, at[1])):
            failure = self._failed[pair]
            layer = failure.paths[index] or ""
            why = failure.reasons.get("") or failure.reasons.get(layer)
            if not why or layer in self._partners.get(pair.live, ()):
                continue
            if pair not in self._alike:
                self._alike[pair] = self._only_alike(failure)
            hint, alike = which_hint(), self._alike[pair]
            if alike is not None and alike.live == layer:
                rule = f'{{checkpoint: "{alike.stored}/**", model: "{layer}/**"}}'
                hint = f"if they are the same layer: rename: [{rule}]"
            return failure.describe(index, why), hint
        return "", ""

    def _fail(self, sequences: Pair, layer: str, why: str) -> None:
        """Record that a layer of a live sequence, or any (``""``), has no stored partner."""
        if sequences not in self._failed:
            alignment, unknown = self.alignments.of(sequences), self._unknown[sequences.stored]
            self._failed[sequences] = failure = _Failure(sequences, alignment, unknown)
            for index, path in enumerate(failure.paths):
                if path is not None:
                    self._failed_at.setdefault(path, []).append((sequences, index))
        self._failed[sequences].reasons.setdefault(layer, why)

    def _translate(self, name: str, target: str) -> tuple[str | None, list[_Crossing], Pair | None]:
        """The name by position alone, the unnamed layers on its path, and what refuses them."""
        crossed: list[_Crossing] = []
        refused: Pair | None = None

        def partner(pair: Pair, layer: str) -> str | None:
            nonlocal refused
            if layer not in self._unknown.get(pair.stored, ()):
                return ""
            alignment = self.alignments.of(pair)
            if layer in alignment.by_name or not alignment.layers:
                return ""
            if alignment.refusal:
                refused = pair
                return None
            path = alignment.path(alignment.partners[layer])
            crossed.append(_Crossing(pair, layer, Pair(f"{pair.stored}/{layer}", path)))
            return path

        return descend(name, target, partner), crossed, refused

    def _only_alike(self, failure: _Failure) -> Pair | None:
        """The unnamed stored layer and the live one that agree, if no other two do."""
        stored_paths = {f"{failure.pair.stored}/{name}" for _, name in failure.unnamed}
        having: dict[_Value, set[str]] = {}
        for path in stored_paths:
            for entry in _below(path, self._names[0], self._stored):
                having.setdefault(self._certain(entry, path), set()).add(path)
        pairs = (
            Pair(stored, live)
            for live in failure.paths
            if live is not None
            for stored in self._with_rarest(live, having, stored_paths)
        )
        alike = filter(self._agree, pairs)
        first, second = next(alike, None), next(alike, None)
        return first if second is None else None

    def _with_rarest(
        self, live: str, having: Mapping[_Value, set[str]], every: set[str]
    ) -> Collection[str]:
        """Those stored layers that have the rarest value of a live one: no other can agree."""
        values = [
            (entry.name[len(live) :], entry.shape, entry.dtype)
            for entry in _below(live, self._names[1], self._live)
            if entry.name not in self._live.varying
        ]
        holders = (having.get(v, set()) | having.get((None, *v[1:]), set()) for v in values)
        return min(holders, key=len, default=every)

    def _certain(self, entry: Entry, layer: str) -> _Value:
        """A stored value; its name below the layer only if no position decides it."""
        by_position = self.orders.concern(entry.name) or any(
            component in self._unknown.get(path, ())
            for path, component, _ in containers(entry.name)
            if len(path) >= len(layer)
        )
        return None if by_position else entry.name[len(layer) :], entry.shape, entry.dtype

    def _agree(self, pair: Pair) -> bool:
        """Whether a stored and a live layer have the same values, by name, shape and dtype.

        Also asked of layers that are not partners, so it records no failure.
        """
        if pair not in self._agreements:
            stored_names, live_names = self._names
            stored = {
                self._as_live(e, pair.live + e.name[len(pair.stored) :])
                for e in _below(pair.stored, stored_names, self._stored)
            }
            live = {(e.name, e.shape, e.dtype) for e in _below(pair.live, live_names, self._live)}
            others = {each for each in stored - live if self._is_unstored(each[0])}
            self._agreements[pair] = stored - others == live
        return self._agreements[pair]

    def _is_unstored(self, name: str | None) -> bool:
        entry = self._live.entries.get(name or "")
        return entry is not None and entry.role in _UNSTORED

    def _as_live(self, stored: Entry, target: str) -> tuple[str | None, Shape | None, str]:
        """Name, shape and dtype of the live value that a stored one would go into."""
        name, shape = self._resolved(stored.name, target), stored.shape
        if name is not None and self._live.takes(name, shape):
            shape = self._live.entries[name].shape
        return name, shape, stored.dtype

    def _resolved(self, name: str, target: str) -> str | None:
        translated = self._translate(name, target)[0]
        return None if translated is None else self.orders.match(name, translated).target


def _below(path: str, names: Sequence[str], inventory: Inventory) -> Iterator[Entry]:
    entries = (inventory.entries[name] for name in names_below(path, names))
    return (entry for entry in entries if entry.role not in _UNSTORED)
