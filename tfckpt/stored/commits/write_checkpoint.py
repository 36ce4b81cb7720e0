"""Writes and commits a whole checkpoint from values that are read one at a time.

The protocol is that of a save (:mod:`tfckpt.stored.commits.staging`): files are staged, the index
is read back, and the record is moved into place last. Memory is bounded by the largest value. An
existing file is never overwritten: a prefix with any file is refused.
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
from tfckpt.stored.io.files import LOCAL, Files, absolute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfckpt.stored.bundles.bundle import BundleEntry
    from tfckpt.stored.commits.record import CommitRecord


class CheckpointValue(NamedTuple):
    """A value to write.

    Attributes:
        key: in the new checkpoint.
        nbytes: its size, by which it is assigned to a data file.
        read: returns the value or, with ``entry``, its stored bytes; called once.
        entry: index entry of these bytes in another checkpoint, for values that can only be copied.
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
    """Write values and commit them as a checkpoint.

    Args:
        prefix: of the new checkpoint.
        values: in the order in which they are written.
        describe: makes the record from the written bundle and the names of its data files.
        shard_bytes: size limit of a data file; None for a single file.
        files: the file system.

    Raises:
        SaveError: a file exists already, or a file cannot be written; partial files are removed.
    """
    absolute_prefix = absolute(prefix)
    refuse_taken(absolute_prefix, files)
    shards = spread([value.nbytes for value in values], shard_bytes)
    with _failing_as_save(prefix), staged(absolute_prefix, files) as staging:
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
        # Another process may have written it meanwhile.
        refuse_taken(absolute_prefix, files, data=files.renames)
        staging.publish()
    return record


def refuse_taken(prefix: str, files: Files, *, data: bool = True) -> None:
    """Raise SaveError where a file of this checkpoint exists; ``data`` includes data files."""
    directory, name = os.path.split(prefix)
    try:
        existing = files.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    own = {name, f"{name}.index", record_file.path_of(name)}
    for other in sorted(existing):
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
