"""Which layer of a stored container is which one of the live container.

A container is a model, or a list or dict of layers. Its two sides are aligned once, whatever format
the file has. What identifies a stored layer is

- its name, if the file has it;
- its position in the container, if the file only numbers the layers;
- its position among the layers of its class, if the file numbers those of each class;
- the order of creation within its class, if the file has no other;
- its index in a list.

From that follow the ``partners``. All else that is known, from the number of layers to how they are
connected, is evidence against them: the ``refusal`` says why positions alone decide nothing, the
``conflicts`` why a layer may be another one than that of the same name.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import Layer
from tfckpt.planning.matching.evidence import (
    all_in_same_creation_order,
    chosen_elsewhere,
    exchanged_labels,
    grouped,
    misnamed,
    not_the_same_order,
    other_names,
    other_names_in_attributes,
    renumbered,
    same_class,
    shifted,
    swapped_traits,
)
from tfckpt.planning.matching.neighbors import (
    attributes_in_checkpoint,
    attributes_in_model,
    changed_places,
    counted,
    displaced,
    exchanged_attributes,
    named_by_attribute,
    relabeled,
)
from tfckpt.planning.matching.sides import Sides, component, containers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

    from tfckpt.core.inventory import Inventory
    from tfckpt.planning.matching.rules import Renames

    Side = tuple[Sequence[Layer], Sequence[Layer]]


class Pair(NamedTuple):
    """The path of a stored container, or layer, and of the live one that it maps to."""

    stored: str
    live: str


def descend(name: str, target: str, partner: Callable[[Pair, str], str | None]) -> str | None:
    """The target of a stored value, its layers replaced by their partners, from the top.

    ``partner`` returns the live path for a layer of a stored container, ``""`` to keep the path,
    None if it has none: then the value has no target.
    """
    for path, layer, rest in containers(name):
        tail = f"/{layer}{rest}"
        if target.endswith(tail):
            live = partner(Pair(path, target.removesuffix(tail)), layer)
            if live is None:
                return None
            target = live + rest if live else target
    return target


class Alignment:
    """The layers of a stored container beside those of a live one.

    Attributes:
        stored: the names of the stored layers.
        by_name: of these, those that are matched by name.
        layers: the live layers, in Keras's order.
    """

    def __init__(self, stored: Inventory, live: Inventory, pair: Pair, known: Sides) -> None:
        self._stored, self._live, self._pair, self._known = stored, live, pair, known
        self._old = stored.sequences.get(pair.stored, ())
        self._in_attributes = pair.live in live.members
        self._by_class = pair.stored in stored.unordered
        self.layers = live.sequences.get(pair.live) or live.members.get(pair.live, ())
        self.stored = frozenset(layer.name for layer in self._old)
        self._by_place = self._in_attributes and pair.stored in stored.listed
        self.by_name = frozenset(x.name for x in self._old if x.named and not self._by_place)

    def path(self, layer: Layer) -> str:
        """The canonical path of a live layer."""
        return layer.name if self._in_attributes else f"{self._pair.live}/{layer.name}"

    @property
    def same(self) -> bool:
        """Whether nothing distinguishes the two."""
        return (
            len(self._old) == len(self.layers)
            and all(map(_indistinct, self._old, self.layers))
            and all_in_same_creation_order(self._old, self.layers)
            and not renumbered("", self._old, self.layers)
        )

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Live layer → its class."""
        return {layer.name: layer.kind for layer in self.layers}

    @cached_property
    def partners(self) -> dict[str, Layer]:
        """Stored layer → the live one at its position, or at that in its class."""
        pairs = ((a, b) for old, new in self._sides for a, b in zip(old, new, strict=False))
        return {stored.name: live for stored, live in pairs}

    @cached_property
    def created_alike(self) -> dict[str, str]:
        """Stored layer → the live one of its class that has the same rank in order of creation."""
        pairs: dict[str, str] = {}
        before, now = grouped(self._old), grouped(() if self._in_attributes else self.layers)
        for base in (before.keys() & now.keys()) - {""}:
            sides = before[base], now[base]
            old, new = (sorted(side, key=lambda layer: layer.number) for side in sides)
            ranks = (len({layer.number for layer in side}) for side in sides)
            if len(old) == len(new) and all(count == len(new) for count in ranks):
                pairs.update((a.name, b.name) for a, b in zip(old, new, strict=True))
        return pairs

    @cached_property
    def refusal(self) -> str:
        """Why the positions alone do not match any of the layers; ``""`` for no reason."""
        by_attribute = other_names_in_attributes, chosen_elsewhere, exchanged_attributes
        checks = by_attribute if self._in_attributes else (other_names, exchanged_labels)
        reasons = (not_the_same_order(*side, *checks) for side in self._sides)
        return next(filter(None, reasons), "") or self._branches_of_unnamed()

    @cached_property
    def conflicts(self) -> dict[str, str]:
        """Live layer → why the stored one of the same name may be another one."""
        stored_path, live_path = self._pair
        labels = [
            side.get(path, ()) for side, path in zip(self._known.labels, self._pair, strict=True)
        ]
        if stored_path not in self._stored.sequences:
            named = relabeled(live_path, *labels, attributes=True)
            known = self._stored.structured and live_path in self._live.sequences
            return (self._attributes_in_checkpoint() if known else {}) | named
        if live_path not in self._live.sequences:
            if not self._by_class:
                return {} if self._by_place else self._attributes_in_model()
            named = relabeled(live_path, *labels, attributes=True)
            return named_by_attribute(live_path, self._old) | named
        both = live_path, self._named, self.layers
        if self._by_class:
            listed = stored_path in self._stored.listed
            # Keras's files list the layers of a class in the model's order, TF1's do not
            by_class = counted(*both, ordered=listed or stored_path == live_path)
            names = misnamed(self._alike, *both) if listed else renumbered(*both)
            return by_class | names | self._branches()
        by_name = misnamed(self._alike, *both) | swapped_traits(self._alike, *both)
        labeled = self._known.labeled(live_path, self.layers)
        by_name |= self._branches() | displaced(*both) | relabeled(live_path, self._named, labeled)
        by_index = live_path in self._live.lists
        return by_name | (shifted(live_path, self._named, labeled) if by_index else {})

    def _attributes_in_model(self) -> dict[str, str]:
        stored, live = self._pair
        attributes = self._known.attributes(live, live=True)
        old = [
            each
            for each in self._old
            if not (each.base and self._known.ruled(f"{stored}/{each.name}"))
        ]
        listed = self.layers or [Layer(f"{live}/{name}") for name in attributes]
        kept = frozenset(attributes)
        new = [layer for layer in listed if component(layer.name, live) in kept]
        other = self._with_same_variables(attributes, self.stored, live=True)
        return attributes_in_model(live, old, new, other, ordered=self._in_attributes)

    def _attributes_in_checkpoint(self) -> dict[str, str]:
        stored, live = self._pair
        attributes = self._known.attributes(stored)
        new = [
            each for each in self.layers if not self._known.ruled(f"{live}/{each.name}", live=True)
        ]
        other = self._with_same_variables(attributes, self.kinds, live=False)
        return attributes_in_checkpoint(live, attributes, new, other)

    def _with_same_variables(
        self, attributes: Iterable[str], names: Collection[str], *, live: bool
    ) -> Callable[[Layer], str]:
        """For a layer, an attribute of the other side that has its variables and no counterpart."""
        known, paths = self._known, (self._pair[live], self._pair[not live])
        others = {
            known.weights(f"{paths[0]}/{attribute}", live=live): attribute
            for attribute in attributes
            if attribute not in names
        }
        others.pop(frozenset(), None)
        return lambda layer: others.get(
            known.weights(f"{paths[1]}/{layer.name}", live=not live), ""
        )

    @cached_property
    def _sides(self) -> list[Side]:
        """The layers of both, side by side; per class if the file has no order."""
        new = self.layers
        if self._in_attributes:
            # Keras does not list layers again that it has reached by an attribute
            listed = {layer.name for layer in self._old}
            others = {"", *self._known.components(self._pair.stored)} - listed
            new = tuple(x for x in new if component(x.name, self._pair.live) not in others)
        if not self._by_class:
            return [(self._old, new)]
        classes: dict[str, tuple[list[Layer], list[Layer]]] = {}
        for index, layers in enumerate((self._old, new)):
            for layer in layers:
                classes.setdefault(layer.kind, ([], []))[index].append(layer)
        return list(classes.values())

    @cached_property
    def _named(self) -> Sequence[Layer]:
        """The stored layers, those without names replaced by their partners."""
        if all(layer.named for layer in self._old) or self.refusal:
            return self._old
        return tuple(old if old.named else self.partners[old.name] for old in self._old)

    def _alike(self, old: Layer, new: Layer) -> bool:
        """Whether a stored layer and a live one have weights of the same shapes."""
        stored, live = self._known.shapes
        paths = f"{self._pair.stored}/{old.name}", f"{self._pair.live}/{new.name}"
        return stored.get(paths[0]) == live.get(paths[1])

    def _branches(self) -> dict[str, str]:
        old = {layer.name: layer for layer in self._named}
        kept = [layer for layer in self.layers if layer.name in old]
        pairs = [(old[new.name], new) for new in kept if old[new.name].base]
        return self._other_branches(pairs, {layer.name for layer in kept})

    def _branches_of_unnamed(self) -> str:
        pairs = [
            (a, b) for old, new in self._sides for a, b in zip(old, new, strict=True) if not a.named
        ]
        kept = {layer.name for _, new in self._sides for layer in new}
        return next(iter(self._other_branches(pairs, kept).values()), "")

    def _other_branches(
        self, pairs: Sequence[tuple[Layer, Layer]], kept: Collection[str]
    ) -> dict[str, str]:
        """Live layer → why neither its position nor its automatic name is enough.

        ``pairs`` has the stored and live layers that would be the same, ``kept`` all live layers
        that the checkpoint has.
        """
        stored_path, live_path = self._pair
        graph, size = self._live.graphs.get(live_path), self._stored.sizes.get(stored_path, 0)
        if graph is None or not size:
            return {}
        unweighted = size - len(self._old)
        counts = (count - len(self.layers) for count in graph.sizes)
        more = min((unweighted - count for count in counts), key=abs)
        return {
            name: (
                f"{name!r} and {other!r} are on different branches of {live_path!r}, which has "
                "other layers besides than in the checkpoint; Keras lists layers by their distance "
                "from the outputs, and the checkpoint does not store the connections"
            )
            for name, other in changed_places(
                pairs, graph.calls, kept, more, self._shapes_of
            ).items()
        }

    def _shapes_of(self, layer: Layer) -> Hashable:
        return frozenset(self._known.shapes[1].get(self.path(layer), Counter()).items())


