"""How far the weights of several checkpoints have moved, from one to the next and from the first.

Each value of each checkpoint is read once; the one before and the first are all that is kept of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.core.name_tree import ordered
from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.tools.find_checkpoint import find
from tfckpt.tools.progress import silent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from tfckpt.tools.find_checkpoint import FoundCheckpoint
    from tfckpt.tools.progress import Progress


@dataclasses.dataclass(frozen=True, slots=True)
class MovedValue:
    """A weight in each of the checkpoints; None where one does not have it, or no finite numbers.

    Attributes:
        name: its canonical name.
        nbytes: its size in the newest of them that has it.
        norms: its Euclidean norm in each.
        from_previous: norm of its difference from the checkpoint before; None in the first.
        from_first: the same from the first.
    """

    name: str
    nbytes: int
    norms: tuple[float | None, ...]
    from_previous: tuple[float | None, ...]
    from_first: tuple[float | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Movement:
    """How far the weights have moved over several checkpoints.

    Attributes:
        checkpoints: path and step of each, in the order given; the step None if unknown.
        values: each weight.
        rejected: newer checkpoints of a directory that cannot be read → the reason.
    """

    checkpoints: tuple[tuple[str, int | None], ...]
    values: tuple[MovedValue, ...]
    rejected: Mapping[str, str]


def movement(sources: Sequence[str], progress: Progress = silent) -> Movement:
    """How far the weights have moved over these checkpoints.

    Raises:
        CheckpointError: one of them is missing or cannot be read.
    """
    with contextlib.ExitStack() as stack:
        found = [find(source) for source in sources]
        for one in found:
            stack.enter_context(one.checkpoint)
        everything = [dict(one.checkpoint.inventory.entries) for one in found]
        weights = {
            entry.name: entry
            for entries in everything
            for entry in entries.values()
            if entry.role is Role.WEIGHT and entry.shape is not None
        }
        done, total = 0, sum(e.nbytes for entries in everything for e in entries.values())
        values = []
        with progress(f"{len(found)} checkpoints") as advance:
            advance(0, total)
            for entry in ordered(weights.values()):
                values.append(_value(entry.name, entry.nbytes, found))
                done += entry.nbytes * len(found)
                advance(min(done, total), total)
    records = [one.checkpoint.record for one in found]
    return Movement(
        tuple(
            (one.checkpoint.prefix, record.step if record else None)
            for one, record in zip(found, records, strict=True)
        ),
        tuple(values),
        {path: why for one in found for path, why in one.rejected.items()},
    )


def _value(name: str, nbytes: int, found: Sequence[FoundCheckpoint]) -> MovedValue:
    from tfckpt.stored.inspection.statistics import norm

    first: np.ndarray | None = None
    previous: np.ndarray | None = None
    norms: list[float | None] = []
    from_previous: list[float | None] = []
    from_first: list[float | None] = []
    for number, one in enumerate(found):
        array = _read(one, name)
        norms.append(None if array is None else norm(array))
        from_previous.append(_moved(previous, array))
        from_first.append(_moved(first, array))
        first, previous = array if number == 0 else first, array
    return MovedValue(name, nbytes, tuple(norms), tuple(from_previous), tuple(from_first))


def _moved(before: np.ndarray | None, after: np.ndarray | None) -> float | None:
    from tfckpt.stored.inspection.statistics import moved

    return None if before is None or after is None else moved(before, after)


def _read(found: FoundCheckpoint, name: str) -> np.ndarray | None:
    entry = found.checkpoint.inventory.find(name)
    if entry is None or entry.shape is None:
        return None
    with contextlib.suppress(UnsupportedCheckpointError):  # some only TensorFlow can read
        return found.checkpoint.values.read(entry.key)
    return None
