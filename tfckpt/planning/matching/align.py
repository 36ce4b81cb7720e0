"""Which layer of a checkpoint is which one of the model, or why that is not known.

A layer is held by a container: a functional or sequential model, a list, a dict, or the attributes
of an object. A container of the checkpoint and one of the model are aligned once:

- A name that a user gave is the layer. If both sides have it, but at different places, the layers
  at these places are ambiguous.
- Layers without such names are known by their order alone. They are the same if both sides have as
  many of a class, created in the same order, between the same neighbors, and if none of them got or
  lost a name, or has the inputs, outputs or settings that another one had.
- One such reason refuses the whole class: a restore that is refused for one layer is refused.

A file that does not name its layers, or only numbers them, is read by position: then the positions
must agree in all else that is known, and the layers in the shapes of their weights.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import ATTRIBUTES, LIST, SEQUENCE, VARIABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tfckpt.core.inventory import Container, Layer, Shape

    Layers = Sequence[Layer]
    Shapes = tuple[Shape | None, ...]
    Pairs = Sequence[tuple[Layer, Layer]]
    Names = tuple[set[str], set[str]]  # of each side
    Why = dict[str, str]  # path of a live layer → a reason

_SHOWN = 3
_BY_NAME = (SEQUENCE, ATTRIBUTES)
_OTHER_ORDER = "layers of one class were created in another order in the model"
_EXCHANGED = {
    "cls": "has the class, and with it the variables, that {} has in the checkpoint",
    "fed": "gets its input from the layer that feeds {} in the checkpoint",
    "feeds": "feeds the layer that {} feeds in the checkpoint",
    "settings": "has the settings that {} has in the checkpoint",
}


class Aligned(NamedTuple):
    """Of a stored container and a live one.

    Attributes:
        partners: stored place → path of the live layer, ``""`` if none is certain. A stored layer
            that is not in it is the one of the same place.
        refused: live layer that may have a partner → why none is certain.
        ambiguous: live layer → why the stored one of the same place may be another one.
        unnamed: the stored places with a partner that the position alone tells.
    """

    partners: Mapping[str, str] = {}
    refused: Mapping[str, str] = {}
    ambiguous: Mapping[str, str] = {}
    unnamed: Collection[str] = ()


def align(old: Container, new: Container, stored: str, live: str) -> Aligned:
    """Lay a stored container at one path beside a live one at another."""
    partners = by_given_name(old, new, live)
    unnamed: dict[str, str] = {}
    refused: Why = {}
    if old.order == "created":
        partners = _by_creation(old, new) if new.kind == SEQUENCE else {}
    elif has_positions(old):
        unnamed, refused = _by_position(old, new, stored, live)
        partners |= unnamed
    known = {layer.path: layer for layer in new.layers}
    layers = []
    for x in old.layers:
        partner = known.get(partners.get(x.place, ""))
        if partner or x.own or x.place not in partners:
            layers.append(_as(x, partner))
    ambiguous = _ambiguities(old._replace(layers=tuple(layers)), new, live)
    return Aligned(partners, refused, ambiguous, unnamed)


def _as(stored: Layer, partner: Layer | None) -> Layer:
    """A stored layer at the place of its partner, whose name it has if the file stores none."""
    if partner is None:
        return stored
    return stored._replace(place=partner.place) if stored.own else partner


def by_given_name(old: Container, new: Container, live: str) -> dict[str, str]:
    """Stored place → the live layer that a user called so, where a file knows names, not classes.

    A LayerNormalization called `dense` stands there as one of the unnamed layers of class Dense.
    """
    found: dict[str, str] = {}
    if old.kind == new.kind == SEQUENCE:
        called = {}
        for x in old.layers:
            if x.given is None:
                called[x.own] = x.place
        for x in new.layers:
            if x.own and not x.auto and called.get(x.own, x.place) != x.place:
                found[called[x.own]] = f"{live}/{x.place}"
    return found


# By position


def has_positions(held: Container) -> bool:
    """Whether a file has layers that are not known by their names."""
    return held.order != "all" or (held.kind == SEQUENCE and not all(x.own for x in held.layers))


def classes(old: Container, new: Container) -> list[tuple[Layers, Layers]]:
    """The layers of each class on both sides, in order."""
    found: dict[str, tuple[list[Layer], list[Layer]]] = {}
    for index, held in enumerate((old, new)):
        for layer in held.layers:
            found.setdefault(layer.cls, ([], []))[index].append(layer)
    return list(found.values())


def _by_creation(old: Container, new: Container) -> dict[str, str]:
    """TF1 numbers the layers of a class as it creates them, in the whole graph."""
    found: dict[str, str] = {}
    for group in classes(old, new):
        ones, others = (sorted(side, key=lambda layer: layer.created) for side in group)
        distinct = all(len({x.created for x in side}) == len(ones) for side in (ones, others))
        if distinct and len(ones) == len(others):
            found |= {a.place: b.path for a, b in zip(ones, others, strict=True)}
    return found


def _by_position(
    old: Container, new: Container, stored: str, live: str
) -> tuple[dict[str, str], Why]:
    """The partners of the stored layers that a file does not name, and why live ones have none."""
    # Then a layer with a name is where that name is.
    named = old.order == "all" or new.kind == SEQUENCE == old.kind
    partners: dict[str, str] = {}
    refused: Why = {}
    groups = classes(old, new) if old.order == "class" else [(old.layers, new.layers)]
    for ones, others in groups:
        known = {x.place for x in ones if named and x.own}
        unknown = [(at, x.place) for at, x in enumerate(ones) if x.place not in known]
        numbered = old.kind == SEQUENCE and not all(x.own for x in ones)  # by position, both
        why = _other_positions(ones, others, new.kind, numbered=numbered)
        why = why or _on_branches(old, new, others)
        for at, place in unknown:
            other = others[at] if at < len(others) else None
            sure = other is not None and not why and _is_alike(at, ones, others)
            partners[place] = other.path if other is not None and sure else ""
        taken = {*partners.values()}
        for at, x in enumerate(others) if unknown else ():
            if x.place not in known and x.path not in taken:
                start = max(0, bisect_left(unknown, (at, "")) - _SHOWN)
                near = sorted(unknown[start : start + 2 * _SHOWN], key=lambda one: abs(one[0] - at))
                more = " …" * (len(unknown) > _SHOWN)
                refused[x.path] = (
                    f"the checkpoint does not store the names of all layers of {stored!r}: "
                    f"{x.path.removeprefix(f'{live}/')!r}, at position {at + 1} of {live!r} in the "
                    f"model, may be {' or '.join(repr(place) for _, place in near[:_SHOWN])}{more}"
                    f", but {why or 'the shapes of its weights are others'}"
                )
    return partners, refused


def _is_alike(at: int, old: Layers, new: Layers) -> bool:
    """Whether the layers at a position may be the same, be it of another size.

    None is a variable of no certain shape.
    """
    was, now = old[at].shapes, new[at].shapes
    if was == now or (None in now and len(was) == len(now)):
        return True
    sides = [x.shapes for x in old], [x.shapes for x in new]
    return sorted(map(_rank, was)) == sorted(map(_rank, now)) and is_resized(was, now, *sides)


def _rank(shape: Shape | None) -> int:
    return -1 if shape is None else len(shape)


def is_resized(was: object, now: object, old: Iterable[object], new: Iterable[object]) -> bool:
    """Whether what stands at a position got another size, rather than another place.

    Nothing else then has the shape that it had, or had the shape that it has.
    """
    return was not in new and now not in old


def _other_positions(old: Layers, new: Layers, kind: str, *, numbered: bool) -> str:
    """Why layers at the same positions may not be the same; ``""`` for no reason."""
    if len(old) != len(new):
        return f"there are {len(new)} layers in the model and {len(old)} in the checkpoint"
    before, now = {x.own for x in old}, {x.own for x in new}
    for at, (a, b) in enumerate(zip(old, new, strict=True), start=1):
        ones = a.place, b.place
        if kind != SEQUENCE:  # in attributes, a name of Keras's says no more than its class
            ones = a.cls if a.auto else a.own, b.cls if b.auto else b.own
        moved = a.own != b.own and ((a.given and a.own in now) or (b.given and b.own in before))
        if a.own and (moved or (ones[0] != ones[1] and a.own != b.own and kind in _BY_NAME)):
            shown = ones if ones[0] != ones[1] else (a.own, b.own)
            return f"position {at} is {shown[1]!r} in the model and {shown[0]!r} in the checkpoint"
    places = [x.place for x in old], [x.place for x in new]
    if not numbered and places[0] != places[1] and sorted(places[0]) == sorted(places[1]):
        return "the same names are in another order in the model"
    return _OTHER_ORDER if _other_order(old, new) else ""


def _on_branches(old: Container, new: Container, layers: Layers) -> str:
    """Keras lists layers by their distance from the outputs, also those without weights."""
    if not (old.sizes and new.sizes) or {*old.sizes} & {*new.sizes}:
        return ""
    fed = any(x.fed for x in old.layers)
    if fed or not any(x.beside for x in layers):
        return ""
    return (
        "another branch has a layer like it, and the checkpoint, which has other layers besides, "
        "does not store how they are connected"
    )


# What speaks against layers of the same place


def _ambiguities(old: Container, new: Container, path: str) -> Why:
    """Live layer → why the stored one of the same place may be another one."""
    at = {layer.place: layer for layer in old.layers}
    pairs = [(at[b.place], b) for b in new.layers if b.place in at]
    if (old.kind == SEQUENCE) != (new.kind == SEQUENCE):
        return _in_attributes(old, new, pairs)
    if new.kind not in (SEQUENCE, LIST):  # an attribute or a key is a name itself
        return _exchanged(pairs, "cls")
    firm = _firm(old, new)
    weak = [(a, b) for a, b in pairs if a.place not in firm[0] and b.place not in firm[1]]
    places = {b.place for b in new.layers}
    gone = [a for a in old.layers if a.place not in places]
    exchanged = _exchanged(weak, "fed", "feeds", "settings", gone=gone)
    renamed = _renamed(old, pairs, firm)
    if new.kind == LIST:
        return exchanged | renamed | _other_list(old, new, pairs, firm)
    known = _Classes(old, new, firm)
    lost = {
        b.path: f"{b.path} has a name that was given on one side alone: {b.own!r} in the model, "
        f"{a.own!r} in the checkpoint"
        for a, b in pairs
        if _named_since(a, b, firm) and not known.alone(b)
    }
    found = lost | renamed
    why = {b.cls: found[b.path] for b in new.layers if b.path in found}
    why |= {cls: because for cls in known.weak if (because := known.why(cls, path))}
    automatic = (b for b in new.layers if b.cls in why and b.place not in firm[1])
    of_class = {
        b.path: f"{(b.cls if b.auto else b.place)!r} is an automatic name, and {why[b.cls]}"
        for b in automatic
    }
    return exchanged | of_class | found


def _named_since(a: Layer, b: Layer, firm: Names) -> bool:
    """Whether one of two layers of a place has a name from a user."""
    chosen = a.given is None and b.given and b.auto and a.own != b.own  # a file does not say
    return bool(chosen) or (a.place in firm[0]) != (b.place in firm[1])


def _renamed(old: Container, pairs: Pairs, firm: Names) -> Why:
    """Layers that have one name in the checkpoint and another one, or none, in the model."""
    was = {a.own: a.path for a in old.layers}
    now = {b.own: b.path for _, b in pairs}
    found: Why = {}
    for a, b in pairs:
        if a.own == b.own:
            continue
        before, after = a.place in firm[0], b.place in firm[1]
        moved = (before and a.own in now) or ((after or (b.auto and b.given)) and b.own in was)
        # A variable's name says little, unless another one has it.
        if moved or (before and after and b.cls != VARIABLE):
            what = f"{b.path} is the {VARIABLE if b.cls == VARIABLE else 'layer'}"
            there = f"{a.own!r} in the checkpoint, which is {now.get(a.own, 'not')} in the model"
            if after and before:
                what = f"{what} {b.own!r} in the model and"
            elif not before:
                there = f"{b.own!r} in the model, which is {was.get(b.own)} in the checkpoint"
            found[b.path] = f"{what} {there}"
    return found


def _in_attributes(old: Container, new: Container, pairs: Pairs) -> Why:
    """Automatic names are positions on one side, but attributes on the other.

    They are believed where a layer is the only one like it, and where all of a class have the same
    names on both sides, and were created in the same order.
    """
    counts = [Counter((x.cls, x.shapes) for x in held.layers) for held in (old, new)]
    of_class = [Counter(x.cls for x in held.layers) for held in (old, new)]
    unsure: dict[str, list[tuple[Layer, Layer]]] = {}
    was, now = {x.own for x in old.layers}, {x.own for x in new.layers}
    found = {
        b.path: f"{b.path} is the layer {b.own!r} in the model and {a.own!r} in the checkpoint"
        for a, b in pairs
        if a.own != b.own and ((a.given and a.own in now) or (b.given and b.own in was))
    }
    for a, b in pairs:
        one = a if old.kind == SEQUENCE else b
        if one.auto and not one.given and not (old.order == "created" and a.own == b.place):
            unsure.setdefault(one.cls, []).append((a, b))
    for cls, same in unsure.items():
        sides = [sorted((x.created, x.place) for x in side) for side in zip(*same, strict=True)]
        ranks = [[place for _, place in side] for side in sides]
        many = max(count[cls] for count in of_class)
        if ranks[0] == ranks[1] and many == len(same) and min(sides[0][0], sides[1][0])[0] >= 0:
            continue
        for a, b in same:
            if any(count[kind, b.shapes] > 1 for count in counts for kind in {a.cls, b.cls}):
                side = "checkpoint" if old.kind == SEQUENCE else "model"
                own = a.own if old.kind == SEQUENCE else b.own
                found[b.path] = (
                    f"{b.place!r} is an automatic name in the {side} ({own!r}), but an attribute "
                    "on the other side, and there are several layers like it"
                )
    return found


def _firm(old: Container, new: Container) -> Names:
    """The places of the layers that a user's name identifies, on either side."""
    known = all(x.given is not None for x in old.layers)
    automatic: list[dict[str, list[str]]] = [{}, {}]
    for places, held in zip(automatic, (old, new), strict=True):
        for x in held.layers:
            if x.auto:
                places.setdefault(x.cls, []).append(x.place)
    same = {cls for cls, places in automatic[0].items() if automatic[1].get(cls) == places}
    # A name counts as given again where Keras has counted up to it, unless the layer was rewired.
    wires = {x.place: (x.fed, x.feeds) for x in old.layers}
    before = {x.own for x in old.layers if x.given and (x.cls in same or not x.auto)}
    if all(any(x.fed or x.feeds for x in held.layers) for held in (old, new)):  # both know them
        before -= {x.own for x in new.layers if wires.get(x.place) != (x.fed, x.feeds)}
    now = {
        x.place: x.own
        for x in new.layers
        if x.own and (not x.auto or (known and (x.given or x.own in before)))
    }
    names = {*now.values()}  # in a file that does not say whether they were given
    was = {x.place for x in old.layers if x.given or (x.given is None and x.own in names)}
    return was, {*now}


