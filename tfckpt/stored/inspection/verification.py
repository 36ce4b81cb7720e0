"""Checks every checksum of a checkpoint and reports all faults, not just the first.

A restore stops at the first fault. To find out what can still be used, all of them are needed, by
value name; so where a checkpoint does not open, its index and its record are still used to list and
name its values.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tfckpt.errors import CheckpointError, DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.bundles import keys
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.commits import record_file
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.stored.io.files import LOCAL, Files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfckpt.stored.bundles.values import StoredValues


BATCH = 64 << 20  # bytes between two progress reports


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        file: the file with the fault.
        name: canonical name of the value; ``""`` where the fault is not about a single value.
        message: what is wrong, without file and name.
    """

    file: str
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}{f' (value {self.name!r})' if self.name else ''}: {self.message}"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a verification.

    Attributes:
        path: of the checkpoint.
        kind: of the checkpoint; ``""`` where it does not open.
        values: number of values checked.
        nbytes: their total size.
        faults: in the order of the values.
        damaged: whether the faults are damage, not just an unsupported format.
        moved_to: where it is now, if it was moved into quarantine; else ``""``.
    """

    path: str
    kind: str
    values: int
    nbytes: int
    faults: tuple[Fault, ...]
    damaged: bool = True
    moved_to: str = ""

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """One of the ``checkpoints`` in the document of ``tfckpt verify --json``."""
        return {
            "path": self.path,
            "kind": self.kind or None,
            "ok": self.ok,
            "values": self.values,
            "nbytes": self.nbytes,
            "faults": [dataclasses.asdict(fault) for fault in self.faults],
            "quarantine": self.moved_to or None,
        }


def verify(
    path: str, files: Files = LOCAL, advance: Callable[[int, int], None] = lambda done, of: None
) -> Verdict:
    """Check a whole checkpoint; ``advance`` receives the bytes checked and in total."""
    try:
        with open_checkpoint(path, files=files) as stored:
            names = {entry.key: entry.name for entry in stored.inventory.entries.values()}
            sizes = stored.values.sizes or {  # of a bundle also the graph and parts of iterators
                entry.key: entry.nbytes
                for entry in stored.inventory.entries.values()
                if entry.shape is not None
            }
            faults = _check(stored.values, stored.prefix, names, sizes, advance)
            return Verdict(path, stored.kind, len(sizes), sum(sizes.values()), tuple(faults))
    except UnsupportedCheckpointError as error:
        return Verdict(path, "", 0, 0, (_fault(error, path, ""),), damaged=False)
    except DamagedCheckpointError as error:
        return _of_what_does_not_open(path, files, error, advance)


def _check(
    values: StoredValues,
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
        except CheckpointError as error:  # find out which of them
            batch_faults = [
                fault for key in batch if (fault := _fault_of(values, path, names, key))
            ]
            if not batch_faults and not isinstance(error, UnsupportedCheckpointError):
                batch_faults = [_fault(error, path, names.get(error.name, _plain(error.name)))]
            faults += batch_faults
        for key in batch:
            done += sizes[key]
            advance(done, total)
    return faults


def _fault_of(values: StoredValues, path: str, names: Mapping[str, str], key: str) -> Fault | None:
    try:
        values.verify([key])
    except UnsupportedCheckpointError:
        pass  # a dtype that cannot be read is not damage
    except CheckpointError as error:
        return _fault(error, path, names.get(key, _plain(key)))
    return None


def _batches(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Keys that are checked together, by several threads."""
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
        sizes = bundle.sizes
        faults = _check(bundle, path, names, sizes, advance)
        if error.path not in {fault.file for fault in faults}:
            faults.insert(0, _fault(error, path, names.get(error.name, error.name)))
        return Verdict(path, "", len(sizes), sum(sizes.values()), tuple(faults))


def _plain(key: str) -> str:
    return "/".join(keys.edges(key)) if keys.ATTRIBUTES in key else key


def _fault(error: CheckpointError, path: str, name: str) -> Fault:
    return Fault(error.path or path, name, "\n".join(filter(None, (error.message, error.hint))))
