"""Evidence that two layers are not the same: counts, neighbors, labels and attributes.

An automatic name is trusted only if both sides have equally many layers of its class, each between
the same two neighbors. Layers with names from the user that only one side has are left out of this
comparison, so that a replaced head does not affect the body. If a file does not store the order of
layers, only their counts and creation numbers are compared.

Keras lists the layers of a functional model by their distance from the outputs. So layers on two
branches change places in the list, and their automatic names with it, when a Dropout is added to
one branch. A file without connections shows this only by its number of layers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Layer, unnumbered
from tfckpt.core.names import VARIABLE
from tfckpt.core.text import listed
from tfckpt.core.topology import interchangeable, keras_order
from tfckpt.planning.matching.evidence import chosen_elsewhere, grouped, in_creation_order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from tfckpt.core.topology import NamedCall


def displaced(path: str, stored: Sequence[Layer], live: Sequence[Layer]) -> dict[str, str]:
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
        if base and (old_count[base] != new_count[base] or _moved(base, old, new))
    }
    return {
        layer.name: _reason(path, layer, (old, old_at), (new, new_at))
        for layer in new
        if layer.name in old_at and {layer.base, old[old_at[layer.name]].base} & ambiguous
    }


def counted(
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
        elif base in numbered and not ordered and not in_creation_order(live, base):
            reasons[layer.name] = (
                f"{text} its layers of that class in another order than they were created in, "
                "and the checkpoint stores only the order of creation"
            )
    return reasons


def named_by_attribute(path: str, stored: Sequence[Layer]) -> dict[str, str]:
    """Layer → why its automatic name is ambiguous: attributes name the live layers."""
    return {
        layer.name: (
            f"{layer.name!r} is an automatic name ({layer.own_name!r} in the file), but {path!r} "
            "in the model names its layers by attribute"
        )
        for layer in stored
        if layer.base and layer.own_name != layer.name
    }


def exchanged_attributes(stored: Sequence[Layer], live: Sequence[Layer]) -> str:
    """Which position is an attribute called as the layer at another one in the checkpoint."""
    names = [layer.name for layer in stored]
    attributes = [layer.name.rpartition("/")[2] for layer in live]
    if names == attributes or sorted(names) != sorted(attributes):
        return ""
    name, attribute = next(pair for pair in zip(names, attributes, strict=True) if len({*pair}) > 1)
    return f"{name!r} in the checkpoint is at the position of {attribute!r} in the model"


def attributes_in_model(
    path: str,
    stored: Sequence[Layer],
    live: Sequence[Layer],
    other: Callable[[Layer], str],
    *,
    ordered: bool,
) -> dict[str, str]:
    """Layer → why its automatic name is ambiguous: in the model it is the name of an attribute.

    The attributes say which layer is which if there is only one of the class on both sides, if the
    user gave the stored layers these very names, or if they were assigned, and their layers
    created, in the order of the stored layers. ``ordered``: ``live`` is in the order of assignment.
    ``other`` returns an attribute that may be a stored layer under another name.
    """
    old = grouped(stored)
    chosen = {layer.name for layer in old.get("", ())}
    attributes = ((layer.name.removeprefix(f"{path}/"), layer) for layer in live)
    new: dict[str, dict[str, Layer]] = {}
    for attribute, layer in attributes:
        if attribute not in chosen:
            new.setdefault(unnumbered(attribute), {})[attribute] = layer
    reasons = {}
    for base in (old.keys() & new.keys()) - {""}:
        unsure = () if _called_so(old[base]) else old[base]
        others = next(filter(None, map(other, unsure)), "")
        why = (
            f"{path}/{others}, which has no counterpart, has the same variables"
            if others
            else _unlike_attributes(path, old[base], new[base], ordered=ordered)
        )
        if why:
            for layer in old[base]:
                reasons[layer.name] = (
                    f"{layer.name!r} is an automatic name in the checkpoint, but an attribute of "
                    f"{path!r} in the model; {why}"
                )
    return reasons


def _unlike_attributes(
    path: str, stored: Sequence[Layer], attributes: Mapping[str, Layer], *, ordered: bool
) -> str:
    """Why attributes do not say which is which of the layers of a class; ``""`` for no reason."""
    names, chosen = [layer.name for layer in stored], _called_so(stored)
    same = attributes.keys() == set(names)
    if not same or (ordered and names != list(attributes) and not chosen):
        return (
            f"the checkpoint has {listed(names)}, the model the attributes {listed([*attributes])}"
        )
    if why := chosen_elsewhere(stored, [attributes[name] for name in names]):
        return why
    if len(names) == 1 or chosen:
        return ""
    if not ordered:
        return f"{path!r} is not a Keras model, so that the order of its layers is unknown"
    if not (_as_created(stored) and _as_created(attributes.values())):
        return f"{listed(names)} were created in another order than they stand in"
    return ""


def attributes_in_checkpoint(
    path: str, stored: Iterable[str], live: Sequence[Layer], other: Callable[[Layer], str]
) -> dict[str, str]:
    """Layer → why its automatic name is ambiguous: in the checkpoint it is that of an attribute.

    ``stored`` has the attributes. No checkpoint has their order, so that they say which layer is
    which only if there is one of the class on both sides, or if the user gave these very names.
    ``other`` returns a stored attribute that may be a layer under another name.
    """
    old = Counter(map(unnumbered, stored))
    reasons = {}
    for base, layers in grouped(live).items():
        if not base or _called_so(layers):
            continue
        others = next(filter(None, map(other, layers)), "")
        if len(layers) == old[base] == 1 and not others:
            continue
        why = (
            f"{others!r} in the checkpoint, which has no counterpart, has the same variables"
            if others
            else f"{path!r} has {len(layers)} such names in the model and {old[base]} in the "
            "checkpoint, which does not store their order"
        )
        for layer in layers:
            reasons[layer.name] = (
                f"{layer.name!r} is the name of an attribute in the checkpoint and an automatic "
                f"name in the model; {why}"
            )
    return reasons


def _as_created(layers: Iterable[Layer]) -> bool:
    numbers = [layer.number for layer in layers if layer.number >= 0]
    return numbers == sorted(numbers)


def _called_so(layers: Sequence[Layer]) -> bool:
    """Whether the user gave each layer the name that only looks automatic."""
    return all(layer.traits.given and layer.own_name == layer.name for layer in layers)


def relabeled(
    path: str, stored: Sequence[Layer], live: Sequence[Layer], *, attributes: bool = False
) -> dict[str, str]:
    """Layer → why it is another one at the same index, key or attribute, by the user's names.

    With ``attributes``, and for variables, a label counts only if the other side has it: an
    attribute is itself a name, and a variable's name says little. A label that one more layer has,
    or one fewer, has not moved, if there are attributes or if it looks automatic: Keras may have
    generated the very name that a user gave to another layer.
    """
    labels = {layer.name: layer.label for layer in stored}
    known = {layer.name: layer for layer in live}
    if attributes:  # an attribute without a label is not among the live layers
        known = {name: Layer(name) for name in labels} | known
    old, new = _holders(stored), _holders(live)
    both = old.keys() & new.keys()
    before, now = _paths(path, old, both), _paths(path, new, both)
    moved = {each for each in both if old[each] - new[each] and new[each] - old[each]}
    coined = {layer.label for layer in (*stored, *live) if layer.traits.given}
    telling = moved if attributes else moved | (both - coined)
    reasons = {}
    for layer in known.values():
        label = labels.get(layer.name, "")
        renamed = label and layer.label and not attributes and layer.kind != VARIABLE
        if label == layer.label or not (renamed or {label, layer.label} & telling):
            continue
        there = f"which is {now.get(label, 'not')} in the model"
        if label and layer.label:
            description = f"{layer.label!r} in the model and {label!r} in the checkpoint, {there}"
        elif layer.label:
            was = f"{before[layer.label]} in the checkpoint"
            description = f"{layer.label!r} in the model, which is {was}"
        else:
            description = f"{label!r} in the checkpoint, {there}"
        kind = VARIABLE if layer.kind == VARIABLE else "layer"
        reasons[layer.name] = f"{path}/{layer.name} is the {kind} {description}"
    return reasons


def _holders(layers: Sequence[Layer]) -> dict[str, set[str]]:
    """Label → the layers that have it."""
    holders: dict[str, set[str]] = {}
    for layer in layers:
        if layer.label:
            holders.setdefault(layer.label, set()).add(layer.name)
    return holders


def _paths(
    path: str, holders: Mapping[str, Iterable[str]], labels: Iterable[str]
) -> dict[str, str]:
    """Label → the paths of the layers that have it."""
    return {
        label: listed([f"{path}/{name}" for name in sorted(holders[label])]) for label in labels
    }


def _reduce(layers: Sequence[Layer], others: Sequence[Layer]) -> list[Layer]:
    known = {layer.name for layer in others}
    return [layer for layer in layers if layer.base or layer.name in known]


def _moved(base: str, old: Sequence[Layer], new: Sequence[Layer]) -> bool:
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


def changed_places(
    pairs: Sequence[tuple[Layer, Layer]],
    calls: Sequence[NamedCall],
    kept: Collection[str],
    more: int,
    shapes: Callable[[Layer], Hashable],
) -> dict[str, str]:
    """Live layer → one on another branch that it may have changed places with in the list.

    ``pairs`` has the stored and the live layers that are the same by their place, or by automatic
    names; ``kept`` the live layers that are not new, ``more`` how many layers without weights the
    checkpoint has more than the model; ``shapes`` returns the shapes of a live layer's weights.
    """
    groups: dict[Hashable, list[tuple[Layer, Layer]]] = defaultdict(list)
    for old, new in pairs:
        if not old.traits.fed:  # else the checkpoint has the connections
            groups[new.kind, shapes(new)].append((old, new))
    found: dict[str, str] = {}
    for group in groups.values():
        names = {new.name for _, new in group}
        if more < 0 or len(kept) < len({call.layer for call in calls} - {""}):
            found |= _swapped(calls, names, kept)
        if more > 0 and not _listed_as_created([old for old, _ in group]):
            found |= interchangeable(calls, names, more)
    return found


def _listed_as_created(layers: Sequence[Layer]) -> bool:
    numbers = [layer.number for layer in layers]
    return numbers == sorted(numbers) and -1 not in numbers


def _swapped(
    calls: Sequence[NamedCall], names: Collection[str], known: Collection[str]
) -> dict[str, str]:
    """Layer → the one that is at its place if only the ``known`` layers are there."""
    now, before = (
        [name for name in keras_order(calls, counted) if name in names]
        for counted in (lambda _: True, known.__contains__)
    )
    return {name: other for name, other in zip(now, before, strict=True) if name != other}
