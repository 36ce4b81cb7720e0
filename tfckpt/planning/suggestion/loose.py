"""Variables that no layer holds, as programs of TF1 made them: ``Variable_3``, ``w1`` and ``b1``.

Their numbers are the order in which they were made. It is that of the model's variables if the
shapes are the same one by one: of all of them, or of each name apart. Else each must have a shape
of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.planning.suggestion.words import last_word, means, numbers, says_nothing, template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.core.inventory import Entry, Shape
    from tfckpt.planning.suggestion.units import Unit


def pair_loose(stored: Sequence[Unit], live: Sequence[Unit]) -> dict[str, str]:
    """Stored name → live name, for all that is left of the model; {} if that is not certain."""
    new = [entry for unit in live for entry in _of(unit)]
    sizes = {_size(entry) for entry in new}
    loose = (unit for unit in stored if not unit.kind and not unit.at)
    old = [x for unit in loose for x in unit.values.values() if _size(x) in sizes]
    if not new or len(old) != len(new):
        return {}
    old.sort(key=lambda entry: numbers(entry.name))
    of_names = (
        _groups(old, [template(x.name) for x in old]),
        _groups(new, [last_word(x.name) for x in new]),
    )
    of_sizes = _groups(old, list(map(_size, old))), _groups(new, list(map(_size, new)))
    made = [sorted(_of(unit), key=lambda entry: -len(_size(entry))) for unit in live]
    ordered = all(len({*map(_size, each)}) == len(each) for each in made)  # a kernel, then a bias
    return (
        (_one_by_one([old], [[x for each in made for x in each]]) if ordered else {})
        or _one_by_one(*of_names)
        or (_one_by_one(*of_sizes) if len(of_sizes[0]) == len(old) else {})
    )


def _of(unit: Unit) -> Sequence[Entry]:
    return unit.listed or tuple(unit.values.values())


def _groups(entries: Sequence[Entry], keys: Sequence[object]) -> list[list[Entry]]:
    found: dict[object, list[Entry]] = {}
    for entry, key in zip(entries, keys, strict=True):
        found.setdefault(key, []).append(entry)
    return list(found.values())


def _one_by_one(stored: Sequence[list[Entry]], live: Sequence[list[Entry]]) -> dict[str, str]:
    """By the group of the same shapes in order; {} if not every group has exactly one."""
    old, new = ({tuple(map(_size, each)): each for each in side} for side in (stored, live))
    if old.keys() != new.keys() or not len(stored) == len(live) == len(old):
        return {}
    pairs = (zip(each, new[shapes], strict=True) for shapes, each in old.items())
    found = {a.name: b.name for group in pairs for a, b in group}
    words = [(last_word(old), last_word(new)) for old, new in found.items()]
    return found if all(says_nothing(old) or means(old, new) for old, new in words) else {}


def _size(entry: Entry) -> Shape:
    """The shape without axes of one, which a program may have kept."""
    return tuple(size for size in entry.shape or () if size != 1)
