"""Two inventories side by side: what only one has, what differs, and what has only moved.

Values are compared by checksums that the caller computes; nothing is read. A value that appears
unchanged under another name has *moved*: a layer was renamed, or two layers were swapped. Zeros,
ones and scalars have the same checksum everywhere, so they prove nothing: they count as moved only
if their neighbors have moved.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.gc_pause import gc_paused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfckpt.core.inventory import Entry, Inventory


class DifferenceKind(str, Enum):
    """How a value of a and one of b differ."""

    ONLY_A = "only_a"
    ONLY_B = "only_b"
    SHAPE = "shape"
    DTYPE = "dtype"
    MOVED = "moved"
    VALUE = "value"

    __str__ = str.__str__


class ValueChecksum(NamedTuple):
    """Checksum of a value's bytes; ``distinctive`` unless common values, like zeros, have it."""

    crc: int
    distinctive: bool


class Difference(NamedTuple):
    """A value that only a or b has, or a pair that differs."""

    kind: DifferenceKind
    a: Entry | None
    b: Entry | None

    @property
    def entry(self) -> Entry:
        """The value in a, else the one in b."""
        entry = self.a or self.b
        assert entry is not None, "a difference is about a value"  # noqa: S101 (narrows the type)
        return entry


@dataclasses.dataclass(frozen=True, slots=True)
class Diff:
    """The differences, by kind; how many values are equal, and how many had no checksum."""

    differences: tuple[Difference, ...]
    equal: int
    not_compared: int

    def __repr__(self) -> str:
        counts = f"{len(self.differences):,} differ, {self.equal:,} are equal"
        return f"<Diff: {counts}, {self.not_compared:,} are not compared>"


@gc_paused()
def diff(
    a: Inventory,
    b: Inventory,
    checksums_a: Mapping[str, ValueChecksum],
    checksums_b: Mapping[str, ValueChecksum],
) -> Diff:
    """Compare two inventories; a value without a checksum, by name, is not compared.

    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> def side(name):
    ...     return Inventory("", {name: Entry(name, Role.WEIGHT, "float32", (9,), 36)})
    >>> checksum = ValueChecksum(7, distinctive=True)
    >>> checksums = {"model/a/w": checksum}, {"model/b/w": checksum}
    >>> result = diff(side("model/a/w"), side("model/b/w"), *checksums)
    >>> [(each.kind.value, each.a.name, each.b.name) for each in result.differences]
    [('moved', 'model/a/w', 'model/b/w')]
    """
    differences: list[Difference] = []
    paired: set[str] = set()
    equal = not_compared = 0
    for entry in a.entries.values():
        other = b.find(entry.name)
        if other is None:
            differences.append(Difference(DifferenceKind.ONLY_A, entry, None))
            continue
        paired.add(other.name)
        checksums = checksums_a.get(entry.name), checksums_b.get(other.name)
        if (kind := _kind(entry, other, *checksums)) is not None:
            differences.append(Difference(kind, entry, other))
        elif None in checksums:
            not_compared += 1
        else:
            equal += 1
    others = (entry for entry in b.entries.values() if entry.name not in paired)
    differences += [
        Difference(DifferenceKind.ONLY_B, None, each)
        for each in others
        if a.find(each.name) is None
    ]
    moves = _Moves(differences, checksums_a, checksums_b).pairs()
    moved_from, moved_to = {each.name for each, _ in moves}, {other.name for _, other in moves}
    differences = [each for each in differences if not _explained(each, moved_from, moved_to)]
    differences.extend(Difference(DifferenceKind.MOVED, *pair) for pair in moves)
    order = list(DifferenceKind)
    return Diff(
        tuple(sorted(differences, key=lambda each: order.index(each.kind))), equal, not_compared
    )


def _kind(
    a: Entry, b: Entry, checksum_a: ValueChecksum | None, checksum_b: ValueChecksum | None
) -> DifferenceKind | None:
    if a.shape != b.shape:
        return DifferenceKind.SHAPE
    if a.dtype != b.dtype:
        return DifferenceKind.DTYPE
    known = checksum_a is not None and checksum_b is not None
    return DifferenceKind.VALUE if known and checksum_a != checksum_b else None


def _explained(difference: Difference, moved_from: set[str], moved_to: set[str]) -> bool:
    """Whether both its values have moved."""
    return (difference.a is None or difference.a.name in moved_from) and (
        difference.b is None or difference.b.name in moved_to
    )


class _Moves:
    def __init__(
        self,
        differences: Iterable[Difference],
        checksums_a: Mapping[str, ValueChecksum],
        checksums_b: Mapping[str, ValueChecksum],
    ) -> None:
        self._from: dict[object, list[Entry]] = {}
        self._to: dict[object, dict[str, Entry]] = {}
        self._distinctive: set[object] = set()
        for each in differences:
            if each.a is not None and (checksum := checksums_a.get(each.a.name)) is not None:
                self._from.setdefault(self._key(each.a, checksum), []).append(each.a)
            if each.b is not None and (checksum := checksums_b.get(each.b.name)) is not None:
                self._to.setdefault(self._key(each.b, checksum), {})[each.b.name] = each.b

    def _key(self, entry: Entry, checksum: ValueChecksum) -> object:
        key = entry.dtype, entry.shape, checksum.crc
        if checksum.distinctive:
            self._distinctive.add(key)
        return key

    def pairs(self) -> list[tuple[Entry, Entry]]:
        pairs: dict[str, tuple[Entry, Entry]] = {}
        for key, entries in self._from.items():
            others = self._to.get(key, {})
            if key in self._distinctive and len(entries) == len(others) == 1:
                pairs[entries[0].name] = entries[0], next(iter(others.values()))
        parents = dict(head for old, new in pairs.values() for head in _parents(old.name, new.name))
        taken = {new.name for _, new in pairs.values()}
        for key, entries in self._from.items():
            for entry in entries:
                new = self._with_neighbors(entry.name, parents, self._to.get(key, {}))
                if entry.name not in pairs and new is not None and new.name not in taken:
                    pairs[entry.name] = entry, new
                    taken.add(new.name)
        return list(pairs.values())

    def _with_neighbors(
        self, name: str, parents: Mapping[str, str], others: Mapping[str, Entry]
    ) -> Entry | None:
        """The value in b where this one would be if it had moved with its neighbors."""
        parent = name
        while parent:
            parent = parent.rpartition("/")[0]
            if parent in parents:
                return others.get(parents[parent] + name[len(parent) :])
        return None


def _parents(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Pairs of parents that two names do not share, from the longest to the first that differ."""
    while "/" in old and "/" in new:
        old, _, old_name = old.rpartition("/")
        new, _, new_name = new.rpartition("/")
        if old_name != new_name or old == new:
            return
        yield old, new