class _Classes:
    """The layers without a user's name, by class, and what stands around them."""

    def __init__(self, old: Container, new: Container, firm: Names) -> None:
        self._sides = old, new
        self._firm = firm
        named = [
            {x.own for x in held.layers if x.place in places}
            for held, places in zip((old, new), firm, strict=True)
        ]
        self._common = named[0] & named[1]
        self.weak = dict.fromkeys(x.cls for x in new.layers if x.place not in firm[1])
        self._weak = [self._without_names(side) for side in (0, 1)]
        self._around = [self._neighbors(side) for side in (0, 1)]
        self._holes = [self._named_apart(side) for side in (0, 1)]
        self._alone = [self._without_partner(side) for side in (0, 1)]
        self._at = [{x.place: at for at, x in enumerate(held.layers)} for held in self._sides]
        self._counts = [Counter((x.cls, x.shapes) for x in held.layers) for held in self._sides]

    def why(self, cls: str, path: str) -> str:
        """Why the layers of a class may be others; ``""`` for no reason."""
        old, new = (side.get(cls, []) for side in self._weak)
        places = [x.place for x in new]
        if other := self._other_names(old, new, path):
            return other
        if self._sides[0].order in ("class", "created"):  # it does not know what is around them
            return self._apart(cls, old, new)
        if len(places) == 1 and not any(self._alone[side][new[0].shapes] for side in (0, 1)):
            return self._apart(cls, old, new)  # no other layer can be this one
        for place in places:
            around = [side[place] for side in self._around]
            if around[0] != around[1]:
                shown = (
                    "[" + ", ".join((one or "start", place, other or "end")) + "]"
                    for one, other in around
                )
                before, now = shown
                return (
                    f"the layers around it differ: {now} in the model, {before} in the checkpoint"
                )
        return self._apart(cls, old, new) or _on_branches(*self._sides, new)

    def _other_names(self, old: Layers, new: Layers, path: str) -> str:
        """Why the automatic names of a class may be those of others; ``""`` for no reason."""
        names = [[x.place for x in side] for side in (old, new)]
        if len(old) != len(new):
            return (
                f"{path!r} has {len(new)} layers of that class without a name of yours in the "
                f"model, and {len(old)} in the checkpoint"
            )
        if {*names[0]} != {*names[1]}:
            shown = (", ".join(side[:_SHOWN]) for side in reversed(names))
            return "{} in the model are {} in the checkpoint".format(*shown)
        if self._sides[0].order == "created":
            return ""
        if _other_order(old, new) or names[0] != names[1]:
            return (
                f"the layers of that class in {path!r} were created in another order in the model"
            )
        return ""

    def alone(self, layer: Layer) -> bool:
        """Whether no other layer could be meant, on either side."""
        kinds = {(layer.cls, layer.shapes), ("", layer.shapes)}
        return all(sum(count[kind] for kind in kinds) == 1 for count in self._counts)

    def _apart(self, cls: str, old: Layers, new: Layers) -> str:
        """Whether a layer that is named on one side alone may be one of these on the other."""
        marks, named = [], []
        for side, group, others in ((0, old, new), (1, new, old)):
            shapes = dict.fromkeys(x.shapes for x in others)
            alike = (x for each in shapes for x in self._holes[side].get(each, ()))
            holes = {x.place: x for x in alike if x.cls in ("", cls)}
            at = self._at[side]
            places = sorted((*holes, *(x.place for x in group)), key=at.__getitem__)
            marks.append([place in holes for place in places])
            named += [x.own for x in holes.values()]
        if marks[0] == marks[1]:
            return ""
        which = " or ".join(map(repr, named[:_SHOWN]))
        return f"{which}, which has no counterpart, may be a layer of its class under another name"

    def _without_partner(self, side: int) -> Counter[Shapes]:
        """How many layers of each shapes there are whose place is on one side alone."""
        others = {x.place for x in self._sides[not side].layers}
        return Counter(x.shapes for x in self._sides[side].layers if x.place not in others)

    def _without_names(self, side: int) -> dict[str, list[Layer]]:
        found: dict[str, list[Layer]] = {}
        for x in self._sides[side].layers:
            if x.place not in self._firm[side]:
                found.setdefault(x.cls, []).append(x)
        return found

    def _neighbors(self, side: int) -> dict[str, tuple[str, str]]:
        """Place → the layers before and behind, without those that one side alone has named."""
        firm = self._firm[side]
        kept = [x for x in self._sides[side].layers if x.place not in firm or x.own in self._common]
        names = ["", *(x.own if x.place in firm else x.place for x in kept), ""]
        return {x.place: (names[at], names[at + 2]) for at, x in enumerate(kept)}

    def _named_apart(self, side: int) -> dict[Shapes, list[Layer]]:
        """Shapes → the layers with names that the other side has not."""
        found: dict[Shapes, list[Layer]] = {}
        for x in self._sides[side].layers:
            if x.place in self._firm[side] and x.own not in self._common:
                found.setdefault(x.shapes, []).append(x)
        return found


