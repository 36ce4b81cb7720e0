"""The layers of an inventory, as a suggestion pairs them: their values and what is known of them.

A unit is a layer of a sequence or of a model; where no order of layers is known, as in a file of
another library, it is what holds the variables. PyTorch separates levels by dots.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.inventory import ATTRIBUTES as IN_ATTRIBUTES
from tfckpt.core.inventory import SEQUENCE, VARIABLE, Layer, Role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tfckpt.core.inventory import Entry, Inventory, Shape

MODEL, CLASS, ATTRIBUTES, NO_ORDER = _WORTH = ("model", "class", "attributes", "")
_MOST_LEVELS = 20
Sizes = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Unit:
    """A layer with weights.

    Attributes:
        path: canonical.
        values: its weights, by the rest of their names: ``cell/kernel``.
        kind: its class in snake case, ``""`` if unknown.
        automatic: whether its name says nothing about it.
        at: its position among all layers below one root; () if unknown.
        classes: of the layers that it is in, and its own, as ``at``.
        order: what the position is worth: ``model`` if it is that in functional and sequential
            models, ``class`` if it counts among the layers of its class only, ``attributes`` if it
            is that of a model's attributes, ``""`` if it is none.
        listed: all its weights, if they are known by their index too; else ().
        label: the name that the user gave it, if an attribute, an index or a key names it, or if
            that name looks automatic.
        traits: digests of what feeds it, of what it feeds, and of its settings; ``""`` if unknown.
    """

    path: str
    values: Mapping[str, Entry]
    kind: str = ""
    automatic: bool = False
    at: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()
    order: str = ""
    listed: tuple[Entry, ...] = ()
    label: str = ""
    traits: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        return self.path.partition("/")[0]

    @cached_property
    def sizes(self) -> Sizes:
        """The shapes of its weights without the order of their axes."""
        return tuple(sorted(sorted_shape(entry.shape) for entry in self.values.values()))


def sorted_shape(shape: Shape | None) -> tuple[int, ...]:
    row = shape is not None and len(shape) == 2 and shape[0] == 1  # as some programs keep a bias
    return tuple(sorted((shape or ())[row:]))


@dataclasses.dataclass(frozen=True)
class _Place:
    layer: Layer
    at: tuple[int, ...]
    classes: tuple[str, ...]
    order: str
    attribute: bool


def units(inventory: Inventory, apart: Collection[str] = ()) -> list[Unit]:
    """The units of an inventory, those in a known order first.

    A layer of a class in ``apart`` is replaced by what holds the variables in it.

    >>> from tfckpt.core.inventory import Entry, Inventory
    >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2, 3))
    >>> [(unit.path, list(unit.values)) for unit in units(Inventory("", {kernel.name: kernel}))]
    [('model/a', ['kernel'])]
    """
    layers = _layers(inventory)
    places = dict(_places(inventory, layers))
    labels = {path: layer.own for path, layer in layers.items() if layer.given}
    values: dict[str, dict[str, Entry]] = {}
    for name, entry in inventory.entries.items():
        if entry.role is Role.WEIGHT:
            path = _unit_of(name, places)
            values.setdefault(path, {})[name[len(path) + 1 :]] = entry
    found = [
        _unit(path, below, places.get(path), _listed(path, below, inventory))
        for path, below in values.items()
    ]
    found = [part for unit in found for part in (_inside(unit) if unit.kind in apart else [unit])]
    found = [
        dataclasses.replace(unit, label=label) if (label := labels.get(unit.path)) else unit
        for unit in found
    ]
    return sorted(found, key=lambda unit: (not unit.at, unit.at, unit.path))


def parts(unit: Unit) -> list[Unit]:
    """What holds the variables of a layer, each for itself, as files have it that know no layers.

    >>> from tfckpt.core.inventory import Entry
    >>> names = "query/kernel", "query/bias", "value/kernel"
    >>> values = {name: Entry(f"model/mha/{name}", Role.WEIGHT, "float32", (2,)) for name in names}
    >>> [(part.path, list(part.values)) for part in parts(Unit("model/mha", values))]
    [('model/mha/query', ['kernel', 'bias']), ('model/mha/value', ['kernel'])]
    """
    found = _by_holder(unit)
    if len(found) == 1:
        return [unit]
    return [
        dataclasses.replace(
            unit,
            path=path,
            values=values,
            at=(*unit.at, index),
            classes=(*unit.classes, ""),
            listed=(),
        )
        for index, (path, values) in enumerate(found.items())
    ]


def nests(inventory: Inventory) -> set[str]:
    """The classes of the layers inside of which layers are known, and not variables alone."""
    layers = {p: x.cls for p, x in _layers(inventory).items() if x.cls != VARIABLE}
    known: set[str] = set()
    for path in layers:
        levels = path.split("/", _MOST_LEVELS)[:_MOST_LEVELS]
        known.update(itertools.accumulate(levels[:-1], "{}/{}".format))
    return {kind for path, kind in layers.items() if path in known} - {""}


def _inside(unit: Unit) -> list[Unit]:
    return [Unit(path, values) for path, values in _by_holder(unit).items()]


def _by_holder(unit: Unit) -> dict[str, dict[str, Entry]]:
    found: dict[str, dict[str, Entry]] = {}
    for entry in unit.values.values():
        path = holder_of(entry.name)
        found.setdefault(path, {})[entry.name[len(path) + 1 :]] = entry
    return found


def _listed(path: str, values: Mapping[str, Entry], inventory: Inventory) -> tuple[Entry, ...]:
    listed = [each.name for each in inventory.own_orders.get(path, ())]
    everything = sorted(listed) == sorted(entry.name for entry in values.values())
    return tuple(inventory.entries[name] for name in listed) if everything else ()


def _unit(
    path: str, values: Mapping[str, Entry], place: _Place | None, listed: tuple[Entry, ...]
) -> Unit:
    if place is None:
        return Unit(path, values, listed=listed)
    layer = place.layer
    automatic = not place.attribute and not layer.given
    kind = layer.cls
    label = layer.own if layer.auto and layer.given else ""
    where = place.at, place.classes, place.order
    traits = layer.fed, layer.feeds, layer.settings
    return Unit(path, values, kind, automatic, *where, listed, label, traits)


def _unit_of(name: str, places: Mapping[str, _Place]) -> str:
    """The innermost layer of a known position that a value is in, else what holds it."""
    end = name.rfind("/")
    while end > 0:
        if name[:end] in places:
            return name[:end]
        end = name.rfind("/", 0, end)
    return holder_of(name)


def holder_of(name: str) -> str:
    """What holds a value, by its name; PyTorch separates levels by dots, Keras's files number.

    >>> holder_of("model/dense/vars/0"), holder_of("model/encoder.layer.0.query.weight")
    ('model/dense', 'model/encoder.layer.0.query')
    """
    return re.split(r"/vars/\d+\Z|[/.][^/.]*\Z", name)[0]


def _layers(inventory: Inventory) -> dict[str, Layer]:
    """Path → what is known of the layer there."""
    containers = inventory.containers.items()
    return {f"{path}/{layer.place}": layer for path, held in containers for layer in held.layers}


def _places(inventory: Inventory, layers: Mapping[str, Layer]) -> Iterator[tuple[str, _Place]]:
    """Path of a layer → its place, for all layers in an order."""
    orders = {
        path: [(each, layers.get(each, Layer(each)), ATTRIBUTES) for each in listing]
        for path, listing in inventory.listings.items()
    }
    for path, held in inventory.containers.items():
        by_index = all(layer.place.isdecimal() for layer in held.layers)  # an index is a name
        if held.kind != IN_ATTRIBUTES and not by_index:
            by_class = CLASS if held.kind == SEQUENCE else NO_ORDER
            order = {"class": by_class, "created": NO_ORDER}.get(held.order, MODEL)
            orders[path] = [(f"{path}/{x.place}", x, order) for x in held.layers]
    inner = {child for order in orders.values() for child, _, _ in order}
    pending: list[tuple[str, tuple[int, ...], tuple[str, ...], str]]
    pending = [(path, (), (), MODEL) for path in orders if path not in inner]
    while pending:
        path, above, classes, worth = pending.pop()
        for index, (child, layer, order) in enumerate(orders[path]):
            weakest = max(worth, order, key=_WORTH.index)
            below = (*classes, layer.cls)
            if child in orders and child != path:
                pending.append((child, (*above, index), below, weakest))
            else:
                at = (*above, index) if weakest else ()
                yield child, _Place(layer, at, below, weakest, path in inventory.listings)
