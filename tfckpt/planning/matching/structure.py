"""Checks whether equal automatic layer names mean the same layer.

Keras numbers unnamed layers as it creates them, and restores functional and sequential models by
position. If a ``Dense`` is removed from the middle, every following one silently gets its
neighbor's weights, which have the right shape. So an automatic name is trusted only if the layers
around it agree: both sides have equally many layers of that class, each between the same two
neighbors, created in the same order. Layers with names from the user that only one side has are
left out of this comparison, so that a replaced head does not affect the body; unless such a layer
may be one that has an automatic name on the other side. If a file does not store the order of
layers, only their counts and creation numbers are compared. In a list, the index is the layer's
name; if the user named the layer, both sides must have that name at the index.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property, partial
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Layer
from tfckpt.core.names import VARIABLE
from tfckpt.planning.matching.evidence import (
    all_in_same_creation_order,
    misnamed,
    renumbered,
    same_class,
    shapes_below,
    shifted,
    swapped_traits,
    which_hint,
)
from tfckpt.planning.matching.moved_layers import MovedLayers
from tfckpt.stored.tf1.creation_order import in_order_of_making

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfckpt.core.inventory import Inventory, Shape
    from tfckpt.planning.matching.rules import Renames
    from tfckpt.planning.matching.unnamed_layers import Unnamed

    Alike = Callable[[Layer, Layer], bool]


class Layers:
    """Decides which equal automatic names in two inventories mean the same layer."""

    def __init__(
        self, stored: Inventory, live: Inventory, unnamed: Unnamed, renames: Renames
    ) -> None:
        self._renames = renames
        self._stored = stored.sequences
        self._live = live.sequences
        self._lists = live.lists
        self._sides = stored, live
        self._labeled = tuple(_labeled(side.labels) for side in self._sides)
        self._unordered = stored.unordered
        self._listed = stored.listed
        self._unnamed = unnamed
        self._verdicts: dict[tuple[str, str], dict[str, str]] = {}
        self._ambiguities: dict[tuple[str, str], tuple[str, str]] = {}

    @cached_property
    def _moved(self) -> MovedLayers:
        return MovedLayers(*self._sides)

    @cached_property
    def alike(self) -> bool:
        """Whether all layer sequences are the same on both sides.

        Then no variable with the same name on both sides is ambiguous.
        """
        if self._unordered or not self._unnamed.silent:
            return False
        if self._labeled[0] != self._labeled[1]:
            return False
        stored, live = (side.entries.keys() for side in self._sides)
        if stored != live and self._moved.exchanged:
            return False
        pairs = ((layers, self._live.get(path, ())) for path, layers in self._stored.items())
        return all(
            len(stored) == len(live)
            and all(map(_same_layer, stored, live))
            and all_in_same_creation_order(stored, live)
            and not renumbered("", stored, live)
            and all(old.traits == new.traits for old, new in zip(stored, live, strict=True))
            for stored, live in pairs
            if live
        )

    def ambiguity(self, stored: str, live: str) -> tuple[str, str]:
        """Why a stored variable may not be the live one, and a hint; ``""`` twice for no reason.

        Takes canonical names. A rule that renames a parent of a layer, or a variable in it, does
        not say that the layers are the same, so they are compared nevertheless. A rule that maps
        the layer itself, even to its own name, decides.
        """
        # all variables of a layer share the answer
        layers = None if self._unnamed.silent else self._unnamed.orders.layers(stored)
        layers = layers or self._holders(stored, live)
        if layers not in self._ambiguities:
            self._ambiguities[layers] = self._ambiguity(*layers)
        return self._ambiguities[layers]

    def _holders(self, stored: str, live: str) -> tuple[str, str]:
        """The layers of the variables; for variables in a list, the variables themselves."""
        old, new = stored.rpartition("/")[0], live.rpartition("/")[0]
        return (stored, live) if new in self._lists else (old, new)

    def _ambiguity(self, stored: str, live: str) -> tuple[str, str]:
        end = stored.find("/")
        while end != -1:
            stored_path, tail = stored[:end], stored[end:]
            if live.endswith(tail):
                live_path = live[: len(live) - len(tail)]
                layer = tail[1:].partition("/")[0]
                has_layers = stored_path in self._stored or stored_path in self._labeled[0]
                reason = self._compared(stored_path, live_path).get(layer) if has_layers else ""
                stored_layer, live_layer = f"{stored_path}/{layer}", f"{live_path}/{layer}"
                reason = reason or self._moved.conflict(stored_layer, live_layer)
                if reason and not (stored_path == live_path and self._renames.keep(stored_layer)):
                    kinds = {each.name: each.kind for each in self._live.get(live_path, ())}
                    return reason, which_hint(kinds.get(layer, ""))
            end = stored.find("/", end + 1)
        return "", ""

    def _compared(self, stored_path: str, live_path: str) -> dict[str, str]:
        pair = stored_path, live_path
        if pair not in self._verdicts:
            self._verdicts[pair] = {}
            labeled = (side.get(path, ()) for side, path in zip(self._labeled, pair, strict=True))
            if stored_path not in self._stored:
                self._verdicts[pair] = _relabeled(live_path, *labeled, attributes=True)
            elif live_path in self._live and stored_path in self._unordered:
                listed = stored_path in self._listed
                both = self._unnamed.layers(stored_path, live_path), self._live[live_path]
                # Keras's files list the layers of a class in the model's order, TF1's do not
                compare = partial(misnamed, self._alike(*pair)) if listed else renumbered
                ordered = listed or stored_path == live_path
                counted = _counted(live_path, *both, ordered)
                places = self._changed_places(pair, *both)
                self._verdicts[pair] = counted | compare(live_path, *both) | places
            elif stored_path in self._unordered:
                named = _relabeled(live_path, *labeled, attributes=True)
                self._verdicts[pair] = _unnumbered(live_path, self._stored[stored_path]) | named
            elif live_path in self._live:
                both = self._unnamed.layers(stored_path, live_path), self._live[live_path]
                alike = self._alike(*pair)
                by_order = misnamed(alike, live_path, *both) | swapped_traits(
                    alike, live_path, *both
                )
                by_order |= self._changed_places(pair, *both)
                reasons = by_order | _compare(live_path, *both) | _relabeled(live_path, *both)
                indexed = shifted(live_path, *both) if live_path in self._lists else {}
                self._verdicts[pair] = reasons | indexed
        return self._verdicts[pair]

    def _changed_places(
        self, paths: tuple[str, str], stored: Sequence[Layer], live: Sequence[Layer]
    ) -> dict[str, str]:
        old = {layer.name: layer for layer in stored}
        kept = [layer for layer in live if layer.name in old]
        pairs = [(old[new.name], new) for new in kept if old[new.name].base]
        return self._unnamed.changed_places(paths, pairs, {layer.name for layer in kept})

    def _alike(self, stored_path: str, live_path: str) -> Alike:
        """Whether a stored layer and a live one have weights of the same shapes."""

        def alike(old: Layer, new: Layer) -> bool:
            stored, live = self._shapes
            return stored.get(f"{stored_path}/{old.name}") == live.get(f"{live_path}/{new.name}")

        return alike

    @cached_property
    def _shapes(self) -> tuple[Mapping[str, Counter[Shape | None]], ...]:
        """For each side, path → how many weights of each shape are below it."""
        return shapes_below(self._sides[0]), self._unnamed.shapes


def _labeled(labels: Mapping[str, str]) -> dict[str, tuple[Layer, ...]]:
    """Path → the layers in its attributes, with the names that the user gave them."""
    layers: dict[str, tuple[Layer, ...]] = {}
    for path in sorted(labels):
        parent, _, attribute = path.rpartition("/")
        layers[parent] = (*layers.get(parent, ()), Layer(attribute, label=labels[path]))
    return layers


def _same_layer(stored: Layer, live: Layer) -> bool:
    """Whether two layers have the same name, label and class."""
    return (stored.name, stored.label) == (live.name, live.label) and same_class(stored, live)


def _compare(path: str, stored: Sequence[Layer], live: Sequence[Layer]) -> dict[str, str]:
    """Layer → why its name is ambiguous, for the layers of one sequence."""
    old, new = _reduce(stored, live), _reduce(live, stored)
    if [layer.name for layer in old] == [layer.name for layer in new]:
        return {}
    old_at = {layer.name: index for index, layer in enumerate(old)}
    new_at = {layer.name: index for index, layer in enumerate(new)}
    old_count = Counter(layer.base for layer in old)
    new_count = Counter(layer.base for layer in new)
    ambiguous = {
        base
        for base in old_count | new_count
        if base and (old_count[base] != new_count[base] or _displaced(base, old, new))
    }
    return {
        layer.name: _reason(path, layer, (old, old_at), (new, new_at))
        for layer in new
        if layer.name in old_at and {layer.base, old[old_at[layer.name]].base} & ambiguous
    }


def _counted(
    path: str, stored: Sequence[Layer], live: Sequence[Layer], ordered: bool
) -> dict[str, str]:
    """Layer → why its name is ambiguous, if the file does not store the order of layers.

    ``ordered``: within each class the stored layers are in the model's order, as Keras lists them,
    or were named after the live ones, by order of creation.
    """
    old, new = (Counter(layer.base for layer in layers) for layers in (stored, live))
    numbered = {layer.base for layer in stored if layer.number >= 0}
    reasons = {}
    for layer in live:
        base, text = layer.base, f"{layer.name!r} is an automatic name; {path!r} has"
        if base and old[base] != new[base]:
            reasons[layer.name] = (
                f"{text} {new[base]} layers of that class in the model and {old[base]} in the "
                "checkpoint, which does not store their order"
            )
        elif base in numbered and not ordered and not in_order_of_making(live, base):
            reasons[layer.name] = (
                f"{text} its layers of that class in another order than they were created in, "
                "and the checkpoint stores only the order of creation"
            )
    return reasons


def _unnumbered(path: str, stored: Sequence[Layer]) -> dict[str, str]:
    """Layer → why its automatic name is ambiguous: attributes name the live layers."""
    return {
        layer.name: (
            f"{layer.name!r} is an automatic name ({layer.own_name!r} in the file), but {path!r} "
            "in the model names its layers by attribute"
        )
        for layer in stored
        if layer.base and layer.own_name != layer.name
    }


def _relabeled(
    path: str, stored: Sequence[Layer], live: Sequence[Layer], *, attributes: bool = False
) -> dict[str, str]:
    """Layer → why it is another one at the same index, key or attribute, by the user's names.

    With ``attributes``, and for variables, a label counts only if it is elsewhere on the other
    side: an attribute is itself a name, and a variable's name says little.
    """
    labels = {layer.name: layer.label for layer in stored}
    live_names = {layer.label: layer.name for layer in live if layer.label}
    stored_names = {layer.label: layer.name for layer in stored if layer.label}
    reasons = {}
    for layer in live:
        label = labels.get(layer.name, "")
        renamed = label and layer.label and not attributes and layer.kind != VARIABLE
        if label == layer.label or not (
            renamed or layer.label in stored_names or label in live_names
        ):
            continue
        where = f"is {path}/{live_names[label]}" if label in live_names else "is not"
        now = f"which {where} in the model"
        if label and layer.label:
            description = f"{layer.label!r} in the model and {label!r} in the checkpoint, {now}"
        elif layer.label:
            was = f"{path}/{stored_names[layer.label]} in the checkpoint"
            description = f"{layer.label!r} in the model, which is {was}"
        else:
            description = f"{label!r} in the checkpoint, {now}"
        kind = VARIABLE if layer.kind == VARIABLE else "layer"
        reasons[layer.name] = f"{path}/{layer.name} is the {kind} {description}"
    return reasons


def _reduce(layers: Sequence[Layer], others: Sequence[Layer]) -> list[Layer]:
    known = {layer.name for layer in others}
    return [layer for layer in layers if layer.base or layer.name in known]


def _displaced(base: str, old: Sequence[Layer], new: Sequence[Layer]) -> bool:
    return _neighborhoods(base, old) != _neighborhoods(base, new)


def _neighborhoods(base: str, layers: Sequence[Layer]) -> dict[str, tuple[str, str]]:
    names = ["", *(layer.name for layer in layers), ""]
    return {
        layer.name: (names[index], names[index + 2])
        for index, layer in enumerate(layers)
        if layer.base == base
    }


def _reason(
    path: str,
    layer: Layer,
    stored: tuple[Sequence[Layer], Mapping[str, int]],
    live: tuple[Sequence[Layer], Mapping[str, int]],
) -> str:
    (old, old_at), (new, new_at) = stored, live
    position, stored_position = new_at[layer.name], old_at[layer.name]
    at = f"at position {position + 1} of {path!r} in the model"
    text = f"{layer.name!r} is an automatic name, {at}"
    if position != stored_position:
        other = repr(old[position].name) if position < len(old) else "nothing"
        return (
            f"{text}; in the checkpoint {other} is at position {position + 1}, "
            f"and {layer.name!r} at position {stored_position + 1}"
        )
    return (
        f"{text} and in the checkpoint, but the layers around it differ: "
        f"{_around(new, position)} in the model, {_around(old, stored_position)} in the checkpoint"
    )


def _around(layers: Sequence[Layer], position: int) -> str:
    """The layer with two neighbors on either side, to keep the report line short."""
    shown = [layer.name for layer in layers[max(0, position - 2) : position + 3]]
    before = "… " if position > 2 else ""
    after = " …" if position + 3 < len(layers) else ""
    return f"[{before}{', '.join(shown)}{after}] ({len(layers)} in all)"


class Positions:
    """Stored name → live name by the positions of layers, whatever their names.

    In a file that only orders the layers of each class, by the position in the class.
    """

    def __init__(self, stored: Inventory, live: Inventory) -> None:
        self._by_class = stored.unordered & stored.listed
        self._unknown = stored.unordered - stored.listed
        self._at = {
            path: _places(layers, by_class=path in self._by_class)
            for path, layers in stored.sequences.items()
        }
        self._live = live.sequences
        self._found: dict[tuple[str, bool], dict[tuple[str, int], str]] = {}

    def target(self, name: str) -> str | None:
        """The live name at the same position; None if the model has no such position."""
        live_path = stored_path = ""
        for component in name.split("/"):
            live_component: str | None = component
            if stored_path in self._at and live_path in self._live:
                if stored_path in self._unknown:
                    return None
                place = self._at[stored_path].get(component)
                if place is not None:
                    live_component = self._layers(live_path, stored_path).get(place)
                    if live_component is None:
                        return None
            stored_path = f"{stored_path}/{component}" if stored_path else component
            live_path = f"{live_path}/{live_component}" if live_path else live_component or ""
        return live_path

    def _layers(self, live_path: str, stored_path: str) -> Mapping[tuple[str, int], str]:
        """Place → live layer, with places as in the stored sequence."""
        by_class = stored_path in self._by_class
        key = live_path, by_class
        if key not in self._found:
            places = _places(self._live[live_path], by_class=by_class)
            self._found[key] = {place: layer for layer, place in places.items()}
        return self._found[key]


def _places(layers: Sequence[Layer], *, by_class: bool) -> dict[str, tuple[str, int]]:
    """Layer → its class, if it counts, and its position."""
    counts: Counter[str] = Counter()
    places = {}
    for layer in layers:
        kind = layer.kind if by_class else ""
        places[layer.name] = kind, counts[kind]
        counts[kind] += 1
    return places
