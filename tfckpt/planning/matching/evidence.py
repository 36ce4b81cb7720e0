"""Evidence that two layers are not the same: what their names, order, settings and inputs say.

An automatic name or an index in a list is no more than a position. So indices are trusted only if
both lists have equally many layers of the same classes. Automatic names are trusted only if the
layers were created in the same order (Keras numbers them at creation, whatever their graph) and
none of them may have got a name since. Neither is trusted if layers seem to have been swapped: each
has the inputs, the outputs or the settings that another one had. A layer for which these merely
differ was edited, and counts as the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from tfckpt.core.names import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from tfckpt.core.inventory import Layer

    Alike = Callable[[Layer, Layer], bool]
    Check = Callable[[Sequence[Layer], Sequence[Layer]], str]


def which_hint(kind: str = "") -> str:
    """The hint for a layer, or a variable in a list (by ``kind``), that may be another one."""
    what = "variables" if kind == VARIABLE else "layers"
    return f"map them with `rename`, or give the {what} explicit names where the model is built"


def shifted(path: str, stored: Sequence[Layer], live: Sequence[Layer]) -> dict[str, str]:
    """Index → why it is ambiguous, for the layers in a list without an equal user-given name."""
    old = {layer.name: layer for layer in stored}
    why = _other_length(stored, live) or not_the_same_order(stored, live, _other_index)
    return {
        layer.name: f"{path}/{layer.name} is identified by its index in a list, but {why}"
        for layer in live
        if why and layer.name in old and not (layer.label and layer.label == old[layer.name].label)
    }


def not_the_same_order(stored: Sequence[Layer], live: Sequence[Layer], *checks: Check) -> str:
    """Why layers at the same positions may not be the same; ``""`` for no reason."""
    if len(stored) != len(live):
        return f"there are {len(live)} layers in the model and {len(stored)} in the checkpoint"
    if why := next(filter(None, (check(stored, live) for check in checks)), ""):
        return why
    if not all_in_same_creation_order(stored, live):
        return "layers of one class were created in another order in the model"
    return ""


def _other_length(stored: Sequence[Layer], live: Sequence[Layer]) -> str:
    if len(stored) == len(live):
        return ""
    text = f"the list has length {len(live)} in the model and {len(stored)} in the checkpoint"
    grows = "; a list that grows later must be complete before the restore, with all variables"
    return text + grows * (len(live) < len(stored))


def _other_index(stored: Sequence[Layer], live: Sequence[Layer]) -> str:
    for old, new in zip(stored, live, strict=True):
        if old.name != new.name:
            return f"the checkpoint has index {old.name} where the model has {new.name}"
        if not same_class(old, new):
            classes = f"{new.kind!r} in the model and {old.kind!r} in the checkpoint"
            return f"index {new.name} is of class {classes}"
    return ""


def other_names(stored: Sequence[Layer], live: Sequence[Layer]) -> str:
    """Which position has another name, of those that the file has."""
    pairs = zip(stored, live, strict=True)
    return _names_differ((old.named, old.name, new.name) for old, new in pairs)


def other_names_in_attributes(stored: Sequence[Layer], live: Sequence[Layer]) -> str:
    """Which position has another name, or another class if the name is automatic."""
    pairs = zip(stored, live, strict=True)
    return _names_differ(
        (old.named, old.base or old.name, new.base or new.label) for old, new in pairs
    )


def _names_differ(names: Iterable[tuple[bool, str, str]]) -> str:
    for index, (known, old, new) in enumerate(names):
        if known and old != new:
            return f"position {index + 1} is {new!r} in the model and {old!r} in the checkpoint"
    return ""


def exchanged_labels(stored: Sequence[Layer], live: Sequence[Layer]) -> str:
    """Which layer has the user's name of one at another position; the file has no indices."""
    before, now = ({layer.label for layer in side} - {""} for side in (stored, live))
    for index, (old, new) in enumerate(zip(stored, live, strict=True)):
        if old.label != new.label and (old.label in now or new.label in before):
            return _of_their_class(index, new.label or new.name, old.label or old.name)
    return ""


def chosen_elsewhere(stored: Sequence[Layer], live: Sequence[Layer]) -> str:
    """Which name only looks automatic, and is that of another layer in the checkpoint."""
    names = {layer.own_name for layer in stored}
    for index, (old, new) in enumerate(zip(stored, live, strict=True)):
        name, chosen = new.own_name, old.traits.given or new.traits.given
        if chosen and name != old.own_name and name in names:
            return _of_their_class(index, name, old.own_name)
    return ""


def _of_their_class(index: int, live: str, stored: str) -> str:
    position = f"position {index + 1} of their class"
    return f"{position} is {live!r} in the model and {stored!r} in the checkpoint"


def same_class(one: Layer, other: Layer) -> bool:
    """Whether two layers may have the same class; unknown classes may."""
    return not one.kind or not other.kind or one.kind == other.kind


def all_in_same_creation_order(stored: Sequence[Layer], live: Sequence[Layer]) -> bool:
    """Whether the layers of each class were created in the same order, if known."""
    return not _in_other_creation_order(stored, live)


