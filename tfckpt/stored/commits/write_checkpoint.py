"""Writes and commits a checkpoint, in a save as in a rewrite.

Files are staged (:mod:`tfckpt.stored.commits.staging`), the index is read back, and the record is
moved into place last. A rewrite reads its values one at a time, so its memory is bounded by the
largest one, and it overwrites nothing: a prefix with any file is refused. So does a save into an
object store, which cannot replace several objects at once.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tfckpt.errors import CheckpointError, SaveError
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.write import BundleWriter
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.recovery import recover
from tfckpt.stored.commits.staging import staged
from tfckpt.stored.io.files import LOCAL, Files, absolute
from tfckpt.stored.paths.parts import is_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfckpt.stored.bundles.bundle import BundleEntry
    from tfckpt.stored.commits.record import CommitRecord
    from tfckpt.stored.commits.staging import Staging

_Written = TypeVar("_Written")


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
    write: Callable[[Staging], _Written],
    describe: Callable[[Bundle, _Written, tuple[str, ...]], CommitRecord],
    files: Files = LOCAL,
    *,
    replace: bool = True,
) -> CommitRecord:
    """Stage a checkpoint, read its index back, and commit it."""
    replace = replace and files.renames
    if not replace:
        claim_name(prefix, files)
    with staged(prefix, files) as staging:
        written = write(staging)
        with Bundle.open(staging.inner, files) as bundle:
            record = describe(bundle, written, staging.files())
        record_file.write(staging.inner, record, files)
        if not replace:  # another process may have written it meanwhile
            _refuse_taken(prefix, files, data=files.renames)
        staging.publish()
    return record


def write_values(
    prefix: str,
    values: Sequence[CheckpointValue],
    describe: Callable[[Bundle, None, tuple[str, ...]], CommitRecord],
    *,
    shard_bytes: int | None = None,
    files: Files = LOCAL,
) -> CommitRecord:
    """Write values in this order and commit them as a new checkpoint.

    ``shard_bytes`` is the size limit of a data file; None for a single file.
    """
    shards = spread([value.nbytes for value in values], shard_bytes)

    def write(staging: Staging) -> None:
        count = max(shards, default=0) + 1
        with BundleWriter(staging.inner, count, files, data=staging.data) as writer:
            for value, shard in zip(values, shards, strict=True):
                if value.entry is None:
                    writer.add(value.key, value.read(), shard)
                else:
                    writer.add_raw(value.key, value.entry, value.read(), shard)
            writer.finish()

    with _failing_as_save(prefix):
        return write_checkpoint(absolute(prefix), write, describe, files, replace=False)


def spread(sizes: Sequence[int], limit: int | None) -> list[int]:
    """The data file number of each value: filled in order, up to ``limit`` bytes each.

    A value is never split; one larger than ``limit`` has a data file of its own.

    >>> spread([4, 4, 9, 1, 0], 8), spread([4, 4, 9], None)
    ([0, 0, 1, 2, 2], [0, 0, 0])
    """
    shards, shard, filled = [], 0, 0
    for size in sizes:
        if limit is not None and filled and filled + size > limit:
            shard, filled = shard + 1, 0
        filled += size
        shards.append(shard)
    return shards


def claim_name(prefix: str, files: Files) -> None:
    """Recover what an interrupted writer left of a checkpoint, and check that it is none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        recover(prefix, files)
    _refuse_taken(prefix, files)


def _refuse_taken(prefix: str, files: Files, *, data: bool = True) -> None:
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
            hint = "choose a name that does not exist yet"
            if not files.renames:
                hint += "; `save` finds one: no checkpoint is replaced in an object store"
            raise SaveError(message, hint=hint)


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
