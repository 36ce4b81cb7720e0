"""Moves the files of a damaged checkpoint away, without deleting any.

They go into a directory of their own, ``quarantine/ckpt-7``. The state file ceases to name the
checkpoint before anything is moved; an interrupted move is completed by the next command or save.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING

from tfckpt.core.text import free_name
from tfckpt.errors import CheckpointError
from tfckpt.stored.bundles.bundle import index_path
from tfckpt.stored.commits import commit, discovery
from tfckpt.stored.io.files import join
from tfckpt.stored.io.state_file import STATE_FILE, read_state, render

if TYPE_CHECKING:
    from tfckpt.stored.io.files import Files


def quarantine(path: str, files: Files) -> str:
    """Move the files of a checkpoint into a new directory, and return its path."""
    if not files.exists(index_path(path)):
        path = path.rstrip("/")  # a directory; the name of an index may be empty after the last /
    parent, name = os.path.split(path)
    commit.claim(parent, None, files)
    _leave_out(parent, name, files)
    directory = join(parent, commit.QUARANTINE)
    target = free_name(name or "unnamed", lambda taken: files.exists(join(directory, taken)))
    return commit.move_away(path, target, files)


def _leave_out(parent: str, name: str, files: Files) -> None:
    """Take a checkpoint out of the state file, which goes if nothing is left to name."""
    path, state = join(parent, STATE_FILE), None
    with contextlib.suppress(CheckpointError):  # TensorFlow treats a damaged one as missing
        state = read_state(path, files)
    if state is None:
        return
    times = itertools.zip_longest(
        state.all_model_checkpoint_paths, state.all_model_checkpoint_timestamps
    )
    left = [(named, time) for named, time in times if os.path.split(named)[1] != name]
    newest = state.model_checkpoint_path
    if os.path.split(newest)[1] == name:
        newest = left[-1][0] if left else _newest_beside(parent, name, files)
    elif len(left) == len(state.all_model_checkpoint_paths):
        return
    if not newest:
        files.remove(path)
        files.fsync_dir(parent)
        return
    paths = [named for named, _ in left] or [newest]
    stamps = [time for _, time in left if time is not None]
    files.write_atomic(path, render(newest, paths, stamps, state.last_preserved_timestamp))


def _newest_beside(parent: str, name: str, files: Files) -> str:
    """The newest other checkpoint that has an index and the same name but for the number."""
    base = name.rpartition("-")[0]
    for one in discovery.candidates(parent, base, files):
        if one.kind in _WITH_INDEX and os.path.split(one.prefix)[1] != name:
            return os.path.split(one.prefix)[1]
    return ""


_WITH_INDEX = (discovery.CheckpointKind.COMMITTED, discovery.CheckpointKind.FOREIGN)