class Alignments:
    """The alignments of all containers of a checkpoint and a model, each made once."""

    def __init__(self, stored: Inventory, live: Inventory, renames: Renames | None = None) -> None:
        self._stored, self._live = stored, live
        self._known = Sides(stored, live, renames)
        self._found: dict[Pair, Alignment] = {}

    def of(self, pair: Pair) -> Alignment:
        if pair not in self._found:
            self._found[pair] = Alignment(self._stored, self._live, pair, self._known)
        return self._found[pair]

    def at_same_position(self, name: str) -> str | None:
        """The live name at the position of a stored one, whatever the names of its layers.

        In a file that only orders the layers of each class, at the position in the class. None if
        the model has no such position.
        """
        return descend(name, name, self._at_same_position)

    def _at_same_position(self, pair: Pair, layer: str) -> str | None:
        if pair.stored not in self._stored.sequences or pair.live not in self._live.sequences:
            return ""
        if pair.stored in self._stored.unordered - self._stored.listed:
            return None
        alignment = self.of(pair)
        if layer not in alignment.stored:
            return ""
        partner = alignment.partners.get(layer)
        return None if partner is None else alignment.path(partner)


def _indistinct(old: Layer, new: Layer) -> bool:
    same = (old.name, old.label, old.traits) == (new.name, new.label, new.traits)
    return same and same_class(old, new)
