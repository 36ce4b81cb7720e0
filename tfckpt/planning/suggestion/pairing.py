"""Which layer of a checkpoint is which layer of a model, where their names differ.

Two layers are paired if their weights fit, nothing speaks against it, and either nothing else fits,
or their names or the order of layers tell them from all others that fit. Where names and order
disagree, or neither says anything, the layers that fit are kept as a choice for a person to make.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import TYPE_CHECKING

from tfckpt.planning.suggested import Candidates
from tfckpt.planning.suggestion.order import by_order
from tfckpt.planning.suggestion.renaming import rename_rules
from tfckpt.planning.suggestion.units import CLASS, MODEL
from tfckpt.planning.suggestion.words import (
    UNUSED,
    distinct,
    likeness,
    means,
    numbers,
    template,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Entry, Shape
    from tfckpt.planning.suggestion.units import Unit

    Group = tuple[Unit, ...]

_LIKE, _MARGIN = 0.5, 0.1
_MOST_LEVELS = 20
_UNKNOWN = "equal shapes, and neither names nor order tell them apart"
_INDEX = re.compile(r"(\A|/)vars/\d+\Z")
_MOST = 20_000  # comparisons of names among layers that fit alike


@dataclasses.dataclass(frozen=True)
class Pairing:
    """What was found.

    Attributes:
        names: stored name → live name, of the weights of the paired layers.
        choices: what a person must decide.
        gave_up: why not all was compared; ``""`` if it was.
    """

    names: Mapping[str, str]
    choices: tuple[Candidates, ...] = ()
    gave_up: str = ""


def pair(
    stored: Sequence[Unit],
    live: Sequence[Unit],
    matched: Mapping[str, str],
    suspects: Collection[str],
) -> Pairing:
    """Pair the layers of two inventories.

    Args:
        stored: all layers of the checkpoint, in order.
        live: all layers of the model, in order.
        matched: stored name → live name, of the values that the policy restores already.
        suspects: paths of live layers whose order was found to contradict their names.
    """
    names: dict[str, str] = {}
    while True:
        found = _Matcher(stored, live, {**matched, **names}, suspects).run()
        if not found.names:
            return dataclasses.replace(found, names=names)
        names |= found.names  # with these, others may be the only ones left


class _Matcher:
    def __init__(
        self,
        stored: Sequence[Unit],
        live: Sequence[Unit],
        matched: Mapping[str, str],
        suspects: Collection[str],
    ) -> None:
        self._sides = stored, live
        taken = set(matched.values())
        self._stored = [unit for unit in stored if not matched.keys() & _names(unit)]
        self._live = [unit for unit in live if not taken & _names(unit)]
        self._suspects = suspects
        self._matched = matched
        self._fits: dict[tuple[str, str], Mapping[str, str] | None] = {}

    def run(self) -> Pairing:
        by_sizes: dict[object, tuple[list[Unit], list[Unit]]] = {}
        for number, side in enumerate((self._stored, self._live)):
            for unit in side:
                by_sizes.setdefault(_sizes(unit), ([], []))[number].append(unit)
        gave_up = ""
        ordered = by_order(*self._sides, self._matched, self._fit, self._suspects)
        named = self._by_ending()
        rivals: dict[str, list[Unit]] = {}
        for old, new in by_sizes.values():
            if len(old) * len(new) > _MOST:
                gave_up = f"{len(new):,} layers have the same shapes; they were not compared"
                continue
            named = self._by_name(old, new) | named
            for unit in new:
                rivals[unit.path] = [one for one in old if self._fit(one, unit) is not None]
        names, choices = self._decided(rivals, named, ordered)
        return Pairing(names, tuple(choices), gave_up)

    def _decided(
        self,
        rivals: Mapping[str, Sequence[Unit]],
        named: Mapping[str, str],
        ordered: Mapping[str, str],
    ) -> tuple[dict[str, str], list[Candidates]]:
        """The pairs that nothing speaks against; and the rest, for a person."""
        wanted = Counter(unit.path for fitting in rivals.values() for unit in fitting)
        paths = {unit.path: unit for unit in self._live}
        chosen: dict[str, Unit] = {}
        for path, fitting in rivals.items():
            opinions = {one[path] for one in (named, ordered) if path in one}
            alone = len(fitting) == 1 and wanted[fitting[0].path] == 1
            if not opinions and alone and self._unordered(paths[path], fitting[0]):
                opinions = {fitting[0].path}
            if len(opinions) == 1:
                of_opinion = (unit for unit in fitting if unit.path in opinions)
                chosen.update((path, unit) for unit in of_opinion)
        twice = {path for path, n in Counter(u.path for u in chosen.values()).items() if n > 1}
        chosen = {path: unit for path, unit in chosen.items() if unit.path not in twice}
        names: dict[str, str] = {}
        for path, unit in chosen.items():
            names |= self._fit(unit, paths[path]) or {}
        used = {unit.path for unit in chosen.values()}
        choices = []
        for path, fitting in rivals.items():
            rest = tuple(unit.path for unit in fitting if unit.path not in used)
            if path not in chosen and rest:
                evidence = _evidence(path, named, ordered)
                rule = _rule(self._fits[rest[0], path] or {}, rest[0], path)
                choices.append(Candidates(path, rest, evidence, rule))
        return names, choices

    def _unordered(self, live: Unit, stored: Unit) -> bool:
        """Whether no order of layers could tell that they are two."""
        return not (live.order in (MODEL, CLASS) and stored.order in (MODEL, CLASS))

    def _fit(self, stored: Unit, live: Unit) -> Mapping[str, str] | None:
        """Stored name → live name of their weights; None if they do not fit."""
        pair = stored.path, live.path
        if pair not in self._fits:
            self._fits[pair] = None if _other_class(stored, live) else fitted(stored, live)
        return self._fits[pair]

    def _by_ending(self) -> dict[str, str]:
        """Live path → stored path, where the paths end alike, and no others end so."""
        rest = [
            {unit.path: unit for unit in side if not unit.automatic}
            for side in (self._stored, self._live)
        ]
        found: dict[str, str] = {}
        deepest = max((path.count("/") for side in rest for path in side), default=0)
        for levels in range(min(deepest, _MOST_LEVELS), 0, -1):
            alike: dict[str, tuple[list[str], list[str]]] = {}
            for number, side in enumerate(rest):
                for path in side:
                    if path.count("/") >= levels:
                        end = path.rsplit("/", levels)
                        alike.setdefault("/".join(end[1:]), ([], []))[number].append(path)
            for old, new in alike.values():
                if len(old) == len(new) == 1 and self._fit(rest[0][old[0]], rest[1][new[0]]):
                    found[new[0]] = old[0]
                if old and new:
                    for paths, side in zip((old, new), rest, strict=True):
                        for path in paths:
                            del side[path]
        return found

    def _by_name(self, stored: Sequence[Unit], live: Sequence[Unit]) -> dict[str, str]:
        """Live path → stored path, where the names say it, whatever their numbers."""
        found: dict[str, str] = {}
        old, new = _groups(stored), _groups(live)
        for fitting_old, fitting_new in _mutual(old, new, self._group_fits):
            pairs = zip(fitting_old, fitting_new, strict=True)
            found |= {two.path: one.path for one, two in pairs}
        return found

    def _group_fits(self, old: Group, new: Group) -> bool:
        if len(old) != len(new) or not _numbered_alike(old, new):
            return False
        return all(self._fit(a, b) is not None for a, b in zip(old, new, strict=True))


def fitting(stored: Sequence[Unit], live: Sequence[Unit]) -> Iterator[Candidates]:
    """A choice for each live unit that a stored one fits."""
    by_sizes: dict[object, list[Unit]] = {}
    for unit in stored:
        by_sizes.setdefault(_sizes(unit), []).append(unit)
    for unit in live:
        fits = [one for one in by_sizes.get(_sizes(unit), ()) if fitted(one, unit) is not None]
        if fits:
            rule = _rule(fitted(fits[0], unit) or {}, fits[0].path, unit.path)
            yield Candidates(unit.path, tuple(one.path for one in fits), _UNKNOWN, rule)


def _rule(names: Mapping[str, str], stored: str, live: str) -> tuple[str, str]:
    return (rename_rules(names, names, names.values()) or [(f"{stored}/**", f"{live}/**")])[0]


def _mutual(
    old: Sequence[Group], new: Sequence[Group], fits: Callable[[Group, Group], bool]
) -> Iterator[tuple[Group, Group]]:
    """Pairs of groups that are each other's likest by far, or of several that alone fit."""
    paths = [[group[0].path for group in groups] for groups in (old, new)]
    if not all(paths):
        return
    likely = [
        [[words(path) for path in each] for each in paths],
        [distinct(each) for each in paths],
    ]
    scores = {
        (i, j): max(likeness(these[0][i], these[1][j]) for these in likely)
        for i, one in enumerate(old)
        for j, other in enumerate(new)
        if fits(one, other)
    }
    for (i, j), like in scores.items():
        others = [s for (a, b), s in scores.items() if (a == i) != (b == j)]
        far = like >= _LIKE and all(like >= other + _MARGIN for other in others)
        if far or (not others and len(old[i]) > 1):
            yield old[i], new[j]


