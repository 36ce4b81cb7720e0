"""Writes commit records for checkpoints of other tools, so that they are listed, kept and deleted.

A record vouches for its checkpoint, so every checksum is checked first, and whether all numbers are
finite. Canonical names are not recorded: some can be derived only beside a live model, so whoever
opens the checkpoint derives them, as before.
"""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.record import CommitRecord
from tfckpt.stored.commits.recovery import parts
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
    listed: ListedCheckpoint, advance: Callable[[int, int], None] = lambda done, total: None
) -> CommitRecord:
    """Write the record of a local checkpoint whose directory this process has claimed.

    Raises:
        DamagedCheckpointError: a file is missing, or a checksum is wrong.
        UnsupportedCheckpointError: the name has no number.
    """
    if listed.number is None:
        message = "the name has no number, which orders the checkpoints of a directory"
        raise UnsupportedCheckpointError(message, path=listed.prefix)
    with open_checkpoint(listed.prefix) as stored:
        if stored.values.missing_files:
            message = "the file is missing"
            raise DamagedCheckpointError(message, path=stored.values.missing_files[0])
        finite = _read_all(stored, advance)
        names = set(LOCAL.listdir(os.path.split(listed.prefix)[0]))
        time = datetime.datetime.fromtimestamp(listed.time, datetime.timezone.utc)
        record = CommitRecord(
            number=listed.number,
            inventory=stored.inventory,
            index_sha256=record_file.index_digest(listed.prefix),
            created=time.isoformat(),
            step=_step(stored),
            finite=finite,
            files=tuple(name for name in parts(listed.prefix, names) if ".data-" in name),
            adopted=True,
        )
    record_file.write(listed.prefix, record)
    return record


def _read_all(stored: StoredCheckpoint, advance: Callable[[int, int], None]) -> bool:
    """Verify all checksums; whether weights, slots and values of unknown role are finite."""
    entries = stored.inventory.entries.values()
    done, total, finite = 0, sum(entry.nbytes for entry in entries), True
    for entry in entries:
        if entry.shape is None:
            continue
        try:
            if entry.role not in _MAY_BE_INFINITE:
                measured = statistics(stored.values.read(entry.key))
                finite = finite and (measured is None or not measured.nonfinite)
            else:
                stored.values.verify([entry.key])
        except UnsupportedCheckpointError:
            pass  # a dtype that only TensorFlow reads
        done += entry.nbytes
        advance(done, total)
    return finite


def _step(stored: StoredCheckpoint) -> int | None:
    entries = stored.inventory.entries
    counters = [entry for entry in entries.values() if entry.role is Role.ITERATIONS]
    if not counters and _COUNTER in entries:
        counters = [entries[_COUNTER]]
    if len(counters) != 1 or counters[0].shape != () or "int" not in counters[0].dtype:
        return None
    step = int(stored.values.read(counters[0].key).item())
    return step if step >= 0 else None