def _in_other_creation_order(stored: Sequence[Layer], live: Sequence[Layer]) -> set[str]:
    """The classes whose layers were created in another order, as far as it is known."""
    before, now = (grouped(side, lambda layer: layer.base or layer.kind) for side in (stored, live))
    orders = {kind: _orders(before[kind], now[kind]) for kind in before.keys() & now}
    return {k for k, (old, new) in orders.items() if old and len(old) == len(new) and old != new}


def _orders(stored: Sequence[Layer], live: Sequence[Layer]) -> tuple[list[int], list[int]]:
    """The ranks in order of creation on both sides, without the layers that kept a given name.

    A name that two layers have, one from Keras and one from a user, tells neither from the other.
    """
    kept = {(layer.name, layer.number) for layer in stored if layer.traits.given}
    for side in (stored, live):
        times = Counter(layer.number for layer in side)
        kept &= {(layer.name, layer.number) for layer in side if times[layer.number] == 1}
    numbered = ([x for x in side if (x.name, x.number) not in kept] for side in (stored, live))
    before, now = map(_ranks, numbered)
    return before, now


def grouped(
    layers: Iterable[Layer], key: Callable[[Layer], str] = lambda layer: layer.base
) -> Mapping[str, list[Layer]]:
    """Base of the automatic names, or another key → the layers that have it."""
    groups: dict[str, list[Layer]] = {}
    for layer in layers:
        groups.setdefault(key(layer), []).append(layer)
    return groups


def creation_order(kind: str, layers: Sequence[Layer]) -> list[int]:
    """The rank of each layer of a class in order of creation; empty if unknown.

    Layers with names of their own have no number, and say nothing about the others. Equal ranks are
    no order of Keras's: one of the names only looks automatic.
    """
    return _ranks([layer for layer in layers if kind == (layer.base or layer.kind)])


def _ranks(layers: Sequence[Layer]) -> list[int]:
    numbers = [layer.number for layer in layers if layer.number != -1]
    rank = {number: at for at, number in enumerate(sorted(set(numbers)))}
    return [rank[number] for number in numbers]


def in_creation_order(layers: Sequence[Layer], base: str) -> bool:
    """Whether the layers of a class are in the order of their creation."""
    numbers = [layer.number for layer in layers if layer.base == base]
    return numbers == sorted(numbers)


class _ByClass:
    """The layers of one side, grouped once for the comparison of each class."""

    def __init__(self, layers: Sequence[Layer], others: Sequence[Layer]) -> None:
        known = {layer.name for layer in others}
        self.by_base = grouped(layers)
        self.named = [x for x in layers if not x.base and x.name not in known]
        self._at = {layer.name: index for index, layer in enumerate(layers)}

    def pattern(self, base: str, named: Sequence[Layer]) -> list[str]:
        """The automatic names of a class in order, with ``""`` for some named layers."""
        layers = sorted((*self.by_base[base], *named), key=lambda layer: self._at[layer.name])
        return [layer.name if layer.base else "" for layer in layers]


def _possibly_renamed(base: str, stored: _ByClass, live: _ByClass, alike: Alike) -> list[Layer]:
    """The named layers of one side that may have automatic names, from ``base``, on the other.

    None where both sides have them at the same positions: a head that was replaced.
    """
    old, new = stored.by_base[base], live.by_base[base]
    only_stored = [a for a in stored.named if any(same_class(a, b) and alike(a, b) for b in new)]
    only_live = [b for b in live.named if any(same_class(a, b) and alike(a, b) for a in old)]
    if stored.pattern(base, only_stored) == live.pattern(base, only_live):
        return []
    return [*only_stored, *only_live]


def _chosen_since(old: Sequence[Layer], new: Sequence[Layer], alike: Alike) -> str:
    """A name that looks automatic, but was chosen, and that the other side does not have.

    It matters only if another layer of the class could have been that layer.
    """
    names = {x.own_name for x in old} ^ {x.own_name for x in new}
    in_model = set(new)
    for layer in (*new, *old):
        if layer.traits.given and layer.own_name in names:
            pairs = ((a, layer) for a in old) if layer in in_model else ((layer, b) for b in new)
            if sum(alike(a, b) for a, b in pairs) > 1:
                return layer.own_name
    return ""


def misnamed(
    alike: Alike, path: str, stored: Sequence[Layer], live: Sequence[Layer]
) -> dict[str, str]:
    """Layer → why its automatic name is ambiguous, whatever its number and neighbors.

    The layers of its class were created in another order, or one may have got a name since.
    """
    reasons = renumbered(path, stored, live)
    reordered = _in_other_creation_order(stored, live)
    before, now = _ByClass(stored, live), _ByClass(live, stored)
    for base in now.by_base.keys() & before.by_base.keys() - {""}:
        if base in reordered:
            why = f"the layers of that class in {path!r} were created in another order in the model"
        elif others := _possibly_renamed(base, before, now, alike):
            shown = " or ".join(repr(layer.name) for layer in others)
            why = (
                f"{shown}, which has no counterpart, may be a layer of its class under another name"
            )
        elif name := _chosen_since(before.by_base[base], now.by_base[base], alike):
            why = f"the name {name!r} of one of its class was chosen, and only one side has it"
        else:
            continue
        for layer in now.by_base[base]:
            reasons.setdefault(layer.name, f"{layer.name!r} is an automatic name, and {why}")
    return reasons