def _other_list(old: Container, new: Container, pairs: Pairs, firm: Names) -> Why:
    """Why the layers of a list that no name identifies may be others."""
    why = ""
    if [x.place for x in old.layers] != [x.place for x in new.layers]:
        many = len(new.layers), len(old.layers)
        why = f"the list has length {many[0]} in the model and {many[1]} in the checkpoint"
        if many[0] < many[1]:
            why += (
                "; a list that grows later must be complete before the restore, with all variables"
            )
    for a, b in () if why else pairs:
        if a.cls and b.cls and a.cls != b.cls:
            kinds = f"{b.cls!r} in the model and {a.cls!r} in the checkpoint"
            why = f"index {b.place} is of class {kinds}"
            break
    weak = (
        [x for x in held.layers if x.place not in places]
        for held, places in zip((old, new), firm, strict=True)
    )
    if not why and not _other_order(*weak):
        return {}
    was, now = (Counter(x.own for x in held.layers) for held in (old, new))
    return {
        b.path: f"{b.path} is identified by its index in a list, but {why or _OTHER_ORDER}"
        for a, b in pairs
        if not (a.given and b.given and a.own == b.own and was[a.own] == now[b.own] == 1)
    }


def _creation_order(cls: str, layers: Iterable[Layer]) -> list[int]:
    """The ranks of the layers of a class in the order of their creation, as far as it is known."""
    numbers = [x.created for x in layers if x.created >= 0 and x.cls == cls]
    rank = {number: at for at, number in enumerate(sorted(set(numbers)))}
    return [rank[number] for number in numbers]