def _groups(units: Sequence[Unit]) -> list[Group]:
    """Units whose paths differ in numbers alone; not those whose names say nothing."""
    groups: dict[str, list[Unit]] = {}
    for unit in units:
        if not unit.automatic:
            groups.setdefault(template(unit.path), []).append(unit)
    return [tuple(sorted(each, key=lambda unit: numbers(unit.path))) for each in groups.values()]


def _numbered_alike(old: Group, new: Group) -> bool:
    """Whether the numbers of two groups differ, if at all, by where they begin to count."""
    first = [numbers(group[0].path) for group in (old, new)]
    if len(old) == 1:
        return True
    if len(first[0]) != len(first[1]):
        return False
    steps = [
        tuple(b - a for a, b in zip(first[side], numbers(unit.path), strict=True))
        for side, group in enumerate((old, new))
        for unit in group
    ]
    return steps[: len(old)] == steps[len(old) :]


def fitted(stored: Unit, live: Unit) -> dict[str, str] | None:
    """Stored name → live name of the weights of two layers, if all of them fit."""
    if _same_list(stored, live):  # the plan goes by the index
        return {e.name: live.path + e.name[len(stored.path) :] for e in stored.listed}
    rest = dict(live.values)
    found: dict[str, str] = {}
    left = {word: entry for word, entry in stored.values.items() if _last(word) not in UNUSED}
    if len(left) != len(rest):
        return None
    if all(map(_INDEX.search, left)):  # as above; in a cell, say
        same = stored.sizes == live.sizes
        return {e.name: f"{live.path}/{word}" for word, e in left.items()} if same else None
    for exact in (True, False):
        for word, entry in list(left.items()):
            fits = [
                other
                for other, new in rest.items()
                if _same_value(word, entry, other, new, exact=exact)
            ]
            if len(fits) == 1:
                found[entry.name] = rest.pop(fits[0]).name
                del left[word]
    return None if left else found


