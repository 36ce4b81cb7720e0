"""Commit records for checkpoints that others wrote: from then on they are listed, kept and deleted.

A record vouches for what it lies beside, so every checksum is checked first, and whether all
numbers are finite is looked up. What the values are called is left to whoever opens the checkpoint,
as it was before: only a live side can tell some of it.
"""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.record import CommitRecord
from tfckpt.stored.inspection.listing import parts
from tfckpt.stored.inspection.statistics import statistics
from tfckpt.stored.io.files import LOCAL
from tfckpt.stored.open import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfckpt.stored.formats.checkpoint import StoredCheckpoint
    from tfckpt.stored.inspection.listing import ListedCheckpoint

_COUNTER = "global_step"
_MAY_BE_INFINITE = (Role.METRIC, Role.SEED, Role.HYPERPARAMETER)


def adopt(
    found: ListedCheckpoint, advance: Callable[[int, int], None] = lambda done, of: None
) -> CommitRecord:
    """Write the record of a local checkpoint whose directory this process has claimed.

    Raises:
        DamagedCheckpointError: it cannot be vouched for.
    """
    if found.number is None:
        message = "has no number, by which those of a directory are ordered"
        raise UnsupportedCheckpointError(message, path=found.prefix)
    with open_checkpoint(found.prefix) as stored:
        if stored.values.missing_files:
            message = "the file is missing"
            raise DamagedCheckpointError(message, path=stored.values.missing_files[0])
        finite = _read_all(stored, advance)
        there = set(LOCAL.listdir(os.path.split(found.prefix)[0]))
        time = datetime.datetime.fromtimestamp(found.time, datetime.timezone.utc)
        record = CommitRecord(
            number=found.number,
            inventory=stored.inventory,
            index_sha256=record_file.index_digest(found.prefix),
            created=time.isoformat(),
            step=_step(stored),
            finite=finite,
            files=tuple(name for name in parts(found.prefix, there) if ".data-" in name),
            adopted=True,
        )
    record_file.write(found.prefix, record)
    return record


def _read_all(stored: StoredCheckpoint, advance: Callable[[int, int], None]) -> bool:
    """Check every checksum; whether weights, slots, and what may be weights, are finite."""
    entries = stored.inventory.entries.values()
    done, total, finite = 0, sum(entry.nbytes for entry in entries), True
    for entry in entries:
        if entry.shape is None:
            continue
        try:
            if entry.role not in _MAY_BE_INFINITE:
                found = statistics(stored.values.read(entry.key))
                finite = finite and (found is None or not found.nonfinite)
            else:
                stored.values.verify([entry.key])
        except UnsupportedCheckpointError:
            pass  # of a type that only TensorFlow reads
        done += entry.nbytes
        advance(done, total)
    return finite


def _step(stored: StoredCheckpoint) -> int | None:
    entries = stored.inventory.entries
    found = [entry for entry in entries.values() if entry.role is Role.ITERATIONS]
    if not found and _COUNTER in entries:
        found = [entries[_COUNTER]]
    if len(found) != 1 or found[0].shape != () or "int" not in found[0].dtype:
        return None
    step = int(stored.values.read(found[0].key).item())
    return step if step >= 0 else None
