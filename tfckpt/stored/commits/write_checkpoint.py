"""A whole checkpoint, written from values that are read one at a time, and committed.

The same protocol as a save: everything is made in a directory of its own, the index is read back,
and what is complete moves into place with its record last (:mod:`tfckpt.stored.commits.staging`).
Memory is bounded by the largest value. Nothing is ever written over: a prefix of which any file is
there is refused.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.errors import CheckpointError, SaveError
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.writing.write import BundleWriter, spread
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.record import is_part
from tfckpt.stored.commits.staging import staged
from tfckpt.stored.io.files import LOCAL, Files, absolute, join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfckpt.stored.bundles.bundle import BundleEntry
    from tfckpt.stored.commits.record import CommitRecord


class CheckpointValue(NamedTuple):
    """One value that is to be written.

    Attributes:
        key: in the new checkpoint.
        nbytes: its size, by which it is assigned to a data file.
        read: what returns it, or, with ``entry``, its stored bytes; called once.
        entry: how another checkpoint describes these bytes, for what can be copied alone.
    """

    key: str
    nbytes: int
    read: Callable[[], Any]
    entry: BundleEntry | None = None


def write_checkpoint(
    prefix: str,
    values: Sequence[CheckpointValue],
    describe: Callable[[Bundle, tuple[str, ...]], CommitRecord],
    *,
    shard_bytes: int | None = None,
    files: Files = LOCAL,
) -> CommitRecord:
    """Write values under keys of their own, and commit them.

    Args:
        prefix: of the new checkpoint.
        values: what is in it, in the order in which it is written.
        describe: what the record says, from what was written and the names of the data files.
        shard_bytes: where a data file ends and the next one begins; None makes a single one.
        files: where to.

    Raises:
        SaveError: something is there already, or it could not be written; nothing of it is left.
    """
    place = absolute(prefix)
    refuse_taken(place, files)
    shards = spread([value.nbytes for value in values], shard_bytes)
    with _failing_as_save(prefix), staged(place, files) as staging:
        count = max(shards, default=0) + 1
        with BundleWriter(staging.inner, count, files, data=staging.data) as writer:
            for value, shard in zip(values, shards, strict=True):
                if value.entry is None:
                    writer.add(value.key, value.read(), shard)
                else:
                    writer.add_raw(value.key, value.entry, value.read(), shard)
            writer.finish()
        with Bundle.open(staging.inner, files) as bundle:
            record = describe(bundle, staging.files())
        record_file.write(staging.inner, record, files)
        refuse_taken(place, files, data=files.renames)  # somebody else may have come first
        staging.publish()
    return record


def refuse_taken(prefix: str, files: Files, *, data: bool = True) -> None:
    """Refuse a prefix that any file of a checkpoint has; ``data``: or a data file alone.

    Raises:
        SaveError: which file that is.
    """
    directory, name = os.path.split(prefix)
    try:
        there = files.listdir(directory)
        if not files.renames:  # they may be listed late
            by_name = (f"{name}.index", record_file.path_of(name))
            there += [other for other in by_name if files.exists(join(directory, other))]
    except (FileNotFoundError, NotADirectoryError):
        return
    own = {name, f"{name}.index", record_file.path_of(name)}
    for other in sorted(there):
        if other in own or (data and is_part(other, name) and other.startswith(f"{name}.data-")):
            message = f"{prefix}: {other!r} already exists and is not overwritten"
            raise SaveError(message, hint="choose a name that does not exist yet")


@contextlib.contextmanager
def _failing_as_save(prefix: str) -> Iterator[None]:
    try:
        prefix.encode()
        yield
    except UnicodeEncodeError:
        raise SaveError(f"{prefix!r}: TensorFlow cannot read a path that is not UTF-8") from None
    except (SaveError, CheckpointError):
        raise
    except OSError as error:
        message = f"{prefix}: the checkpoint could not be written: {error}"
        raise SaveError(message, hint="partial files were removed") from error
