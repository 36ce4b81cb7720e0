"""Every checksum of a checkpoint, and all that is wrong with it rather than the first thing.

A restore stops at the first fault. Who wants to know what can still be saved wants all of them, and
by the names of the values; so where a checkpoint does not open, its index is asked what it would
hold, and its record what that is called.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointError, DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.commits import record_file
from tfckpt.stored.graphs import keys
from tfckpt.stored.io.files import LOCAL, Files
from tfckpt.stored.open import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfckpt.stored.formats.checkpoint import StoredCheckpoint, Values


BATCH = 64 << 20  # bytes, between two reports of progress


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        file: the file that it is in.
        name: canonical name of the value, ``""`` where it is about none or about all.
        message: what is wrong, without these two.
    """

    file: str
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}{f' (value {self.name!r})' if self.name else ''}: {self.message}"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

    Attributes:
        path: of the checkpoint.
        kind: what it is; ``""`` where it does not open.
        values: how many were checked.
        nbytes: their size.
        faults: what is wrong, in the order of the values.
        damaged: whether that is damage, and not that nobody here can read it.
    """

    path: str
    kind: str
    values: int
    nbytes: int
    faults: tuple[Fault, ...]
    damaged: bool = True


def verify(
    path: str, files: Files = LOCAL, advance: Callable[[int, int], None] = lambda done, of: None
) -> Verdict:
    """Check a checkpoint whole.

    Args:
        path: as ``open_checkpoint`` takes it.
        files: where it is.
        advance: called for each value with the bytes checked and those there are in all.

    Raises:
        CheckpointNotFoundError: there is none.
    """
    try:
        with open_checkpoint(path, files=files) as stored:
            names = {entry.key: entry.name for entry in stored.inventory.entries.values()}
            sizes = _sizes(stored)
            faults = _check(stored.values, stored.prefix, names, sizes, advance)
            return Verdict(path, stored.kind, len(sizes), sum(sizes.values()), tuple(faults))
    except UnsupportedCheckpointError as error:
        return Verdict(path, "", 0, 0, (_fault(error, path, ""),), damaged=False)
    except DamagedCheckpointError as error:
        return _of_what_does_not_open(path, files, error, advance)


def _sizes(stored: StoredCheckpoint) -> dict[str, int]:
    if isinstance(stored.values, Bundle):  # it also holds the object graph, and parts of iterators
        return {key: entry.nbytes for key, entry in stored.values.entries.items()}
    entries = stored.inventory.entries.values()
    return {entry.key: entry.nbytes for entry in entries if entry.shape is not None}


def _check(
    values: Values,
    path: str,
    names: Mapping[str, str],
    sizes: Mapping[str, int],
    advance: Callable[[int, int], None],
) -> list[Fault]:
    faults: list[Fault] = []
    done, total = 0, sum(sizes.values())
    advance(done, total)
    for batch in _batches(sizes):
        try:
            values.verify(batch)
        except CheckpointError as error:  # which of them?
            found = [fault for key in batch if (fault := _fault_of(values, path, names, key))]
            if not found and not isinstance(error, UnsupportedCheckpointError):
                found = [_fault(error, path, names.get(error.name, _plain(error.name)))]
            faults += found
        for key in batch:
            done += sizes[key]
            advance(done, total)
    return faults


def _fault_of(values: Values, path: str, names: Mapping[str, str], key: str) -> Fault | None:
    try:
        values.verify([key])
    except UnsupportedCheckpointError:
        pass  # of a type that cannot be read: listed, and nobody's damage
    except CheckpointError as error:
        return _fault(error, path, names.get(key, _plain(key)))
    return None


def _batches(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Keys to check at once, by several threads."""
    batch: list[str] = []
    nbytes = 0
    for key, size in sizes.items():
        batch.append(key)
        nbytes += size
        if nbytes >= BATCH:
            yield batch
            batch, nbytes = [], 0
    yield batch


def _of_what_does_not_open(
    path: str, files: Files, error: DamagedCheckpointError, advance: Callable[[int, int], None]
) -> Verdict:
    try:
        bundle = Bundle.open(path, files, whole=False)
    except CheckpointError:
        return Verdict(path, "", 0, 0, (_fault(error, path, error.name),))
    with bundle:
        names = record_file.names_of(path, files)
        sizes = {key: entry.nbytes for key, entry in bundle.entries.items()}
        faults = _check(bundle, path, names, sizes, advance)
        if error.path not in {fault.file for fault in faults}:
            faults.insert(0, _fault(error, path, names.get(error.name, error.name)))
        return Verdict(path, "", len(sizes), sum(sizes.values()), tuple(faults))


def _plain(key: str) -> str:
    return "/".join(keys.edges(key)) if keys.ATTRIBUTES in key else key


def _fault(error: CheckpointError, path: str, name: str) -> Fault:
    return Fault(error.path or path, name, "\n".join(filter(None, (error.message, error.hint))))
