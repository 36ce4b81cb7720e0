"""``tfckpt.diff``: two checkpoints, or a checkpoint and live objects, value by value.

Values are equal if their checksums are. TensorFlow's format has these in its index, so the data of
two such checkpoints is read only for distances. The values of live objects are compared only where
they are asked for, because a new model has random ones.

A value that appears unchanged under another name has *moved*: a layer was renamed, or two layers
were swapped. Zeros, ones and scalars have the same checksum everywhere, so they prove nothing, and
neither does a checksum that several values have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import google_crc32c

from tfckpt.core.gc_pause import gc_paused
from tfckpt.core.text import preformatted
from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.tools.find_checkpoint import find, path_of
from tfckpt.tools.inspection import silent, value_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np

    from tfckpt.core.distance import Distance
    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint
    from tfckpt.tools.inspection import Progress

_CHUNK = 1 << 24
_FEW = 16


def checksums(
    stored: StoredCheckpoint,
    entries: Iterable[Entry],
    advance: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, int]:
    """Name → checksum of each tensor; ``advance`` receives bytes read and to be read in total."""
    values = stored.values
    stored_crcs = {
        entry: values.checksum(entry.key) for entry in entries if entry.shape is not None
    }
    done, total = 0, sum(entry.nbytes for entry, crc in stored_crcs.items() if crc is None)
    result = {}
    for entry, crc in stored_crcs.items():
        if crc is None:
            advance(done, total)
            done += entry.nbytes
        result[entry.name] = checksum(values.read(entry.key)) if crc is None else crc
    return result


def checksum(array: np.ndarray) -> int:
    """The checksum of an array.

    >>> import numpy as np
    >>> checksum(np.zeros(3, "float32")) == checksum(np.zeros((3, 1), ">f4"))
    True
    """
    import numpy as np

    if array.dtype.hasobject:
        text = b"".join(b"%d:%b" % (len(one), one) for one in array.reshape(-1).tolist())
        return int(google_crc32c.value(text))
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    crc = 0
    for start in range(0, raw.size, _CHUNK):
        crc = google_crc32c.extend(crc, raw[start : start + _CHUNK])
    return int(crc)


def is_distinctive(entry: Entry, crc: int) -> bool:
    """Whether equal checksums mean equal origin: false for zeros, ones and scalars.

    >>> from tfckpt.core.inventory import Entry, Role
    >>> import numpy as np
    >>> bias = Entry("model/a/bias", Role.WEIGHT, "float32", (8,), 32)
    >>> [is_distinctive(bias, checksum(np.full(8, n, "float32"))) for n in (0, 1, 2)]
    [False, False, True]
    """
    if entry.dtype in ("string", "") or entry.shape == ():
        return False
    return entry.nbytes >= _FEW and crc not in _plain(entry.dtype, entry.nbytes)


@functools.cache
def _plain(dtype: str, nbytes: int) -> tuple[int, ...]:
    import numpy as np

    from tfckpt.core.dtypes import ITEM_BYTES, QUANTIZED, numpy_dtype

    if nbytes > _CHUNK or dtype in QUANTIZED or not ITEM_BYTES.get(dtype):
        return (int(google_crc32c.value(bytes(nbytes))),) if nbytes <= _CHUNK else ()
    count = nbytes // ITEM_BYTES[dtype]
    return tuple(checksum(np.full(count, n, numpy_dtype(dtype))) for n in (0, 1))


LIVE = "the live objects"


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


@dataclasses.dataclass(frozen=True, repr=False)
class ComparedCheckpoints:
    """What differs between two sides."""

    a: str
    b: str
    differences: tuple[Difference, ...]
    equal: int
    not_compared: int = 0
    distances: Mapping[tuple[str, str], Distance] | None = None
    rejected: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        found = f"{len(self.differences)} differences, {self.equal} equal values"
        return f"<ComparedCheckpoints: {found} of {self.a} and {self.b}>"

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def to_json(self) -> dict[str, Any]:
        """The document of ``tfckpt diff --json``."""
        return {
            "version": 1,
            "a": self.a,
            "b": self.b,
            "same": self.same,
            "equal": self.equal,
            "not_compared": self.not_compared,
            "differences": [self._difference(one) for one in self.differences],
            "rejected": list(self.rejected.values()),
        }

    def __str__(self) -> str:
        from tfckpt.tools.result_texts import comparison_text

        return comparison_text(self)

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def _difference(self, one: Difference) -> dict[str, Any]:
        item: dict[str, Any] = {"kind": one.kind.value, "a": _value(one.a), "b": _value(one.b)}
        if self.distances is not None and one.a is not None and one.b is not None:
            distance = self.distances.get((one.a.name, one.b.name))
            item["differing"] = distance and distance.count
            item["largest"] = distance and distance.largest
            item["relative"] = distance and distance.relative
        return item


def diff(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str] | Any,
    *,
    values: bool = False,
    progress: Progress = silent,
) -> ComparedCheckpoints:
    """What differs between two checkpoints, as ``tfckpt diff`` shows it.

    Args:
        a: the path of a checkpoint, or a directory of them, of which the newest readable one is
            used.
        b: another path; or live objects, a model or several by keyword in a dict. Only these need
            TensorFlow.
        values: whether to read the values that differ, for how far apart they are. Values of live
            objects are compared only then.
        progress: as for :func:`tfckpt.inspect`.

    Raises:
        CheckpointNotFoundError: there is no checkpoint.
        DamagedCheckpointError: there is one, but it cannot be read.
        UnsupportedCheckpointError: its format is not supported.
        UntrackedError: an object cannot be in a checkpoint.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> path = tfckpt.Checkpoint(model=model).write(tempfile.mkdtemp() + "/ckpt")
    >>> _ = model.layers[0].bias.assign([0.0, 0.5])
    >>> found = tfckpt.diff(path, model, values=True)
    >>> [(one.kind.value, one.entry.name) for one in found.differences]
    [('value', 'model/out/bias')]
    >>> found.distances["model/out/bias", "model/out/bias"].largest
    0.5
    """
    from tfckpt.core.distance import difference

    with contextlib.ExitStack() as stack:
        if b is None or isinstance(b, str | os.PathLike):
            sides = _stored(a, stack, progress), _stored(b, stack, progress)
        else:
            sides = _with_live(a, b, stack, progress, values=values)
        one, other = sides
        found = compare(one.inventory, other.inventory, one.checksums, other.checksums)
        distances: dict[tuple[str, str], Distance] = {}
        if values:
            for old, new, a_read, b_read in _read(found.differences, one, other, progress):
                if (distance := difference(a_read, b_read)) is not None:
                    distances[old.name, new.name] = distance
        return ComparedCheckpoints(
            one.label,
            other.label,
            found.differences,
            found.equal,
            found.not_compared,
            distances if values else None,
            {**one.rejected, **other.rejected},
        )


class _Side(NamedTuple):
    """One side of the comparison; checksums are by value name."""

    label: str
    inventory: Inventory
    read: Callable[[Entry], np.ndarray]
    checksums: Mapping[str, ValueChecksum]
    rejected: Mapping[str, str] = {}


def _stored(
    source: str | os.PathLike[str] | None,
    stack: contextlib.ExitStack,
    progress: Progress,
    roots: Any = None,
    bases: Any = (),
) -> _Side:
    found = find(path_of(source), roots, bases)
    checkpoint = stack.enter_context(found.checkpoint)
    entries = checkpoint.inventory.entries
    with progress(checkpoint.prefix) as advance:
        crcs = checksums(checkpoint, entries.values(), advance)
    return _Side(
        checkpoint.prefix,
        checkpoint.inventory,
        lambda entry: checkpoint.values.read(entry.key),
        {n: ValueChecksum(crc, is_distinctive(entries[n], crc)) for n, crc in crcs.items()},
        found.rejected,
    )


def _with_live(
    path: str | os.PathLike[str],
    live_objects: Any,
    stack: contextlib.ExitStack,
    progress: Progress,
    *,
    values: bool,
) -> tuple[_Side, _Side]:
    from tfckpt.live.arguments import OBJECTS, check_arguments
    from tfckpt.live.built_optimizers import build_as_stored
    from tfckpt.live.inventory import collect
    from tfckpt.live.rebuild import Building
    from tfckpt.live.variables import raw

    many = isinstance(live_objects, Mapping)
    objects = dict(live_objects) if many else {"model": live_objects}
    check_arguments(None, objects, OBJECTS)
    live = collect(objects)
    stored = _stored(path, stack, progress, live.roots, live.weak_bases)
    walk = functools.partial(collect, objects)
    built = stack.enter_context(Building(walk, always=True))
    live = build_as_stored(stored.inventory, live, built, walk)

    def read(entry: Entry) -> np.ndarray:
        array: np.ndarray = raw(live.variables[entry.name]).numpy()
        return array

    crcs: dict[str, ValueChecksum] = {}
    for entry in live.inventory.entries.values() if values else ():
        if entry.shape is not None:
            crc = checksum(read(entry))
            crcs[entry.name] = ValueChecksum(crc, is_distinctive(entry, crc))
    return stored, _Side(LIVE, live.inventory, read, crcs)


def _read(
    differences: Sequence[Difference], a: _Side, b: _Side, progress: Progress
) -> Iterator[tuple[Entry, Entry, np.ndarray, np.ndarray]]:
    """Both sides of each value that differs in content or type, and its elements."""
    pairs = [
        (one.a, one.b)
        for one in differences
        if one.kind in (DifferenceKind.VALUE, DifferenceKind.DTYPE)
        and one.a is not None
        and one.b is not None
    ]
    done, total = 0, sum(old.nbytes + new.nbytes for old, new in pairs)
    with progress(f"{a.label}, {b.label}") as advance:
        advance(0, total)
        for old, new in pairs:
            # Some values can be read only by TensorFlow.
            with contextlib.suppress(UnsupportedCheckpointError):
                yield old, new, a.read(old), b.read(new)
            done += old.nbytes + new.nbytes
            advance(done, total)


def _value(entry: Entry | None) -> dict[str, Any] | None:
    return None if entry is None else value_json(entry)


@gc_paused()
def compare(
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
    >>> result = compare(side("model/a/w"), side("model/b/w"), *checksums)
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
        known = checksums_a.get(entry.name), checksums_b.get(other.name)
        if (kind := _kind(entry, other, *known)) is not None:
            differences.append(Difference(kind, entry, other))
        elif None in known:
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
        for entry, of_side, found in sides:
            known = of_side.get(entry.name) if entry is not None else None
            if entry is not None and known is not None and known.distinctive:
                found.setdefault((entry.dtype, entry.shape, known.crc), []).append(entry)
    pairs = ((entries, after.get(key, [])) for key, entries in before.items())
    return [(old[0], new[0]) for old, new in pairs if len(old) == len(new) == 1]
