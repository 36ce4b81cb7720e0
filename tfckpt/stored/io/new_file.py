"""One new file, whole or not at all, and never over another.

Written piece by piece under a temporary name, synced, and renamed when it is complete; whatever
interrupts that leaves nothing.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointError, SaveError
from tfckpt.stored.io.files import LOCAL, Files, absolute, join, temporary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.stored.io.files import Output


@contextlib.contextmanager
def new_file(path: str, files: Files = LOCAL) -> Iterator[Output]:
    """A file to write to, which has its name once the block has ended.

    Raises:
        SaveError: the name is taken, or it cannot be written.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = f"{tempfile.mkdtemp()}/page.html"
    >>> with new_file(path) as output:
    ...     output.write(b"content")
    >>> Path(path).read_text()
    'content'
    """
    with _published(path, files) as unfinished:
        output = files.create(unfinished)
        with contextlib.closing(output):
            yield output


@contextlib.contextmanager
def new_file_by_name(path: str, suffix: str) -> Iterator[str]:
    """As :func:`new_file`, for writers that want a path, one with a suffix of theirs.

    Raises:
        SaveError: the name is taken, or it cannot be written.
    """
    with _published(path, LOCAL) as unfinished:
        place = f"{unfinished}.dir"
        try:
            LOCAL.makedirs(place)
            made = join(place, f"new{suffix}")
            yield made
            LOCAL.rename(made, unfinished)
        finally:
            with contextlib.suppress(OSError):
                LOCAL.remove_tree(place)


@contextlib.contextmanager
def _published(path: str, files: Files) -> Iterator[str]:
    """A temporary name; what has it after the block is synced and gets the real one."""
    place = absolute(path)
    refuse_existing(path, files)
    try:
        with temporary(place) as unfinished:
            made = unfinished
            try:
                yield unfinished
                files.fsync(unfinished)
                refuse_existing(path, files)  # somebody else may have come first
                files.rename(unfinished, place)
                made = place
                files.fsync_dir(os.path.split(place)[0])
            except BaseException:
                with contextlib.suppress(OSError):
                    files.remove(made)
                raise
    except (SaveError, CheckpointError):
        raise
    except OSError as error:
        message = f"{path}: could not be written: {error.strerror or error}"
        raise SaveError(message, hint="the partial file was removed") from error


def refuse_existing(path: str, files: Files = LOCAL) -> None:
    """Refuse a name that is taken.

    Raises:
        SaveError: it is.
    """
    if files.exists(absolute(path)):
        message = f"{path}: already exists and is not overwritten"
        raise SaveError(message, hint="choose a name that does not exist yet")
