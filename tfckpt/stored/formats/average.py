"""The average of several checkpoints.

Typical inputs are the last checkpoints of one training, or several fine-tuned copies of one model.
The average is weighted like ``numpy.average``, computed in float64 and cast back to the stored
dtype. Integers and strings are kept where all checkpoints agree and left out where they differ.
Everything that belongs to a training, such as optimizer state and seeds, is left out.

Refused: checkpoints whose weights differ in name, shape, dtype or order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
from collections import ChainMap
from functools import cached_property
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Entry, Inventory, Role, Share
from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.stored.bundles.bundle import OPAQUE
from tfckpt.stored.bundles.values import StoredValues
from tfckpt.stored.formats.checkpoint import StoredCheckpoint
from tfckpt.stored.formats.open import open_checkpoint, refuse_absent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import numpy as np

    from tfckpt.core.inventory import Container, Root
    from tfckpt.stored.io.files import Files

_AVERAGED = (Role.WEIGHT, Role.STATE, Role.VOCABULARY)
_MOVING = "moving_average"  # the slot with averaged weights, in any optimizer
_FLOATS = ("float", "bfloat", "complex")
_HINT = "only checkpoints of the same architecture can be averaged"


@dataclasses.dataclass(frozen=True)
class Average:
    """Checkpoints to average.

    Attributes:
        paths: of the checkpoints.
        weights: one per checkpoint, of any sum; () for equal weights.

    >>> print(Average(("a/ckpt-1", "a/ckpt-2", "b/ckpt-9")))
    the average of a/ckpt-1, a/ckpt-2 and b/ckpt-9
    """

    paths: tuple[str, ...]
    weights: tuple[float, ...] = ()

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights, normalized to a sum of 1.

        >>> Average(("a", "b"), (3.0, 1.0)).shares
        (0.75, 0.25)
        """
        weights = self.weights or (1.0,) * len(self.paths)
        total = math.fsum(weights)
        return tuple(weight / total for weight in weights)

    def __str__(self) -> str:
        *paths, last = self.paths
        return f"the average of {', '.join(paths)} and {last}"


@dataclasses.dataclass(frozen=True)
class AveragedValues(StoredValues):
    """The averaged values by their keys in the first checkpoint, computed on reading."""

    average: Average
    members: tuple[StoredCheckpoint, ...]
    names: Mapping[str, str]

    @cached_property
    def missing_files(self) -> Mapping[str, int]:
        return dict(ChainMap(*(dict(member.values.missing_files) for member in self.members)))

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        triples = zip(self.average.paths, self.members, self.average.shares, strict=True)
        return tuple(Share(path, member.values.digest, share) for path, member, share in triples)

    @cached_property
    def digest(self) -> str:
        lines = "\n".join(f"{share.sha256} {share.weight!r}" for share in self.shares)
        return hashlib.sha256(lines.encode()).hexdigest()

    def read(self, key: str) -> np.ndarray:
        import numpy as np

        first, *others = self.members
        name, value = self.names[key], first.values.read(key)
        if not value.dtype.name.startswith(_FLOATS):
            return value
        weight, *weights = own = self.average.weights or (1.0,) * len(self.members)
        wide = np.complex128 if value.dtype.kind == "c" else np.float64
        total = np.asarray(value.astype(wide) * weight)
        for member, weight in zip(others, weights, strict=True):
            total += _read(member, name).astype(wide) * weight
        return np.asarray(total / math.fsum(own)).astype(value.dtype)

    def verify(self, keys: Iterable[str]) -> None:
        names = [self.names[key] for key in keys]
        for member in self.members:
            member.values.verify([_entry(member, name).key for name in names])

    def close(self) -> None:
        for member in self.members:
            member.close()


def open_average(
    average: Average,
    *,
    roots: Mapping[str, Root] | None,
    bases: Collection[str],
    files: Callable[[str], Files],
) -> StoredCheckpoint:
    """Open checkpoints and name their averaged values; ``files`` maps a path to its file system."""
    with contextlib.ExitStack() as stack:
        members = tuple(
            stack.enter_context(open_checkpoint(path, roots=roots, bases=bases, files=files(path)))
            for path in average.paths
        )
        for member in members:
            refuse_absent(member, [entry.key for entry in _weights(member.inventory).values()])
        inventory = _inventory(str(average), members)
        stack.pop_all()
    names = {entry.key: name for name, entry in inventory.entries.items()}
    values = AveragedValues(average, members, names)
    graph = members[0].graph if all(member.graph for member in members) else None
    return StoredCheckpoint(str(average), inventory, values, "average", None, graph, members)


