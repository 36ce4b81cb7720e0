"""Which checkpoint a config means: the first source that holds one, its newest readable one.

"None exists" and "none is readable" are different answers: a source falls through to the next only
where it holds no checkpoint at all, or says ``on_damaged: next`` and its checkpoints are damaged or
do not fit: a damaged run must not quietly become a fine-tune. A directory may well be empty when a
run begins; a ``path`` names an artefact that somebody knew of, and may be misspelt. Where the name
only goes on, or another number of it is there, it is an error; with nothing of the kind there, it
is passed over like an empty directory, and what comes out names it among what was rejected.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    RefusedError,
    RestoreError,
)
from tfckpt.live.remote import files_of
from tfckpt.manager.directory import Directory
from tfckpt.stored.files import reading
from tfckpt.stored.prefix import shards_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tfckpt.policy import Config, Policy, Source

    _Attempt: TypeAlias = Callable[[str, Policy, tuple[str, ...]], object]

_NUMBER = re.compile(r"[0-9]+$")


class Found(NamedTuple):
    """Something restored or planned, None where nothing was, and what was passed over."""

    result: object | None
    rejected: tuple[str, ...]


def first_readable(config: Config, attempt: _Attempt) -> Found:
    """Try the sources of a config in order.

    Args:
        config: what was declared.
        attempt: called with a prefix, the policy for it, and what was passed over so far;
            what it returns is the result, a CheckpointError rejects that checkpoint, a
            RefusedError the whole source, since its older checkpoints fit no better.

    Returns:
        The first result, or none where no source holds a checkpoint and ``if_none: initialize``;
        and what was passed over, a path with nothing there included.

    Raises:
        RestoreError: the config has no ``restore`` section.
        CheckpointNotFoundError: no source holds one, and ``if_none: error``.
        DamagedCheckpointError: a source holds checkpoints and none can be read.
        RefusedError: a source's checkpoint does not fit.
    """
    restore = config.restore
    if restore is None:
        raise RestoreError(
            "the config has no `restore` section, so there is nothing to restore from",
            hint="add `restore: {directory: …}` or `restore: {path: …}`",
        )
    rejected: list[str] = []
    absent = 0
    for source in restore.first_of:
        if source.path is not None and not _anything(source.path):
            rejected.append(f"nothing at {source.path}")
            absent += 1
            continue
        before = len(rejected)
        for result in _attempts(source, config.policy_of(source), attempt, rejected):
            return Found(result, tuple(rejected))
        if rejected[before:] and source.on_damaged == "error":
            raise _none_readable(
                rejected[before:],
                source.directory or "",
                "to go on with the next source all the same, set on_damaged: next",
            )
    places = ", ".join(source.path or source.directory or "" for source in restore.first_of)
    if len(rejected) > absent:
        raise _none_readable(rejected, places, "if_none is for where no source holds a checkpoint")
    if restore.if_none == "initialize":
        return Found(None, tuple(rejected))
    raise CheckpointNotFoundError(
        f"no checkpoint in {places}",
        hint="to start from the initial values where there is none, set if_none: initialize",
    )


def _attempts(
    source: Source, policy: Policy, attempt: _Attempt, rejected: list[str]
) -> Iterator[object]:
    """What the checkpoints of a source give; the reasons of those that give nothing are added."""
    for prefix, reason in _prefixes(source):
        if reason:
            rejected.append(reason)
            continue
        try:
            yield attempt(prefix, policy, tuple(rejected))
        except CheckpointError as error:
            if source.path is not None and source.on_damaged == "error":
                raise
            rejected.append(str(error))
        except RefusedError as error:
            if source.on_damaged == "error":
                raise
            rejected.append(str(error))
            return


def _none_readable(rejected: list[str], places: str, hint: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(
        "none of the checkpoints can be restored:\n  " + "\n  ".join(rejected),
        path=places,
        hint=hint,
    )


def _prefixes(source: Source) -> Iterable[tuple[str, str]]:
    """The checkpoints of a source in the order to try them, each with what speaks against it."""
    if source.path is not None:
        return [(source.path, "")]
    path = source.directory or ""
    directory = Directory(path, source.checkpoint_name, files_of(path))
    if source.select == "latest":
        return directory.restorable()
    found = directory.checkpoints()
    chosen = [(one.prefix, "") for one in found if one.number == source.select]
    if found and not chosen:
        numbers = ", ".join(str(one.number) for one in found)
        raise CheckpointNotFoundError(
            f"there is no checkpoint {source.checkpoint_name}-{source.select}",
            path=directory.path,
            hint=f"there are {numbers}",
        )
    return chosen


def _anything(prefix: str) -> bool:
    """Whether there is a checkpoint of that name, or something else that was meant as one.

    That is a name which only goes on (``ckpt-9.index``, or ``ckpt-90``), and a checkpoint of the
    same name with another number.
    """
    files = files_of(prefix)
    if files.exists(prefix) or shards_of(prefix, files):
        return True
    directory, name = os.path.split(prefix)
    with reading(directory):
        try:
            beside = files.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return False
    stem = _NUMBER.sub("", name)
    return any(
        other.startswith(name)
        or (other.endswith(".index") and _NUMBER.sub("", other.removesuffix(".index")) == stem)
        for other in beside
    )
