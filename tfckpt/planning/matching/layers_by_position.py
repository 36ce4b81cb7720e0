"""Matches layers whose names a file of plain TensorFlow does not store.

TensorFlow stores a functional or sequential model's layers by number; tfckpt takes their names from
their variables' names, and a nested model's own name may be in none of them. Such a layer is
matched by position, as TensorFlow does, but only if all else agrees: equally many layers on both
sides, each layer with a known name at its own position, and the same values with the same shapes
and dtypes in the layer itself. Otherwise the live layers without a partner are refused: a model
that is half restored must not go unnoticed.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import Role
from tfckpt.planning.matching.alignment import Alignments, Pair, descend, names_below
from tfckpt.planning.matching.evidence import which_hint
from tfckpt.planning.matching.values_by_index import Orders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.core.inventory import Entry, Inventory, Shape

# plain TensorFlow leaves them out, or only a stateful layer has them
_UNSTORED = frozenset({Role.SEED, Role.METRIC, Role.VOCABULARY, Role.STATE})
_SHOWN = 3


class _Crossing(NamedTuple):
    """An unnamed layer on the path of a value: the sequences, its stored name, and both paths."""

    sequences: Pair
    layer: str
    pair: Pair


class Unnamed:
    """Resolves stored values below such layers; ``orders`` does so within a layer.

    Attributes:
        silent: whether every value keeps the target name that rules give it.
        alignments: of the containers of both sides.
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
        self.alignments = Alignments(stored, live)
        self._agreements: dict[Pair, bool] = {}
        # sequences → path of a live layer, `""` for all → why it has no partner
        self._failed: dict[Pair, dict[str, str]] = {}
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
                self._fail(step.sequences, step.pair.live, why)
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
        for pair in sorted(self._failed, key=lambda pair: (pair.live, pair.stored)):
            alignment = self.alignments.of(pair)
            paths = [alignment.path(each) for each in alignment.layers]
            layer = next((path for path in paths if live.startswith(path + "/")), "")
            why = self._failed[pair].get("") or self._failed[pair].get(layer)
            if not layer or not why or layer in self._partners.get(pair.live, ()):
                continue
            stored_path, live_path = pair
            layer_name, by_name = layer.removeprefix(f"{live_path}/"), alignment.by_name
            if layer_name in by_name:
                continue
            named_paths = {f"{live_path}/{each}" for each in by_name}
            index = paths.index(layer)
            unknown = sorted(
                self._unknown[stored_path].keys() - by_name,
                key=lambda each: abs(self._unknown[stored_path][each] - index),
            )
            shown = " or ".join(map(repr, unknown[:_SHOWN])) + " …" * (len(unknown) > _SHOWN)
            reason = (
                f"the checkpoint does not store the names of all layers of {stored_path!r}: "
                f"{layer_name!r}, at position {index + 1} of {live_path!r} in the model, may "
                f"be {shown}, but {why}"
            )
            alike = [Pair(f"{stored_path}/{each}", path) for each in unknown for path in paths]
            alike = [pair for pair in alike if pair.live == layer or pair.live not in named_paths]
            alike = [pair for pair in alike if self._agree(pair)]
            if len(alike) != 1 or alike[0].live != layer:
                return reason, which_hint()
            rule = f'{{checkpoint: "{alike[0].stored}/**", model: "{layer}/**"}}'
            return reason, f"if they are the same layer: rename: [{rule}]"
        return "", ""

    def _fail(self, sequences: Pair, layer: str, why: str) -> None:
        """Record that a layer of a live sequence, or any (``""``), has no stored partner."""
        self._failed.setdefault(sequences, {}).setdefault(layer, why)

    def _translate(self, name: str, target: str) -> tuple[str | None, list[_Crossing]]:
        """The name by position alone, and the unnamed layers on its path with their partners."""
        crossed: list[_Crossing] = []

        def partner(pair: Pair, layer: str) -> str | None:
            if layer not in self._unknown.get(pair.stored, ()):
                return ""
            alignment = self.alignments.of(pair)
            if layer in alignment.by_name or not alignment.layers:
                return ""
            if why := alignment.refusal:
                self._fail(pair, "", why)
                return None
            path = alignment.path(alignment.partners[layer])
            crossed.append(_Crossing(pair, layer, Pair(f"{pair.stored}/{layer}", path)))
            return path

        return descend(name, target, partner), crossed

    def _agree(self, pair: Pair) -> bool:
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


def _below(path: str, names: Sequence[str], inventory: Inventory) -> Iterator[Entry]:
    entries = (inventory.entries[name] for name in names_below(path, names))
    return (entry for entry in entries if entry.role not in _UNSTORED)
