"""Two inventories side by side: what only one has, what differs, and what has only moved.

Values are compared by a mark that whoever calls computes, a checksum; here nothing is read. A value
that is not where it was and stands, the same, under another name has *moved*: a layer was renamed,
or two layers have changed places. Zeros, ones and scalars are alike everywhere and say nothing by
themselves; they have moved where what they stood beside has.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.gc_pause import uncollected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfckpt.core.inventory import Entry, Inventory


class DifferenceKind(str, Enum):
    """How a value of one side and one of the other differ."""

    ONLY_A = "only_a"
    ONLY_B = "only_b"
    SHAPE = "shape"
    DTYPE = "dtype"
    MOVED = "moved"
    VALUE = "value"

    __str__ = str.__str__


class Mark(NamedTuple):
    """What is equal for equal values of one type and shape.

    Attributes:
        checksum: of the bytes.
        telling: whether it is unlikely that two values have it by chance, as zeros do.
    """

    checksum: int
    telling: bool


class Difference(NamedTuple):
    """A value of one side, or of each, that belong together."""

    kind: DifferenceKind
    a: Entry | None
    b: Entry | None

    @property
    def entry(self) -> Entry:
        """The value of a, else that of b."""
        entry = self.a or self.b
        assert entry is not None, "a difference is about a value"  # noqa: S101 (narrows the type)
        return entry


@dataclasses.dataclass(frozen=True, slots=True)
class Diff:
    """What differs.

    Attributes:
        differences: by kind, in the order of the values.
        equal: how many values have the same name, type, shape and mark.
        not_compared: how many have the same name, type and shape, and one side has no mark.
    """

    differences: tuple[Difference, ...]
    equal: int
    not_compared: int

    def __repr__(self) -> str:
        counts = f"{len(self.differences):,} differ, {self.equal:,} are equal"
        return f"<Diff: {counts}, {self.not_compared:,} are not compared>"


@uncollected()
def diff(
    a: Inventory, b: Inventory, marks_a: Mapping[str, Mark], marks_b: Mapping[str, Mark]
) -> Diff:
    """Compare two inventories.

    Args:
        a: one.
        b: the other.
        marks_a: name → mark of the values of ``a``; one without is not compared.
        marks_b: likewise.

    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> def side(name):
    ...     return Inventory("", {name: Entry(name, Role.WEIGHT, "float32", (9,), 36)})
    >>> mark = Mark(7, telling=True)
    >>> found = diff(side("model/a/w"), side("model/b/w"), {"model/a/w": mark}, {"model/b/w": mark})
    >>> [(one.kind.value, one.a.name, one.b.name) for one in found.differences]
    [('moved', 'model/a/w', 'model/b/w')]
    """
    found: list[Difference] = []
    paired: set[str] = set()
    equal = not_compared = 0
    for entry in a.entries.values():
        other = b.find(entry.name)
        if other is None:
            found.append(Difference(DifferenceKind.ONLY_A, entry, None))
            continue
        paired.add(other.name)
        marks = marks_a.get(entry.name), marks_b.get(other.name)
        if (kind := _kind(entry, other, *marks)) is not None:
            found.append(Difference(kind, entry, other))
        elif None in marks:
            not_compared += 1
        else:
            equal += 1
    others = (entry for entry in b.entries.values() if entry.name not in paired)
    found += [
        Difference(DifferenceKind.ONLY_B, None, one) for one in others if a.find(one.name) is None
    ]
    moves = _Moves(found, marks_a, marks_b).pairs()
    gone, come = {one.name for one, _ in moves}, {other.name for _, other in moves}
    found = [one for one in found if not _explained(one, gone, come)]
    found.extend(Difference(DifferenceKind.MOVED, *pair) for pair in moves)
    order = list(DifferenceKind)
    return Diff(tuple(sorted(found, key=lambda one: order.index(one.kind))), equal, not_compared)


def _kind(a: Entry, b: Entry, mark_a: Mark | None, mark_b: Mark | None) -> DifferenceKind | None:
    if a.shape != b.shape:
        return DifferenceKind.SHAPE
    if a.dtype != b.dtype:
        return DifferenceKind.DTYPE
    known = mark_a is not None and mark_b is not None
    return DifferenceKind.VALUE if known and mark_a != mark_b else None


def _explained(one: Difference, gone: set[str], come: set[str]) -> bool:
    """Whether both sides of it are known to have moved."""
    return (one.a is None or one.a.name in gone) and (one.b is None or one.b.name in come)


class _Moves:
    def __init__(
        self,
        differences: Iterable[Difference],
        marks_a: Mapping[str, Mark],
        marks_b: Mapping[str, Mark],
    ) -> None:
        self._from: dict[object, list[Entry]] = {}
        self._to: dict[object, dict[str, Entry]] = {}
        self._telling: set[object] = set()
        for one in differences:
            if one.a is not None and (mark := marks_a.get(one.a.name)) is not None:
                self._from.setdefault(self._key(one.a, mark), []).append(one.a)
            if one.b is not None and (mark := marks_b.get(one.b.name)) is not None:
                self._to.setdefault(self._key(one.b, mark), {})[one.b.name] = one.b

    def _key(self, entry: Entry, mark: Mark) -> object:
        key = entry.dtype, entry.shape, mark.checksum
        if mark.telling:
            self._telling.add(key)
        return key

    def pairs(self) -> list[tuple[Entry, Entry]]:
        sure: dict[str, tuple[Entry, Entry]] = {}
        for key, entries in self._from.items():
            others = self._to.get(key, {})
            if key in self._telling and len(entries) == len(others) == 1:
                sure[entries[0].name] = entries[0], next(iter(others.values()))
        heads = dict(head for one, other in sure.values() for head in _heads(one.name, other.name))
        taken = {other.name for _, other in sure.values()}
        for key, entries in self._from.items():
            for entry in entries:
                other = self._beside(entry.name, heads, self._to.get(key, {}))
                if entry.name not in sure and other is not None and other.name not in taken:
                    sure[entry.name] = entry, other
                    taken.add(other.name)
        return list(sure.values())

    def _beside(
        self, name: str, heads: Mapping[str, str], others: Mapping[str, Entry]
    ) -> Entry | None:
        """Where it would be if it had moved along with what it stood beside."""
        head = name
        while head:
            head = head.rpartition("/")[0]
            if head in heads:
                return others.get(heads[head] + name[len(head) :])
        return None


def _heads(old: str, new: str) -> Iterator[tuple[str, str]]:
    """The parents that two names do not share, from the longest to where they begin to differ."""
    while "/" in old and "/" in new:
        old, _, one = old.rpartition("/")
        new, _, other = new.rpartition("/")
        if one != other or old == new:
            return
        yield old, new