def _other_order(old: Layers, new: Layers) -> bool:
    """Whether the layers of a class were created in another order, as far as it is known."""
    sides: list[dict[str, list[Layer]]] = [{}, {}]
    for by_class, layers in zip(sides, (old, new), strict=True):
        for x in layers:
            by_class.setdefault(x.cls, []).append(x)
    for cls in sides[0].keys() & sides[1].keys():
        before, now = (_creation_order(cls, side[cls]) for side in sides)
        if before and len(before) == len(now) and before != now:
            return True
    return False


def _exchanged(pairs: Pairs, *traits: str, gone: Layers = ()) -> Why:
    """Layers that have what another one had, and no longer what they had; and who is there now."""
    found: Why = {}
    instead: Why = {}
    for trait in traits:
        of_class = trait == "cls"
        changed = [(a, b) for a, b in pairs if getattr(a, trait) != getattr(b, trait)]
        before = (*gone, *(a for a, _ in changed))
        had = {("" if of_class else a.cls, getattr(a, trait)): a for a in before}
        now = {a.place: b.path for a, b in changed}
        for a, b in changed:
            what = getattr(b, trait)
            other = had.get(("" if of_class else b.cls, what)) if what else None
            if other is not None and other is not a and (of_class or other.shapes == b.shapes):
                text = f"{b.path} in the model {_EXCHANGED[trait].format(other.path)}"
                found.setdefault(b.path, text)
                instead.setdefault(now.get(other.place, b.path), text)
    return instead | found