def renumbered(path: str, stored: Sequence[Layer], live: Sequence[Layer]) -> dict[str, str]:
    """Layer → why its name is ambiguous: it, or one of its class, only looks automatic."""
    reasons: dict[str, str] = {}
    old = {layer.own_name: layer for layer in stored if layer.base and layer.number >= 0}
    classes = grouped(live)
    for layer in live:
        other = old.get(layer.own_name) if layer.base and layer.number >= 0 else None
        chosen = other is not None and (layer.traits.given or other.traits.given)
        if other is None or not chosen or other.name == layer.name or layer.name in reasons:
            continue
        why = (
            f"the layer named {layer.own_name!r} is {path}/{layer.name} in the model and "
            f"{path}/{other.name} in the checkpoint, by its position among the layers of its class"
        )
        reasons |= {each.name: why for each in classes[layer.base]}
    return _two_names(path, stored, live) | reasons


def _two_names(path: str, stored: Sequence[Layer], live: Sequence[Layer]) -> dict[str, str]:
    """Layer → why it is another one than that at its place: both were named by a user."""
    given = {layer.name: layer.own_name for layer in stored if layer.base and layer.traits.given}
    return {
        layer.name: f"{path}/{layer.name} is named {layer.own_name!r} in the model and "
        f"{given[layer.name]!r} in the checkpoint, and both names were chosen"
        for layer in live
        if layer.base
        and layer.traits.given
        and layer.own_name != given.get(layer.name, layer.own_name)
    }


def swapped_traits(
    alike: Alike, path: str, stored: Sequence[Layer], live: Sequence[Layer]
) -> dict[str, str]:
    """Layer → why it may be another one: layers have swapped inputs, outputs or settings."""
    old = {layer.name: layer for layer in stored}
    pairs = [
        (old[layer.name], layer)
        for layer in live
        if layer.name in old and (layer.base or not (layer.label and old[layer.name].label))
    ]
    texts = {
        "fed": "gets its input from the layer that feeds {other} in the checkpoint",
        "feeds": "feeds the layer that {other} feeds in the checkpoint",
        "settings": "has the settings that {other} has in the checkpoint",
    }
    found = {
        "fed": _taken_over("fed", pairs, alike),
        "feeds": _taken_over("feeds", pairs, alike),
        "settings": _swapped_settings(pairs, alike),
    }
    return {
        name: f"{path}/{name} in the model {text.format(other=f'{path}/{other}')}"
        for trait, text in texts.items()
        for name, other in found[trait].items()
    }


def _taken_over(trait: str, pairs: Sequence[tuple[Layer, Layer]], alike: Alike) -> dict[str, str]:
    """Layer → the one that had its inputs or outputs, and has others now.

    A layer that changed places with one without weights takes over the place of a third.
    """
    trait_of = partial(_class_and, trait)
    changed = [(old, new) for old, new in pairs if trait_of(old) != trait_of(new)]
    had = {trait_of(old): old for old, _ in changed if trait_of(old)[1]}
    others = ((new, had.get(trait_of(new))) for _, new in changed)
    return {
        new.name: other.name
        for new, other in others
        if other is not None and other.name != new.name and alike(other, new)
    }


def _class_and(trait: str, layer: Layer) -> tuple[str, str]:
    return layer.base or layer.kind, getattr(layer.traits, trait)


def _swapped_settings(pairs: Sequence[tuple[Layer, Layer]], alike: Alike) -> dict[str, str]:
    """Layer → the one whose settings it has now, for layers that have swapped theirs.

    A pair that takes no part in a swap leaves, and then those that depended on it.
    """
    settings = partial(_class_and, "settings")
    remaining = {
        at: (old, new)
        for at, (old, new) in enumerate(pairs)
        if settings(new)[1] and settings(old) != settings(new)
    }
    had: dict[Hashable, dict[int, Layer]] = defaultdict(dict)
    have: dict[Hashable, dict[int, Layer]] = defaultdict(dict)
    for at, (old, new) in remaining.items():
        had[settings(old)][at], have[settings(new)][at] = old, new

    def other(new: Layer) -> Layer | None:
        return next(reversed(had[settings(new)].values()), None)

    def stays(old: Layer, new: Layer) -> bool:
        before = other(new) if have[settings(old)] else None
        return before is not None and alike(before, new)

    unsure: Iterable[int] = remaining
    while leaving := {at: remaining[at] for at in unsure if not stays(*remaining[at])}:
        for at, (old, new) in leaving.items():
            del remaining[at], had[settings(old)][at], have[settings(new)][at]
        lost = {settings(old) for old, _ in leaving.values()}
        unused = {each for _, new in leaving.values() if not have[each := settings(new)]}
        unsure = {*chain(*(have[each] for each in lost), *(had[each] for each in unused))}
    return {new.name: before.name for _, new in remaining.values() if (before := other(new))}