def _same_list(stored: Unit, live: Unit) -> bool:
    old, new = ([entry.shape for entry in unit.listed] for unit in (stored, live))
    return bool(old) and old == new


def _same_value(word: str, old: Entry, other: str, new: Entry, *, exact: bool) -> bool:
    if exact:
        return word == other and _shapes_fit(old.shape, new.shape)
    return _shapes_fit(old.shape, new.shape) and means(_last(word), _last(other))


def _shapes_fit(old: Shape | None, new: Shape | None) -> bool:
    """Whether the shapes are the same but for the order of the axes."""
    return old is not None and new is not None and sorted(old) == sorted(new)


def _other_class(stored: Unit, live: Unit) -> bool:
    return bool(stored.kind and live.kind) and stored.kind != live.kind


def _sizes(unit: Unit) -> object:
    values = {w: e for w, e in unit.values.items() if _last(w) not in UNUSED}
    return dataclasses.replace(unit, values=values).sizes


def _last(word: str) -> str:
    return word.replace(".", "/").rpartition("/")[2]


def _names(unit: Unit) -> set[str]:
    return {entry.name for entry in unit.values.values()}


def _evidence(path: str, named: Mapping[str, str], ordered: Mapping[str, str]) -> str:
    says = [
        f"its {what} {verb} {source[path]}"
        for what, verb, source in (("name", "is like", named), ("position", "is that of", ordered))
        if path in source
    ]
    return " and ".join(says) or _UNKNOWN
