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
from collections import Counter
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import Role
from tfckpt.planning.matching.by_position import Orders
from tfckpt.planning.matching.evidence import (
    all_in_same_creation_order,
    changed_places,
    chosen_elsewhere,
    shapes_below,
    which_hint,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Entry, Inventory, Layer, Shape

# plain TensorFlow leaves them out, or only a stateful layer has them
_UNSTORED = frozenset({Role.SEED, Role.METRIC, Role.VOCABULARY, Role.STATE})
_SHOWN = 3


class _Pair(NamedTuple):
    """The paths of a stored layer sequence and of the live one that it maps to."""

    stored: str
    live: str


class _Crossing(NamedTuple):
    """An unnamed layer on the path of a value: the sequences, its stored name, and both paths."""

    sequences: _Pair
    layer: str
    pair: _Pair


class Unnamed:
    """Resolves stored values below such layers; ``orders`` does so within a layer.

    Attributes:
        silent: whether every value keeps the target name that rules give it.
    """

    def __init__(self, stored: Inventory, live: Inventory) -> None:
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
        self._differences: dict[_Pair, str] = {}
        self._agreements: dict[_Pair, bool] = {}
        # live sequence → path of a live layer, `""` for all; stored sequence; why
        self._failed: dict[str, set[tuple[str, str, str]]] = {}
        self._partners: dict[str, set[str]] = {}

    @cached_property
    def orders(self) -> Orders:
        return Orders(self._stored, self._live)

    def resolve(self, name: str, target: str) -> tuple[str | None, str]:
        """The live name of a stored value with a target name, and the reason.

        The target itself and ``""`` without such a layer on its path; None if one has no partner,
        or if the value has no position in it.
        """
        resolved, crossed = self._translate(name, target) if self._unknown else (target, [])
        for step in crossed:
            if not self._agree(step.pair):
                why = f"{step.layer!r} in the checkpoint has other names, shapes or dtypes"
                self._fail(step.sequences.live, step.pair.live, step.sequences.stored, why)
                return None, ""
        resolved = None if resolved is None else self.orders.resolve(name, resolved)
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
        for live_sequence in sorted(self._failed):
            paths = [self._path(live_sequence, each) for each in self._layers(live_sequence)]
            layer = next((path for path in paths if live.startswith(path + "/")), "")
            failures = sorted(
                each for each in self._failed[live_sequence] if each[0] in {"", layer}
            )
            if not layer or not failures or layer in self._partners.get(live_sequence, ()):
                continue
            _, stored_path, why = failures[0]
            pair = _Pair(stored_path, live_sequence)
            layer_name = layer.removeprefix(live_sequence + "/")
            if layer_name in self._named_layers(pair):
                continue
            named_paths = {f"{live_sequence}/{each}" for each in self._named_layers(pair)}
            index = paths.index(layer)
            unknown = sorted(
                self._unknown[stored_path].keys() - self._named_layers(pair),
                key=lambda each: abs(self._unknown[stored_path][each] - index),
            )
            shown = " or ".join(map(repr, unknown[:_SHOWN])) + " …" * (len(unknown) > _SHOWN)
            reason = (
                f"the checkpoint does not store the names of all layers of {stored_path!r}: "
                f"{layer_name!r}, at position {index + 1} of {live_sequence!r} in the model, may "
                f"be {shown}, but {why}"
            )
            alike = [_Pair(f"{stored_path}/{each}", path) for each in unknown for path in paths]
            alike = [pair for pair in alike if pair.live == layer or pair.live not in named_paths]
            alike = [pair for pair in alike if self._agree(pair)]
            if len(alike) != 1 or alike[0].live != layer:
                return reason, which_hint()
            rule = f'{{checkpoint: "{alike[0].stored}/**", model: "{layer}/**"}}'
            return reason, f"if they are the same layer: rename: [{rule}]"
        return "", ""

    def layers(self, stored_path: str, live_path: str) -> tuple[Layer, ...]:
        """The layers of a stored sequence; unnamed ones replaced by the live ones they map to."""
        layers = self._stored.sequences[stored_path]
        if stored_path not in self._unknown or self._difference(_Pair(stored_path, live_path)):
            return layers
        partner = self._partner(_Pair(stored_path, live_path))
        return tuple(old if old.named else partner[old.name] for old in layers)

    @cached_property
    def shapes(self) -> dict[str, Counter[Shape | None]]:
        """Path of each live layer → how many weights of each shape are below it."""
        return shapes_below(self._live)

    def changed_places(
        self,
        sequences: tuple[str, str],
        pairs: Sequence[tuple[Layer, Layer]],
        kept: Collection[str],
    ) -> dict[str, str]:
        """Live layer → why neither its place in the list nor its automatic name is enough.

        ``pairs`` has the stored and live layers of two sequences that would be the same, ``kept``
        all live layers that the checkpoint has.
        """
        stored_path, live_path = sequences
        graph, size = self._live.graphs.get(live_path), self._stored.sizes.get(stored_path, 0)
        if graph is None or not size:
            return {}
        known = size - len(self._stored.sequences[stored_path])
        counts = (count - len(self._live.sequences[live_path]) for count in graph.sizes)
        more = min((known - count for count in counts), key=abs)
        shapes = partial(self._shapes_of, live_path)
        return {
            name: (
                f"{name!r} and {other!r} are on different branches of {live_path!r}, which has "
                "other layers besides than in the checkpoint; Keras lists layers by their distance "
                "from the outputs, and the checkpoint does not store the connections"
            )
            for name, other in changed_places(pairs, graph.calls, kept, more, shapes).items()
        }

    def _shapes_of(self, path: str, layer: Layer) -> Hashable:
        return frozenset(self.shapes.get(f"{path}/{layer.name}", Counter()).items())

    def _fail(self, live_sequence: str, layer: str, stored_path: str, why: str) -> None:
        """Record that a layer of a live sequence, or any (``""``), has no stored partner."""
        self._failed.setdefault(live_sequence, set()).add((layer, stored_path, why))

    def _translate(self, name: str, target: str) -> tuple[str | None, list[_Crossing]]:
        """The name by position alone, and the unnamed layers on its path with their partners."""
        crossed: list[_Crossing] = []
        end = name.find("/")
        while end != -1:
            stored_path, tail = name[:end], name[end:]
            layer, slash, rest = tail[1:].partition("/")
            end = name.find("/", end + 1)
            if layer not in self._unknown.get(stored_path, ()) or not target.endswith(tail):
                continue
            sequences = _Pair(stored_path, target.removesuffix(tail))
            if layer in self._named_layers(sequences) or not self._layers(sequences.live):
                continue
            if why := self._difference(sequences):
                self._fail(sequences.live, "", stored_path, why)
                return None, crossed
            partner = self._path(sequences.live, self._partner(sequences)[layer])
            crossed.append(_Crossing(sequences, layer, _Pair(f"{stored_path}/{layer}", partner)))
            target = partner + slash + rest
        return target, crossed

    def _difference(self, pair: _Pair) -> str:
        """Why two sequences cannot be the same, judged by the known names; ``""`` for no reason."""
        if pair not in self._differences:
            compare = _differ_in_members if pair.live in self._live.members else _differ
            both = self._both(pair)
            reasons = (compare(old, new) for old, new in both)
            self._differences[pair] = next(filter(None, reasons), "") or self._moved(pair, both)
        return self._differences[pair]

    def _moved(self, pair: _Pair, both: Sequence[tuple[Sequence[Layer], Sequence[Layer]]]) -> str:
        """Why one of the unnamed layers may not be at the same position in both sequences."""
        pairs = [(a, b) for old, new in both for a, b in zip(old, new, strict=True) if not a.named]
        kept = {layer.name for _, new in both for layer in new}
        return next(iter(self.changed_places(pair, pairs, kept).values()), "")

    def _named_layers(self, pair: _Pair) -> set[str]:
        """The layers of a stored sequence that are matched by name."""
        if pair.stored in self._stored.listed and pair.live in self._live.members:
            return set()
        return {layer.name for layer in self._stored.sequences[pair.stored] if layer.named}

    def _layers(self, live_path: str) -> tuple[Layer, ...]:
        """The layers of a live sequence, or of a subclassed model, in Keras's order."""
        return self._live.sequences.get(live_path) or self._live.members.get(live_path, ())

    def _path(self, live_path: str, layer: Layer) -> str:
        return layer.name if live_path in self._live.members else f"{live_path}/{layer.name}"

    def _partner(self, pair: _Pair) -> Mapping[str, Layer]:
        """Stored layer → the live one at its position, among those of its class if unordered."""
        return {
            stored_layer.name: live_layer
            for old, new in self._both(pair)
            for stored_layer, live_layer in zip(old, new, strict=True)
        }

    def _both(self, pair: _Pair) -> list[tuple[Sequence[Layer], Sequence[Layer]]]:
        """The layers of two sequences, side by side; per class if the file has no order."""
        old, new = self._stored.sequences[pair.stored], self._layers(pair.live)
        if pair.live in self._live.members:
            # Keras does not list layers again that it has reached by an attribute.
            listed = {layer.name for layer in old}
            by_attribute = {_component(name, pair.stored) for name in self._names[0]} - listed
            new = tuple(
                layer for layer in new if _component(layer.name, pair.live) not in by_attribute
            )
        return _by_kind(old, new) if pair.stored in self._stored.unordered else [(old, new)]

    def _agree(self, pair: _Pair) -> bool:
        """Whether a stored and a live layer have the same values, by name, shape and dtype."""
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
        return None if translated is None else self.orders.resolve(name, translated)


def _component(name: str, path: str) -> str:
    """The component of a name after a path; ``""`` if the name is not below the path."""
    return name[len(path) + 1 :].partition("/")[0] if name.startswith(path + "/") else ""


def _by_kind(
    old: Iterable[Layer], new: Iterable[Layer]
) -> list[tuple[Sequence[Layer], Sequence[Layer]]]:
    """The layers of each class on both sides."""
    kinds: dict[str, tuple[list[Layer], list[Layer]]] = {}
    for side, layers in enumerate((old, new)):
        for layer in layers:
            kinds.setdefault(layer.kind, ([], []))[side].append(layer)
    return [(stored_layers, live_layers) for stored_layers, live_layers in kinds.values()]


def _differ_in_members(old: Sequence[Layer], new: Sequence[Layer]) -> str:
    """Why listed layers cannot be those of a live model whose attributes name them."""
    if len(old) != len(new):
        return f"there are {len(new)} layers in the model and {len(old)} in the checkpoint"
    for index, (stored, live) in enumerate(zip(old, new, strict=True)):
        names = stored.base or stored.name, live.base or live.label
        if stored.named and names[0] != names[1]:
            return (
                f"position {index + 1} is {names[1]!r} in the model and {names[0]!r} in the "
                "checkpoint"
            )
    return chosen_elsewhere(old, new) or _made_otherwise(old, new)


def _differ(old: Sequence[Layer], new: Sequence[Layer]) -> str:
    if len(old) != len(new):
        return f"there are {len(new)} layers in the model and {len(old)} in the checkpoint"
    for index, (stored, live) in enumerate(zip(old, new, strict=True)):
        if stored.named and stored.name != live.name:
            return (
                f"position {index + 1} is {live.name!r} in the model and {stored.name!r} in the "
                "checkpoint"
            )
    return _exchanged(old, new)


def _exchanged(old: Sequence[Layer], new: Sequence[Layer]) -> str:
    """Which layer has the name of one at another position; the file has no indices."""
    before, now = ({layer.label for layer in side} - {""} for side in (old, new))
    for index, (stored, live) in enumerate(zip(old, new, strict=True)):
        if stored.label != live.label and (stored.label in now or live.label in before):
            return (
                f"position {index + 1} of their class is {live.label or live.name!r} in the "
                f"model and {stored.label or stored.name!r} in the checkpoint"
            )
    return _made_otherwise(old, new)


def _made_otherwise(old: Sequence[Layer], new: Sequence[Layer]) -> str:
    same = all_in_same_creation_order(old, new)
    return "" if same else "the layers of that class were created in another order in the model"


def _below(path: str, names: Sequence[str], inventory: Inventory) -> Iterator[Entry]:
    for index in range(bisect_left(names, path + "/"), len(names)):
        if not names[index].startswith(path + "/"):
            return
        entry = inventory.entries[names[index]]
        if entry.role not in _UNSTORED:
            yield entry
