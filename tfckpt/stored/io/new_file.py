"""Writes one file completely or not at all, over an existing one only if that is meant.

The file is written under a temporary name, synced, and renamed when it is complete. What a killed
process left under such a name is removed by the next one that writes the file, or saves beside it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointError, SaveError
from tfckpt.stored.io.files import (
    LOCAL,
    Files,
    abandoned,
    absolute,
    join,
    temporary,
)
from tfckpt.stored.io.shared_directory import alone, writing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.stored.io.files import Output


@contextlib.contextmanager
def new_file(path: str, files: Files = LOCAL, *, replaces: bool = False) -> Iterator[Output]:
    """A file to write to, which gets its name at the end of the block.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = f"{tempfile.mkdtemp()}/page.html"
    >>> with new_file(path) as output:
    ...     output.write(b"content")
    >>> Path(path).read_text()
    'content'
    """
    with _published(path, files, replaces=replaces) as unfinished:
        output = files.create(unfinished)
        with contextlib.closing(output):
            yield output


@contextlib.contextmanager
def new_file_by_name(path: str, suffix: str, *, replaces: bool = False) -> Iterator[str]:
    """Like :func:`new_file`, for writers that need a path with a given suffix."""
    with (
        _published(path, LOCAL, replaces=replaces) as unfinished,
        temporary(_unfinished(path)) as directory,
    ):
        try:
            LOCAL.makedirs(directory)
            made = join(directory, f"new{suffix}")
            yield made
            LOCAL.rename(made, unfinished)
        finally:
            with contextlib.suppress(OSError):
                LOCAL.remove_tree(directory)


@contextlib.contextmanager
def _published(path: str, files: Files, *, replaces: bool = False) -> Iterator[str]:
    """A temporary name; the file under it is synced and renamed at the end of the block."""
    final = absolute(path)
    parent = os.path.split(final)[0]
    if not replaces:
        refuse_existing(path, files)
    _remove_leftovers(path, files)
    try:
        with writing(parent), temporary(_unfinished(path)) as unfinished:
            made = unfinished
            try:
                yield unfinished
                files.fsync(unfinished)
                if not replaces:  # another process may have created it meanwhile
                    refuse_existing(path, files)
                files.rename(unfinished, final)
                made = "" if replaces else final
                files.fsync_dir(parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    files.remove(made)
                raise
    except (SaveError, CheckpointError):
        raise
    except OSError as error:
        message = f"{path}: could not be written: {error.strerror or error}"
        raise SaveError(message, hint="the partial file was removed") from error


def _unfinished(path: str) -> str:
    """What temporary names are made of, which no other program uses."""
    return f"{absolute(path)}.tfckpt.new"


def _remove_leftovers(path: str, files: Files) -> None:
    """Remove what a dead process has left of this file."""
    parent, name = os.path.split(_unfinished(path))
    with contextlib.suppress(OSError):
        if left := [other for other in files.listdir(parent) if abandoned(other) == name]:
            with alone(parent) as unused:
                for other in left if unused else ():
                    files.remove_tree(join(parent, other))


def refuse_existing(path: str, files: Files = LOCAL) -> None:
    """Raise SaveError where the name exists."""
    if files.exists(absolute(path)):
        message = f"{path}: already exists and is not overwritten"
        raise SaveError(message, hint="choose a name that does not exist yet")
