"""Two inventories side by side: what only one has, what differs, and what has only moved.

Values are compared by checksums that the caller computes; nothing is read. A value that appears
unchanged under another name has *moved*: a layer was renamed, or two layers were swapped. Zeros,
ones and scalars have the same checksum everywhere, so they prove nothing, and neither does a
checksum that several values have.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.gc_pause import gc_paused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    moves = _moves(differences, checksums_a, checksums_b)
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


def _moves(
    differences: Iterable[Difference],
    checksums_a: Mapping[str, ValueChecksum],
    checksums_b: Mapping[str, ValueChecksum],
) -> list[tuple[Entry, Entry]]:
    """The values of a and b that differ or are alone and have a distinctive checksum in common."""
    before: dict[object, list[Entry]] = {}
    after: dict[object, list[Entry]] = {}
    for each in differences:
        sides = (each.a, checksums_a, before), (each.b, checksums_b, after)
        for entry, checksums, found in sides:
            checksum = checksums.get(entry.name) if entry is not None else None
            if entry is not None and checksum is not None and checksum.distinctive:
                found.setdefault((entry.dtype, entry.shape, checksum.crc), []).append(entry)
    pairs = ((entries, after.get(key, [])) for key, entries in before.items())
    return [(old[0], new[0]) for old, new in pairs if len(old) == len(new) == 1]
