"""What speaks against two layers being one, besides their names and neighbours.

An automatic name and an index in a list tell no more than a place. So a list's indices are believed
only where the list has as many layers of the same classes, and automatic names only where the
layers were made in the same order (Keras numbers them as they are made, whatever the graph they are
in looks like) and none of them may have been given a name since. Neither is believed where layers
seem to have changed places: each has what fed, or was fed by, another one, or its settings. A layer
of which these merely differ was edited, and is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core.names import VARIABLE
from tfckpt.stored.tf1.creation_order import own_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfckpt.core.inventory import Layer

    Alike = Callable[[Layer, Layer], bool]


def which_hint(kind: str = "") -> str:
    """What to do where a layer, or by its kind a variable in a list, may be another one."""
    what = "variables" if kind == VARIABLE else "layers"
    return f"map them with `rename`, or give the {what} explicit names where the model is built"


def shifted(path: str, stored: Sequence[Layer], live: Sequence[Layer]) -> dict[str, str]:
    """Index → why it is not believed, for the layers in a list; a name on both sides settles it."""
    old = {layer.name: layer for layer in stored}
    why = _list_differs(stored, live)
    return {
        layer.name: f"{path}/{layer.name} is identified by its index in a list, but {why}"
        for layer in live
        if why and layer.name in old and not (layer.label and layer.label == old[layer.name].label)
    }


def _list_differs(stored: Sequence[Layer], live: Sequence[Layer]) -> str:
    if len(stored) != len(live):
        text = f"the list has length {len(live)} in the model and {len(stored)} in the checkpoint"
        grows = "; a list that grows later must be complete before the restore"
        return text + grows * (len(live) < len(stored))
    for old, new in zip(stored, live, strict=True):
        if old.name != new.name:
            return f"the checkpoint has index {old.name} where the model has {new.name}"
        if not same_class(old, new):
            classes = f"{new.kind!r} in the model and {old.kind!r} in the checkpoint"
            return f"index {new.name} is of class {classes}"
    if not all_in_same_creation_order(stored, live):
        return "its layers were created in another order in the model"
    return ""


def same_class(one: Layer, other: Layer) -> bool:
    """Whether two layers may be of one class, as far as that is known."""
    return not one.kind or not other.kind or one.kind == other.kind


def all_in_same_creation_order(stored: Sequence[Layer], live: Sequence[Layer]) -> bool:
    """Whether the layers of each kind were made in the same order, as far as that is known."""
    return all(same_creation_order(kind, stored, live) for kind in {x.base or x.kind for x in live})


def same_creation_order(kind: str, stored: Sequence[Layer], live: Sequence[Layer]) -> bool:
    """Whether the layers of a kind were made in the same order, as far as that is known."""
    old, new = (
        _as_made([x for x in side if kind == (x.base or x.kind)]) for side in (stored, live)
    )
    return not old or not new or len(old) != len(new) or old == new


def _as_made(layers: Sequence[Layer]) -> list[int]:
    """The places of layers of one class in the order in which they were made, if that is known."""
    numbers = [layer.number for layer in layers]
    if -1 in numbers or len(set(numbers)) < len(numbers):
        return []
    return sorted(range(len(numbers)), key=numbers.__getitem__)


def possibly_renamed(
    base: str,
    stored: Sequence[Layer],
    live: Sequence[Layer],
    alike: Alike,
) -> list[Layer]:
    """The named layers of one side that may have automatic names, from ``base``, on the other.

    None where both sides have them at the same positions: a head that was replaced.
    """
    old, new = ([layer for layer in side if layer.base == base] for side in (stored, live))
    known = {layer.name for layer in stored} & {layer.name for layer in live}
    lost = [a for a in _named(stored, known) if any(same_class(a, b) and alike(a, b) for b in new)]
    come = [b for b in _named(live, known) if any(same_class(a, b) and alike(a, b) for a in old)]
    if _pattern(base, stored, lost) == _pattern(base, live, come):
        return []
    return [*lost, *come]


def _named(layers: Sequence[Layer], known: set[str]) -> list[Layer]:
    return [layer for layer in layers if not layer.base and layer.name not in known]


def _pattern(base: str, layers: Sequence[Layer], named: Sequence[Layer]) -> list[str]:
    return [
        "" if layer in named else layer.name
        for layer in layers
        if layer.base == base or layer in named
    ]


def misnamed(
    alike: Alike, path: str, stored: Sequence[Layer], live: Sequence[Layer]
) -> dict[str, str]:
    """Layer → why its name cannot be believed, whatever its number and its neighbours.

    Those of its class were made in another order, or one may have been given a name since.
    """
    found = renumbered(path, stored, live)
    for base in {layer.base for layer in live} & {layer.base for layer in stored} - {""}:
        if not same_creation_order(base, stored, live):
            why = f"the layers of that class in {path!r} were created in another order in the model"
        elif others := possibly_renamed(base, stored, live, alike):
            shown = " or ".join(repr(layer.name) for layer in others)
            why = (
                f"{shown}, which has no counterpart, may be a layer of its class under another name"
            )
        else:
            continue
        text = "is an automatic name, and"
        found |= {each.name: f"{each.name!r} {text} {why}" for each in live if each.base == base}
    return found


def renumbered(path: str, stored: Sequence[Layer], live: Sequence[Layer]) -> dict[str, str]:
    """Layer → why its name cannot be believed: it, or one of its kind, only looks automatic."""
    found: dict[str, str] = {}
    old = {own_name(layer): layer for layer in stored if layer.base and layer.number >= 0}
    for layer in live:
        other = old.get(own_name(layer)) if layer.base and layer.number >= 0 else None
        given = other is not None and (layer.traits.given or other.traits.given)
        if other is None or not given or other.name == layer.name or layer.name in found:
            continue
        why = (
            f"the layer named {own_name(layer)!r} is {path}/{layer.name} in the model and "
            f"{path}/{other.name} in the checkpoint, by its position among the layers of its class"
        )
        found |= {each.name: why for each in live if each.base == layer.base}
    return found


def chosen_elsewhere(stored: Sequence[Layer], live: Sequence[Layer]) -> str:
    """Which layer has a name that only looks automatic, and that the checkpoint has elsewhere."""
    names = [own_name(layer) for layer in stored]
    for place, (old, new) in enumerate(zip(stored, live, strict=True)):
        name, given = own_name(new), old.traits.given or new.traits.given
        if given and name != names[place] and name in names:
            return (
                f"position {place + 1} of their class is {name!r} in the model and "
                f"{names[place]!r} in the checkpoint"
            )
    return ""


def swapped_traits(
    alike: Alike, path: str, stored: Sequence[Layer], live: Sequence[Layer]
) -> dict[str, str]:
    """Layer → why it may be another one: each of some layers has what another of them had."""
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
    return {
        name: f"{path}/{name} in the model {text.format(other=f'{path}/{other}')}"
        for trait, text in texts.items()
        for name, other in _swaps(trait, pairs, alike).items()
    }


def _swaps(trait: str, pairs: Sequence[tuple[Layer, Layer]], alike: Alike) -> dict[str, str]:
    """Layer → the one whose trait it has now, where some have changed theirs with one another."""

    def of(layer: Layer) -> tuple[str, str]:
        return layer.base or layer.kind, getattr(layer.traits, trait)

    left = [(old, new) for old, new in pairs if of(new)[1] and of(old) != of(new)]
    while left:
        had = {of(old): old for old, _ in left}
        have = {of(new) for _, new in left}
        both = [
            (old, new)
            for old, new in left
            if of(old) in have and of(new) in had and alike(had[of(new)], new)
        ]
        if len(both) == len(left):
            return {new.name: had[of(new)].name for _, new in left}
        left = both
    return {}
