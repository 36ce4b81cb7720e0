"""Which layer of a checkpoint is which layer of a model, where their names differ.

Two layers are paired if their weights fit, nothing speaks against it, and either nothing else fits,
or their names or the order of layers tell them from all others that fit. Where names and order
disagree, or neither says anything, the layers that fit are kept as a choice for a person to make.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from tfckpt.planning.suggested import Candidates
from tfckpt.planning.suggestion.fewest_rules import rename_rules
from tfckpt.planning.suggestion.fits import Rivals, fit, sizes_of
from tfckpt.planning.suggestion.order import by_order
from tfckpt.planning.suggestion.words import (
    distinct,
    likeness,
    numbers,
    template,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tfckpt.planning.suggestion.units import Unit

    Group = tuple[Unit, ...]

_LIKE, _MARGIN = 0.5, 0.1
_UNKNOWN = "equal shapes, and neither names nor order tell them apart"
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
    restored: Collection[str],
    *,
    suspects: Collection[str],
    branching: Collection[str],
) -> Pairing:
    """Pair the layers of two inventories."""
    names: dict[str, str] = {}
    while True:
        taken = {*restored, *names.values()}
        unsure = {"suspects": suspects, "branching": branching}
        found = _Matcher(stored, live, {**matched, **names}, taken, **unsure).run()
        if not found.names:
            return dataclasses.replace(found, names=names)
        names |= found.names  # with these, others may be the only ones left


class _Matcher:
    def __init__(
        self,
        stored: Sequence[Unit],
        live: Sequence[Unit],
        matched: Mapping[str, str],
        taken: set[str],
        *,
        suspects: Collection[str],
        branching: Collection[str],
    ) -> None:
        self._sides = stored, live
        self._stored = [unit for unit in stored if not matched.keys() & _names(unit)]
        self._live = [unit for unit in live if not taken & _names(unit)]
        self._suspects, self._branching = suspects, branching
        self._matched = matched
        self._fits: dict[tuple[str, str], Mapping[str, str] | None] = {}

    def run(self) -> Pairing:
        rivals = Rivals(self._stored, self._live)
        unsure = {*self._suspects, *self._branching}
        ordered = by_order(*self._sides, self._matched, self._fit, unsure)
        named: dict[str, str] = {}
        gave_up = ""
        for units in _of_same_sizes(self._stored, self._live):
            old, new = map(_groups, units)
            if len(old) * len(new) > _MOST:
                gave_up = f"the names of {len(new):,} layers with the same shapes are not compared"
                continue
            named = self._by_name(old, new) | named
        named |= self._by_label() | self._by_path()
        names, choices = self._decided(rivals, named, ordered)
        return Pairing(names, choices, gave_up)

    def _decided(
        self, rivals: Rivals, named: Mapping[str, str], ordered: Mapping[str, str]
    ) -> tuple[dict[str, str], tuple[Candidates, ...]]:
        """The pairs that nothing speaks against; and the rest, for a person."""
        by_path = {unit.path: unit for unit in self._stored}
        chosen: dict[str, Unit] = {}
        claims: Counter[str] = Counter()
        for live in self._live:
            fitting = rivals.of(live)
            opinions = {one[live.path] for one in (named, ordered) if live.path in one}
            claims.update(opinions)
            alone = len(fitting) == 1 and rivals.claims(fitting[0]) == 1
            if live.path in self._suspects and not alone:
                opinions = set()
            elif not opinions and alone:
                opinions = {fitting[0].path}
            # None if a part of that layer is matched already
            one = by_path.get(min(opinions)) if len(opinions) == 1 else None
            if one is not None and self._fit(one, live) is not None:
                chosen[live.path] = one
        chosen = {path: unit for path, unit in chosen.items() if claims[unit.path] <= 1}
        pairs = [(chosen[x.path], x) for x in self._live if x.path in chosen]
        for path in _exchanged([(a, b) for a, b in pairs if named.get(b.path) != a.path]):
            del chosen[path]
        names: dict[str, str] = {}
        for live in self._live:
            if live.path in chosen:
                names |= self._fit(chosen[live.path], live) or {}
        rest = [unit for unit in self._live if unit.path not in chosen]
        used = {unit.path for unit in chosen.values()}
        left = [unit for unit in self._stored if unit.path not in used]
        evidence = {unit.path: _evidence(unit.path, named, ordered) for unit in rest}
        return names, candidates(left, rest, evidence)

    def _fit(self, stored: Unit, live: Unit) -> Mapping[str, str] | None:
        """Stored name → live name of their weights; None if they do not fit."""
        pair = stored.path, live.path
        if pair not in self._fits:
            self._fits[pair] = fit(stored, live)
        return self._fits[pair]

    def _by_label(self) -> dict[str, str]:
        """Live path → stored path, of layers with the same name of the user, if no other has it.

        One of them may be named by an attribute, an index or a key.
        """
        old, new = (
            [(unit.label or _own_name(unit), unit) for unit in side]
            for side in (self._stored, self._live)
        )
        counts = [Counter(name for name, _ in side) for side in (old, new)]
        by_name = dict(old)
        return {
            unit.path: by_name[name].path
            for name, unit in new
            if name and all(count[name] == 1 for count in counts)
            if unit.label or by_name[name].label
            if self._fit(by_name[name], unit) is not None
        }

    def _by_path(self) -> dict[str, str]:
        """Live path → stored path, of layers with one path that is no automatic one in both."""
        old = {unit.path: unit for unit in self._stored}
        return {
            unit.path: unit.path
            for unit in self._live
            if unit.path in old and not (unit.automatic and old[unit.path].automatic)
            if old[unit.path].label in ("", unit.label) or not unit.label
            if self._fit(old[unit.path], unit) is not None
        }

    def _by_name(self, old: Sequence[Group], new: Sequence[Group]) -> dict[str, str]:
        """Live path → stored path, where the names say it, whatever their numbers."""
        found: dict[str, str] = {}
        for fitting_old, fitting_new in _mutual(old, new, self._group_fits):
            pairs = zip(fitting_old, fitting_new, strict=True)
            found.update((two.path, one.path) for one, two in pairs)
        return found

    def _group_fits(self, old: Group, new: Group) -> bool:
        if len(old) != len(new) or not _numbered_alike(old, new):
            return False
        return all(self._fit(a, b) is not None for a, b in zip(old, new, strict=True))


def _exchanged(pairs: Sequence[tuple[Unit, Unit]]) -> set[str]:
    """The live paths of layers of one shape that would change places by these pairs.

    One of them has the inputs, the outputs or the settings of another one, or the outer of two
    would be the inner one.
    """
    found: set[str] = set()
    alike: dict[object, list[tuple[Unit, Unit]]] = {}
    for old, new in pairs:
        alike.setdefault((new.kind, new.sizes), []).append((old, new))
    for group in alike.values():
        levels = {(a.path.count("/"), b.path.count("/")) for a, b in group}
        traits = zip(*(zip(a.traits, b.traits, strict=False) for a, b in group), strict=False)
        if any(a < c and b > d for (a, b), (c, d) in itertools.permutations(levels, 2)) or any(
            {was for was, now in each if was != now}
            & {now for was, now in each if was != now and now}
            for each in traits
        ):
            found |= {new.path for _, new in group}
    return found


def candidates(
    stored: Sequence[Unit], live: Sequence[Unit], evidence: Mapping[str, str] = MappingProxyType({})
) -> tuple[Candidates, ...]:
    """For each layer of the model that something fits, what does, and what is known of it."""
    rivals, found = Rivals(stored, live), []
    paths: dict[int, tuple[str, ...]] = {}  # of the layers that fit, once for all that are alike
    for unit in live:
        if fitting := rivals.of(unit):
            if id(fitting) not in paths:
                paths[id(fitting)] = tuple(each.path for each in fitting)
            why, rule = evidence.get(unit.path, _UNKNOWN), _rule(fitting[0], unit)
            found.append(Candidates(unit.path, paths[id(fitting)], why, rule))
    return tuple(found)


def scopes_of(choices: Sequence[Candidates]) -> tuple[str, ...]:
    """The scopes of which the model is one, if each layer may be one layer in each of them.

    >>> a, b = (Candidates(f"model/{x}", (f"w_0/{x}", f"w_1/{x}"), "", ("", "")) for x in "ab")
    >>> scopes_of([a, b]), scopes_of([a, b._replace(stored=("w_0/b", "w_0/c"))])
    (('w_0', 'w_1'), ())
    """
    found: set[tuple[str, ...]] = set()
    for choice in choices:
        levels = [path.split("/") for path in choice.stored]
        apart = [at for at, each in enumerate(zip(*levels, strict=False)) if len({*each}) > 1]
        if len({*map(len, levels)}) > 1 or len(apart) != 1 or choice.live in choice.stored:
            return ()
        found.add(tuple("/".join(each[: apart[0] + 1]) for each in levels))
    scopes = found.pop() if len(found) == 1 else ()
    inside = all(path not in scopes for choice in choices for path in choice.stored)
    return scopes if inside else ()


def _own_name(unit: Unit) -> str:
    return "" if unit.automatic else unit.path.rpartition("/")[2]


def _rule(stored: Unit, live: Unit) -> tuple[str, str]:
    """What says that two layers are the same."""
    scope = f"{stored.path}/**", f"{live.path}/**"
    names = fit(stored, live) or {}
    if all(new == live.path + old[len(stored.path) :] for old, new in names.items()):
        return scope
    return (rename_rules(names, names, names.values()) or [scope])[0]


def _of_same_sizes(
    stored: Sequence[Unit], live: Sequence[Unit]
) -> Iterator[tuple[list[Unit], list[Unit]]]:
    by_sizes: dict[object, tuple[list[Unit], list[Unit]]] = {}
    for number, side in enumerate((stored, live)):
        for unit in side:
            by_sizes.setdefault(sizes_of(unit), ([], []))[number].append(unit)
    return ((ones, others) for ones, others in by_sizes.values() if ones and others)


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
    rows, columns = (_two_best(scores, axis) for axis in (0, 1))
    for (i, j), like in scores.items():
        # the best of the others: the second, if this one is the best itself
        others = [best[like == best[0]] for best in (rows[i], columns[j])]
        far = like >= _LIKE and all(like >= other + _MARGIN for other in others)
        if far or (max(others) < 0 and len(old[i]) > 1):
            yield old[i], new[j]


def _two_best(scores: Mapping[tuple[int, int], float], axis: int) -> dict[int, tuple[float, float]]:
    """The two highest scores of each row or column; -1 where there is none."""
    best: dict[int, tuple[float, float]] = {}
    for pair, like in scores.items():
        high, low = best.get(pair[axis], (-1.0, -1.0))
        best[pair[axis]] = (like, high) if like > high else (high, max(low, like))
    return best


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


def _names(unit: Unit) -> set[str]:
    return {entry.name for entry in unit.values.values()}


def _evidence(path: str, named: Mapping[str, str], ordered: Mapping[str, str]) -> str:
    says = [
        f"its {what} {verb} {source[path]}"
        for what, verb, source in (("name", "is like", named), ("position", "is that of", ordered))
        if path in source
    ]
    return " and ".join(says) or _UNKNOWN