def _inventory(source: str, members: Sequence[StoredCheckpoint]) -> Inventory:
    first, *others = members
    own = _weights(first.inventory)
    for other in others:
        _check_alike(first, own, other)
    entries: dict[str, Entry] = {}
    left_out: dict[str, str] = {}
    for name, entry in first.inventory.entries.items():
        if name not in own:
            left_out[name] = "only weights are averaged"
        elif entry.role is Role.VOCABULARY and not all(name in _words(each) for each in others):
            left_out[name] = "some of the checkpoints do not have it"
        elif entry.role is Role.VOCABULARY and entry.dtype.startswith(_FLOATS):
            left_out[name] = "bin boundaries are not averaged"
        elif not entry.dtype.startswith(_FLOATS) and not _equal(name, members):
            left_out[name] = f"{entry.dtype} is not averaged, and the values differ"
        else:
            entries[name] = entry._replace(crc32c=None)
    return dataclasses.replace(
        first.inventory,
        source=source,
        entries=entries,
        optimizers={},
        complete=False,
        left_out=left_out,
    )


def _weights(inventory: Inventory) -> dict[str, Entry]:
    return {
        name: entry
        for name, entry in inventory.entries.items()
        if (entry.role in _AVERAGED or entry.slot == _MOVING)
        and entry.shape is not None
        and entry.dtype not in OPAQUE
    }


def _check_alike(
    first: StoredCheckpoint, own: Mapping[str, Entry], other: StoredCheckpoint
) -> None:
    """Raise UnsupportedCheckpointError for the first value in which two checkpoints differ."""

    def unlike(message: str, name: str) -> UnsupportedCheckpointError:
        return UnsupportedCheckpointError(message, path=other.prefix, name=name, hint=_HINT)

    theirs = _weights(other.inventory)
    words, others = _words(first), _words(other)
    for name in sorted(words.keys() & others.keys()):
        if (words[name].shape, words[name].crc32c) != (others[name].shape, others[name].crc32c):
            raise unlike(f"the vocabulary differs from that in {first.prefix}", name)
    own = {name: entry for name, entry in own.items() if name not in words}
    theirs = {name: entry for name, entry in theirs.items() if name not in others}
    for name in sorted(own.keys() - theirs.keys()):
        raise unlike(f"is missing, but {first.prefix} has it", name)
    for name in sorted(theirs.keys() - own.keys()):
        raise unlike(f"is not in {first.prefix}", name)
    for name, entry in own.items():
        its = theirs[name]
        if (its.dtype, its.shape) != (entry.dtype, entry.shape):
            expected = f"{entry.dtype} {entry.shape} in {first.prefix}"
            raise unlike(f"is {its.dtype} {its.shape}, but {expected}", name)
    held = first.inventory.containers, other.inventory.containers
    for path in sorted(held[0].keys() & held[1].keys()):
        ordered = all(side[path].order in ("all", "keras") for side in held)
        if ordered and _order(held[0][path]) != _order(held[1][path]):
            raise unlike(f"its layers are in a different order than in {first.prefix}", path)


def _words(stored: StoredCheckpoint) -> dict[str, Entry]:
    entries = stored.inventory.entries.items()
    return {name: entry for name, entry in entries if entry.role is Role.VOCABULARY}


def _order(held: Container) -> list[tuple[str, bool]]:
    return [(layer.place, layer.auto) for layer in held.layers]


def _equal(name: str, members: Sequence[StoredCheckpoint]) -> bool:
    import numpy as np

    first, *others = members
    value = _read(first, name)
    return all(np.array_equal(value, _read(other, name)) for other in others)


def _read(member: StoredCheckpoint, name: str) -> np.ndarray:
    return member.values.read(_entry(member, name).key)


def _entry(member: StoredCheckpoint, name: str) -> Entry:
    return member.inventory.entries[name]
