"""Writes one file completely or not at all, over an existing one only if that is meant.

The file is written beside its place, synced, and renamed when it is complete. As for a checkpoint,
a mark shows that it is not, so what a killed process left is removed by the next one that writes
the file, or saves beside it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointError, NameTakenError, SaveError
from tfckpt.stored.commits.commit import begin_named, recover
from tfckpt.stored.commits.record_file import PART
from tfckpt.stored.io.files import LOCAL, absolute, join

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.stored.io.files import Output


@contextlib.contextmanager
def new_file(path: str, *, replaces: bool = False) -> Iterator[Output]:
    """A file to write to, which gets its name at the end of the block.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = f"{tempfile.mkdtemp()}/page.html"
    >>> with new_file(path) as output:
    ...     output.write(b"content")
    >>> Path(path).read_text()
    'content'
    """
    with (
        new_file_by_name(path, "", replaces=replaces) as unfinished,
        contextlib.closing(LOCAL.create(unfinished)) as output,
    ):
        yield output


@contextlib.contextmanager
def new_file_by_name(path: str, suffix: str, *, replaces: bool = False) -> Iterator[str]:
    """Like :func:`new_file`, for writers that need a path with a given suffix."""
    final = absolute(path)
    parent, directory = os.path.split(final)[0], final + PART
    if not replaces:
        refuse_existing(path)
    try:
        mark, made = begin_named(final, LOCAL), ""
        try:
            LOCAL.makedirs(directory)
            unfinished = join(directory, f"new{suffix}")
            yield unfinished
            LOCAL.fsync(unfinished)
            if not replaces:  # another process may have created it meanwhile
                refuse_existing(path)
                made = final
            LOCAL.rename(unfinished, final)
            LOCAL.fsync_dir(parent)
        except BaseException:
            with contextlib.suppress(OSError):
                LOCAL.remove(made)
            raise
        finally:
            mark.give_back()
    except (SaveError, CheckpointError):
        raise
    except OSError as error:
        message = f"{path}: could not be written: {error.strerror or error}"
        raise SaveError(message, hint="the partial file was removed") from error


def refuse_existing(path: str) -> None:
    """Raise SaveError where the name exists; ends what a killed process has left of the file."""
    with contextlib.suppress(OSError):
        recover(absolute(path), LOCAL)
    if LOCAL.exists(absolute(path)):
        message = f"{path}: already exists and is not overwritten"
        raise NameTakenError(message, hint="choose a name that does not exist yet")
