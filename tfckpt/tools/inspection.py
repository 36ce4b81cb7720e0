"""``tfckpt.inspect``: the values of a checkpoint and its metadata, as plain data."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

from tfckpt.core.gc_pause import gc_paused
from tfckpt.core.name_tree import ordered, tree
from tfckpt.core.text import preformatted
from tfckpt.errors import CheckpointError
from tfckpt.tools.find_checkpoint import find, path_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.stored.commits.discovery import CheckpointInfo
    from tfckpt.stored.commits.record_file import CommitRecord
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint
    from tfckpt.tools.find_checkpoint import FoundCheckpoint
    from tfckpt.tools.statistics import Statistics


# Called with what is read, ``2/3 runs/digits/ckpt-5``; gives a function of bytes done and in total.
Progress: TypeAlias = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]


@contextlib.contextmanager
def silent(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show nothing."""
    yield lambda done, total: None


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What a checkpoint holds; nothing of it is open."""

    path: str
    kind: str
    inventory: Inventory = dataclasses.field(repr=False)
    record: CommitRecord | None = dataclasses.field(default=None, repr=False)
    missing_files: tuple[str, ...] = ()
    candidates: tuple[CheckpointInfo, ...] = dataclasses.field(default=(), repr=False)
    rejected: Mapping[str, str] = dataclasses.field(default_factory=dict)
    statistics: Mapping[str, Statistics | CheckpointError | None] | None = dataclasses.field(
        default=None, repr=False
    )

    @gc_paused()
    def to_json(self) -> dict[str, Any]:
        """The document of ``tfckpt inspect --json``; statistics are in it if they were computed."""
        record, entries = self.record, self.inventory.entries.values()
        root = tree(entries)
        document = {
            "version": 1,
            "prefix": self.path,
            "kind": self.kind,
            "number": record.number if record else None,
            "time": record.created if record else None,
            "versions": dict(record.versions) if record else {},
            "finite": record.finite if record else None,
            "step": record.step if record else None,
            "epoch": record.epoch if record else None,
            "metrics": dict(record.metrics) if record else {},
            "metadata": dict(record.metadata) if record else {},
            "lineage": list(map(dataclasses.asdict, record.lineage)) if record else [],
            "nbytes": root.nbytes,
            "totals": {
                name: {"values": top.count, "nbytes": top.nbytes}
                for name, top in root.children.items()
            },
            "values": [{**value_json(entry), "key": entry.key} for entry in entries],
            "missing_shards": list(self.missing_files),
            "candidates": [
                {
                    "prefix": candidate.prefix,
                    "kind": candidate.state,
                    "rejected": self.rejected.get(candidate.prefix),
                }
                for candidate in self.candidates
            ],
        }
        if self.statistics is not None:
            document["statistics"] = {n: _plain(found) for n, found in self.statistics.items()}
        return document

    def __str__(self) -> str:
        from tfckpt.tools.result_texts import inspection_text

        return inspection_text(self)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def inspect(
    source: str | os.PathLike[str], *, values: bool = False, progress: Progress = silent
) -> Inspection:
    """What a checkpoint holds, as ``tfckpt inspect`` shows it. Does not import TensorFlow.

    Args:
        source: the path of a checkpoint in any format that tfckpt reads, or a directory of
            numbered checkpoints, of which the newest readable one is used.
        values: whether to read every value, for its statistics.
        progress: called with the path before values are read; returns a context manager, whose
            value is called with the bytes read and to be read.

    Raises:
        CheckpointNotFoundError: there is no checkpoint.
        DamagedCheckpointError: there is one, but it cannot be read.
        UnsupportedCheckpointError: its format is not supported.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> path = tfckpt.Checkpoint(model=model).save(tempfile.mkdtemp() + "/ckpt")
    >>> found = tfckpt.inspect(path, values=True)
    >>> found.inventory.entries["model/out/kernel"].shape
    (4, 2)
    >>> found.statistics["model/out/bias"].greatest
    0.0
    """
    found = find(path_of(source))
    with found.checkpoint:
        return inspect_open(found, values=values, progress=progress)


def inspect_open(
    found: FoundCheckpoint, *, values: bool, progress: Progress = silent
) -> Inspection:
    """The same for a checkpoint that is open, and stays so."""
    checkpoint = found.checkpoint
    return Inspection(
        checkpoint.prefix,
        checkpoint.kind,
        checkpoint.inventory,
        checkpoint.record,
        tuple(checkpoint.values.missing_files),
        tuple(found.candidates),
        found.rejected,
        _statistics(checkpoint, progress) if values else None,
    )


def _statistics(
    checkpoint: StoredCheckpoint, progress: Progress
) -> dict[str, Statistics | CheckpointError | None]:
    from tfckpt.tools.statistics import statistics

    result: dict[str, Statistics | CheckpointError | None] = {}
    entries = ordered(e for e in checkpoint.inventory.entries.values() if e.shape is not None)
    done, total = 0, sum(entry.nbytes for entry in entries)
    with progress(checkpoint.prefix) as advance:
        advance(0, total)
        for entry in entries:
            try:
                result[entry.name] = statistics(checkpoint.values.read(entry.key))
            except CheckpointError as error:  # the next value may be readable
                result[entry.name] = error
            done += entry.nbytes
            advance(done, total)
    return result


def value_json(entry: Entry) -> dict[str, Any]:
    """A value in a document of ``inspect`` or ``diff``, which may add to it."""
    return {
        "name": entry.name,
        "role": entry.role.value,
        "dtype": entry.dtype,
        "shape": None if entry.shape is None else list(entry.shape),
        "nbytes": entry.nbytes,
    }


def _plain(found: Statistics | CheckpointError | None) -> dict[str, Any] | None:
    if isinstance(found, CheckpointError):
        return {"error": str(found)}
    return None if found is None else dataclasses.asdict(found)
