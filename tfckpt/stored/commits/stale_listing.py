"""Corrects the listing of a directory in an object store, which may be stale.

Some object stores list new objects late, and deleted ones for a while, but answer correctly for a
single name. A process remembers its own changes (:mod:`tfckpt.live.io.remote_files`). For those of
other processes, such as one that was just killed, the state file helps: it is a single object, and
is written before anything is deleted. It only suggests names to check; a checkpoint that it names
counts only where its record exists.

Checked are names in the state file that are not listed; the newest few listed records that it does
not name, since they may be deleted; and the number after the highest. An older deleted checkpoint
may stay listed for a while: a restore skips it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointError
from tfckpt.stored.commits.record_file import SUFFIX
from tfckpt.stored.io.files import join
from tfckpt.stored.paths.state_file import STATE_FILE, read_state
from tfckpt.stored.paths.wrong_paths import DATA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfckpt.stored.io.files import Files

_INDEX = ".index"
_ASKED = 16  # per listing; more than one save deletes
_NUMBERED = re.compile(r"(.*)-([0-9]{1,18})", re.DOTALL)
_DATA = re.compile(rf"(.*){DATA}", re.DOTALL)


def as_of_now(names: Iterable[str], directory: str, files: Files) -> list[str]:
    """The names in a directory: those listed, plus new ones, minus deleted ones."""
    current = set(names)
    in_state = _named_by_state(directory, files)
    for base in sorted(in_state):
        if base + SUFFIX not in current:
            _ask(base, current, directory, files)
    recorded = {name.removesuffix(SUFFIX) for name in current if name.endswith(SUFFIX)}
    unconfirmed = sorted(recorded - in_state, key=_number)[-_ASKED:]
    gone = {base for base in unconfirmed if not files.exists(join(directory, base + SUFFIX))}
    if gone:
        current = {name for name in current if _base(name) not in gone}
    for stem, highest in _highest(current).items():
        number = highest + 1
        while _ask(f"{stem}-{number}", current, directory, files):
            number += 1
    return sorted(current)


def _named_by_state(directory: str, files: Files) -> set[str]:
    try:
        state = read_state(join(directory, STATE_FILE), files)
    except CheckpointError:  # reported where the state file is needed
        return set()
    paths = state.all_model_checkpoint_paths if state else ()
    return {os.path.split(path)[1] for path in paths}


def _ask(base: str, names: set[str], directory: str, files: Files) -> bool:
    """Add the index and record of a checkpoint, where they exist; whether one does."""
    existing = {base + s for s in (_INDEX, SUFFIX) if files.exists(join(directory, base + s))}
    names |= existing
    return bool(existing)


def _base(name: str) -> str:
    """The checkpoint that a file belongs to, from its suffix.

    >>> _base("ckpt-1.index"), _base("ckpt-1.data-00000-of-00002"), _base("checkpoint")
    ('ckpt-1', 'ckpt-1', '')
    """
    for suffix in (_INDEX, SUFFIX):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    match = _DATA.fullmatch(name)
    return match[1] if match else ""


def _number(base: str) -> int:
    match = _NUMBERED.fullmatch(base)
    return int(match[2]) if match else 0


def _highest(names: Iterable[str]) -> dict[str, int]:
    """Name → highest number, of checkpoints with an index or a record."""
    highest: dict[str, int] = {}
    for name in names:
        if name.endswith((_INDEX, SUFFIX)) and (match := _NUMBERED.fullmatch(_base(name))):
            highest[match[1]] = max(highest.get(match[1], 0), int(match[2]))
    return highest
