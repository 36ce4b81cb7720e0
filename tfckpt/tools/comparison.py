"""``tfckpt.diff``: two checkpoints, or a checkpoint and live objects, value by value.

Values are equal if their checksums are. TensorFlow's format has these in its index, so the data of
two such checkpoints is read only for distances. The values of live objects are compared only where
they are asked for, because a new model has random ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.text import preformatted
from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.stored.inspection.checksums import checksum, checksums, is_distinctive
from tfckpt.tools.differences import DifferenceKind, ValueChecksum
from tfckpt.tools.differences import diff as compare
from tfckpt.tools.find_checkpoint import find, path_of
from tfckpt.tools.inspection import value_json
from tfckpt.tools.progress import silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.stored.inspection.statistics import Distance
    from tfckpt.tools.differences import Difference
    from tfckpt.tools.progress import Progress

LIVE = "the live objects"


@dataclasses.dataclass(frozen=True)
class ComparedCheckpoints:
    """What differs between two sides."""

    a: str
    b: str
    differences: tuple[Difference, ...]
    equal: int
    not_compared: int = 0
    distances: Mapping[tuple[str, str], Distance] | None = None
    rejected: Mapping[str, str] = dataclasses.field(default_factory=dict)

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
    from tfckpt.stored.inspection.statistics import difference

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
    from tfckpt.live.building.build import build_optimizers
    from tfckpt.live.objects.collect import collect
    from tfckpt.live.saving.untracked import checked
    from tfckpt.live.variables.variables import raw

    many = isinstance(live_objects, Mapping)
    objects = dict(live_objects) if many else {"model": live_objects}
    checked(objects)
    live = collect(objects)
    stored = _stored(path, stack, progress, live.roots, live.weak_bases)
    entries = stored.inventory.entries
    if build_optimizers(live, {name: entry.of for name, entry in entries.items() if entry.of}):
        live = collect(objects)

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
