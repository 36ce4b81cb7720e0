"""Where a stored value goes by the layers that it is in, and whether these are the same layers.

Layers are held by containers, and containers by layers: a name is read from the top. Each stored
container on its way is laid beside the live one (``align``), which says which of its layers is
which one of the model. A layer may also have moved from one container to another: its name says so,
if a user gave it. And layers of two classes that changed places show it by their variables.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.inventory import ATTRIBUTES, LIST, SEQUENCE, VARIABLE, Container, Layer, Role
from tfckpt.planning.matching.align import Aligned, align, by_given_name, classes, has_positions
from tfckpt.planning.matching.values_by_index import Orders

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Inventory, Shape
    from tfckpt.planning.matching.rules import Renames

_EMPTY = Container(ATTRIBUTES, ())
_KNOWN = Layer._fields.index("beside")  # what a file may know of a layer comes before
MAPPING_HINT = "map them with `rename`, or give the {} explicit names where the model is built"


def steps(name: str) -> Iterator[tuple[str, str, str]]:
    """Each path above a value, from the top, with the component below it and the rest.

    >>> list(steps("model/a/kernel"))
    [('model', 'a', '/kernel'), ('model/a', 'kernel', '')]
    """
    end = name.find("/")
    while end != -1:
        below = name.find("/", end + 1)
        stop = len(name) if below == -1 else below
        yield name[:end], name[end + 1 : stop], name[stop:]
        end = below


class Layers:
    """All containers of a checkpoint beside those of a model."""

    def __init__(self, stored: Inventory, live: Inventory, renames: Renames | None = None) -> None:
        self._sides = stored, live
        self.orders = Orders(stored, live, self.keeps_order)
        self._renames = renames
        self._found: dict[tuple[str, str], Aligned] = {}
        self._known: dict[tuple[str, bool], Container] = {}
        self._positions: dict[tuple[str, str], dict[str, str | None]] = {}
        self._refused: dict[str, str] = {}
        self._ambiguities: dict[tuple[str, str], tuple[tuple[str, str, str], ...]] = {}
        # Whether some layers are known by more than the names of their places.
        self.by_position = False
        for path, held in stored.containers.items():
            other = live.containers.get(path, _EMPTY)
            if has_positions(held) or by_given_name(held, other, path):
                self.by_position = True

    def target(self, name: str, target: str) -> tuple[str | None, str]:
        """The live name of a stored value, and what else its layer was identified by.

        ``target`` is what its name, or a rule, says; None if no layer is certain.
        """
        note = ""
        for path, place, rest in steps(name) if self.by_position else ():
            tail = f"/{place}{rest}"
            if not target.endswith(tail):
                continue
            above = target.removesuffix(tail)
            if self._decided(name, f"{path}/{place}", f"{above}/{place}"):
                continue
            found = self.of(path, above)
            if (partner := found.partners.get(place)) is None:
                continue
            if not partner:
                return None, ""
            if place in found.unnamed:
                note = (
                    f"the file does not store the layer's name, but '{path}/{place}' and "
                    f"{partner!r} have the same position and the same shapes"
                )
            target = partner + rest
        return target, note

    def keeps_order(self) -> bool:
        """Whether the model has its layers in the order of the file, as far as the file has one."""
        stored, live = self._sides
        ranks = {path: at for each in live.listings.values() for at, path in enumerate(each)}
        for path, held in live.containers.items():
            for at, x in enumerate(held.layers):
                ranks.setdefault(f"{path}/{x.place}", at)
        for path, held in stored.containers.items():
            found: dict[str, list[int]] = {}
            for x in held.layers if held.kind in (SEQUENCE, LIST) else ():
                place = f"{path}/{x.place}"
                rank = ranks.get(self.target(place, place)[0] or "")
                if rank is not None:
                    found.setdefault(x.cls if held.order == "class" else "", []).append(rank)
            if any(of_class != sorted(of_class) for of_class in found.values()):
                return False
        return True

    def at_same_position(self, name: str) -> str | None:
        """The live name at the position of a stored one, whatever its layers are called.

        In a file that only orders the layers of each class, at the position in the class. None if
        the model has no such position.
        """
        target = name
        for path, place, rest in steps(name):
            tail = f"/{place}{rest}"
            if not target.endswith(tail):
                continue
            positions = self._by_place(path, target.removesuffix(tail))
            if place in positions:
                if (partner := positions[place]) is None:
                    return None
                target = partner + rest
        return target

    def _by_place(self, stored: str, live: str) -> dict[str, str | None]:
        """Stored place → the live layer at its position, whatever its name."""
        if (stored, live) not in self._positions:
            old, new = self._container(stored), self._container(live, live=True)
            groups: list[tuple[Sequence[Layer], Sequence[Layer]]] = [(old.layers, new.layers)]
            if ATTRIBUTES in (old.kind, new.kind):
                groups = []
            elif old.order == "class":
                groups = classes(old, new)
            elif old.order == "created":
                groups = [(old.layers, ())]
            self._positions[stored, live] = {
                a.place: None if b is None else b.path
                for ones, others in groups
                for a, b in itertools.zip_longest(ones, others[: len(ones)])
            }
        return self._positions[stored, live]

    def why_missing(self, live: str) -> tuple[str, str]:
        """Why no layer is certain for a live value, and a hint; ``""`` twice for no reason."""
        above = (f"{path}/{place}" for path, place, _ in steps(live))
        why = next((why for path in above if (why := self._refused.get(path))), "")
        return why, MAPPING_HINT.format("layers") if why else ""

    def ambiguity(self, stored: str, live: str) -> tuple[str, str]:
        """Why a stored variable may not be the live one, and a hint; ``""`` twice for no reason.

        The rule of the variable decides where it names the layer, from wherever it came.
        """
        above = stored.rpartition("/")[0], live.rpartition("/")[0]
        layers = self.orders.layers(stored) or above
        if self._sides[1].containers.get(layers[1], _EMPTY).kind == LIST:
            layers = stored, live  # a variable stands there as a layer
        for why, old, new in self._ambiguities_of(*layers):
            if not self._decided(stored, old, new):
                return why, MAPPING_HINT.format("variables" if new in self._variables else "layers")
        return "", ""

    def _ambiguities_of(self, stored: str, live: str) -> Sequence[tuple[str, str, str]]:
        """Why two layers, or what holds them, may be others, with the paths of these."""
        known, todo = self._ambiguities, list[tuple[str, str]]()
        while (stored, live) not in known:
            (path, _, place), (above, _, other) = stored.rpartition("/"), live.rpartition("/")
            if not path or not above or place != other:
                known[stored, live] = ()
            else:
                todo.append((stored, live))
                stored, live = path, above
        found = known[stored, live]
        for old, new in reversed(todo):
            path, above = old.rpartition("/")[0], new.rpartition("/")[0]
            if why := self.of(path, above).ambiguous.get(new) or self._moved(old, new):
                found = *found, (why, old, new)
            known[old, new] = found
        return found

    def _decided(self, name: str, stored: str, live: str) -> bool:
        return self._renames is not None and self._renames.decide(name, stored, live)

    @cached_property
    def _variables(self) -> frozenset[str]:
        """The live variables that stand in lists."""
        containers = self._sides[1].containers.items()
        return frozenset(
            f"{path}/{x.place}"
            for path, held in containers
            for x in held.layers
            if x.cls == VARIABLE
        )

    @cached_property
    def certain(self) -> bool:
        """Whether nothing speaks against any two values of the same name."""
        if self.by_position:
            return False
        if self._same:
            return True
        if self._elsewhere or self._exchanged:
            return False
        stored, live = (side.containers for side in self._sides)
        sequences = [{p for p, x in side.items() if x.kind == SEQUENCE} for side in (stored, live)]
        if sequences[0] != sequences[1]:
            return False
        return not any(self.of(path, path).ambiguous for path in stored.keys() & live.keys())

    @property
    def _same(self) -> bool:
        """Whether both sides have the same layers, and weights of the same names and shapes."""
        old, new = (
            {e.name: e.shape for e in side.entries.values() if e.role is Role.WEIGHT}
            for side in self._sides
        )
        was, now = (
            {
                path: (held.kind, held.order, [x[:_KNOWN] for x in held.layers])
                for path, held in side.containers.items()
            }
            for side in self._sides
        )
        return old == new and was == now

    def of(self, stored: str, live: str) -> Aligned:
        """The stored container at a path beside the live one at a path."""
        if (stored, live) not in self._found:
            self._found[stored, live] = found = self._align(stored, live)
            self._refused |= found.refused
        return self._found[stored, live]

    def _align(self, stored: str, live: str) -> Aligned:
        if stored not in self._sides[0].containers:
            return Aligned()
        known = live in self._sides[1].containers
        order = self._sides[0].containers[stored].order
        if not known and order == "all" and live not in self._sides[1].listings:
            return Aligned()
        old, new = self._container(stored), self._container(live, live=True)
        if new.kind == ATTRIBUTES and order == "created":
            return align(old, new, stored, live)._replace(partners=self._by_attribute(old, live))
        if (old.kind == SEQUENCE) != (new.kind == SEQUENCE):
            old, new = self._without_rules(old, live=False), self._without_rules(new, live=True)
        found = align(old, new, stored, live)
        if new.kind == ATTRIBUTES and has_positions(old):
            listed = align(old, new._replace(layers=self._listed(old, stored, live)), stored, live)
            return listed._replace(ambiguous=found.ambiguous if order == "all" else {})
        return found

    def _without_rules(self, held: Container, *, live: bool) -> Container:
        """Without the layers that a rule maps as a whole."""
        if not self._renames:
            return held
        take = self._renames.take
        return held._replace(layers=tuple(x for x in held.layers if not take(x.path, live=live)))

    def _container(self, path: str, *, live: bool = False) -> Container:
        if (path, live) not in self._known:
            held = self._sides[live].containers.get(path, _EMPTY)
            shapes = self._shapes[live]
            pairs = ((f"{path}/{x.place}", x) for x in held.layers)
            layers = tuple(x._replace(path=at, shapes=shapes.get(at, ())) for at, x in pairs)
            self._known[path, live] = held._replace(layers=layers)
        return self._known[path, live]

    @cached_property
    def _shapes(self) -> tuple[Mapping[str, tuple[Shape | None, ...]], ...]:
        """For each side, path of a layer → the shapes of the weights below it."""
        deep = bool(self._sides[0].deep_orders)
        return tuple(_shapes_below(side, deep=deep) for side in self._sides)

    @cached_property
    def _live_names(self) -> list[str]:
        return sorted(self._sides[1].entries)

    def _by_attribute(self, old: Container, live: str) -> dict[str, str]:
        """TF1's numbers may be a part of the attributes' names."""
        own = {x.place: f"{live}/{x.own}" for x in old.layers}
        return own if any(map(self._is_live, own.values())) else {}

    def _is_live(self, path: str) -> bool:
        names, start = self._live_names, f"{path}/"
        at = bisect_left(names, start)
        return at < len(names) and names[at].startswith(start)

    def _listed(self, old: Container, stored: str, live: str) -> tuple[Layer, ...]:
        """The layers of a subclassed model, as Keras lists them.

        It lists none again that the file has under an attribute.
        """
        inventory, start = self._sides[0], f"{stored}/"
        below = {
            n[len(start) :].partition("/")[0] for n in inventory.entries if n.startswith(start)
        }
        held = below - {layer.place for layer in old.layers}
        paths = [
            path
            for path in self._sides[1].listings.get(live, ())
            if path[len(live) + 1 :].partition("/")[0] not in held
        ]
        above = {path.rpartition("/")[0] for path in paths}
        known = {x.path: x for each in above for x in self._container(each, live=True).layers}
        return tuple(known[path] for path in paths if path in known)

    # Names that are held somewhere else

    def _moved(self, stored: str, live: str) -> str:
        """Why a stored layer and a live one at these paths are two."""
        old, new = self._names[0].get(stored, ""), self._names[1].get(live, "")
        if old != new and {old, new} & self._elsewhere.keys():
            _, now = self._elsewhere.get(old, ("", "not"))
            was, _ = self._elsewhere.get(new, ("not", ""))
            if old and new:
                what = f"{new!r} in the model and {old!r} in the checkpoint, which is {now}"
            elif old:
                what = f"{old!r} in the checkpoint, which is {now}"
            else:
                return f"{live} is the layer {new!r} in the model, which is {was} in the checkpoint"
            return f"{live} is the layer {what} in the model"
        other = self._exchanged.get(live) if stored == live and not (old and new) else None
        return f"{live} has the variables that {other} has in the checkpoint" if other else ""

    @cached_property
    def _names(self) -> tuple[dict[str, str], ...]:
        """For each side, path of a layer → the name that a user gave it, on either side."""
        found: tuple[dict[str, str], ...] = {}, {}
        given = set()
        for names, side in zip(found, self._sides, strict=True):
            for path, held in side.containers.items():
                for layer in held.layers:
                    if layer.own and layer.cls != VARIABLE:
                        names[f"{path}/{layer.place}"] = layer.own
                        if layer.given:
                            given.add(layer.own)
        for names in found:
            for path in [path for path, own in names.items() if own not in given]:
                del names[path]
        return found

    @cached_property
    def _elsewhere(self) -> dict[str, tuple[str, str]]:
        """Name → where it was and is, if both sides have it and neither has all of its places."""
        holders: list[dict[str, set[str]]] = [{}, {}]
        for at, names, side in zip(holders, self._names, self._sides, strict=True):
            for path, own in names.items():
                above = path.rpartition("/")[0]
                is_name = side.containers[above].kind == SEQUENCE
                at.setdefault(own, set()).add(f"{above}/{own}" if is_name else path)
        found = {}
        for own in holders[0].keys() & holders[1].keys():
            was, now = holders[0][own] - holders[1][own], holders[1][own] - holders[0][own]
            if was and now:
                found[own] = min(was), min(now)
        return found

    @cached_property
    def _exchanged(self) -> dict[str, str]:
        """Live layer → another one beside it, if each has the variables of the other."""
        stored, live = (side.entries.keys() for side in self._sides)
        if stored <= live or live <= stored:
            return {}
        differ = {name.rpartition("/")[0] for name in stored ^ live}
        old, new = (_variables(side, differ) for side in self._sides)
        before = {(path.rpartition("/")[0], has): path for path, has in old.items()}
        found = {}
        for path, has in new.items():
            other = before.get((path.rpartition("/")[0], has))
            if other is not None and path in old and new.get(other) == old[path]:
                found[path] = other
        return found


def _variables(
    inventory: Inventory, paths: Collection[str]
) -> dict[str, frozenset[tuple[str, Shape | None]]]:
    """Path → names and shapes of the weights directly below."""
    found: dict[str, set[tuple[str, Shape | None]]] = {}
    for entry in inventory.entries.values():
        path, _, name = entry.name.rpartition("/")
        if entry.role is Role.WEIGHT and path in paths:
            found.setdefault(path, set()).add((name, entry.shape))
    return {path: frozenset(each) for path, each in found.items()}


def _shapes_below(inventory: Inventory, *, deep: bool) -> dict[str, tuple[Shape | None, ...]]:
    """Path of a layer → the shapes of its weights; None for a variable of no certain shape.

    ``deep``: as files of Keras 2 list them, also those that another layer has, too.
    """
    layers = {f"{p}/{x.place}" for p, held in inventory.containers.items() for x in held.layers}
    layers.update(*inventory.listings.values())
    found: dict[str, list[Shape | None]] = {path: [] for path in layers}
    variables: dict[str, list[Shape | None]] = {}

    def add(path: str, shapes: list[Shape | None]) -> None:
        while path and path not in found:
            path = path.rpartition("/")[0]
        found.get(path, []).extend(shapes)

    for name, entry in inventory.entries.items():
        if entry.role is Role.WEIGHT:
            shape = None if name in inventory.varying else entry.shape
            add(name.rpartition("/")[0], [shape])
            if name in layers:
                variables[name] = [shape]
    for path in sorted(layers - variables.keys(), key=len, reverse=True):  # the inner ones first
        add(path.rpartition("/")[0], found[path])
    found |= variables
    for path, order in inventory.deep_orders.items() if deep else ():
        entries = [inventory.entries[value.name] for value in order]
        found[path] = [None if e.name in inventory.varying else e.shape for e in entries]
    return {path: tuple(sorted(each, key=str)) for path, each in found.items()}
