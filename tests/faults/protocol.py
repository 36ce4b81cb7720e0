"""How a checkpoint is saved, replaced, deleted, recovered and read, without TensorFlow.

This is all that the enumeration of faults knows of how a save commits: `save` is what
``Checkpoint.write`` comes down to, `save_numbered` ``CheckpointManager.save``, `delete` ``prune``,
`quarantine` ``verify --quarantine``, and `recover` is what each does first in a directory.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
from zoo.bundles import write_bundle, write_data

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.errors import CheckpointError, CheckpointNotFoundError, TfckptError
from tfckpt.manager.directory import Directory
from tfckpt.manager.retention import decide
from tfckpt.policy import Keep
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.commits import commit, discovery, new_file, numbering
from tfckpt.stored.commits.discovery import TORN
from tfckpt.stored.commits.record_file import PART, CommitRecord
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.stored.io import files as io
from tfckpt.stored.io.files import Files
from tfckpt.tools.verification import move_away

Values = Mapping[str, np.ndarray]
NAME = "ckpt"
FAILED = (OSError, TfckptError)  # where the file system fails
WITH_SAVER, OWN = f"{NAME}-5", "-own"  # it has a file of a registered saver, with this end
CREATED = "2025-01-31T12:00:00+00:00"


def save(prefix: str, values: Values, files: Files) -> None:
    """Write a checkpoint, in the place of one of the same name if there is one."""
    _save(prefix, values, files)


def save_numbered(directory: str, values: Values, files: Files, keep: int | None = None) -> str:
    """Write a checkpoint under the next number, then delete all but the newest; its prefix."""
    held = Directory(directory, NAME, files)
    number = numbering.take_number(held.prefix, files, 0)
    prefix = f"{held.prefix}-{number.value}"
    _save(prefix, values, files, number.mark)
    with contextlib.suppress(CheckpointError):  # it is saved, whatever follows
        found = held.checkpoints(names := held.names())
        rules = [Keep(latest=keep)] if keep else []
        saved = held.saved(found, names)
        held.release(found, saved, decide(saved, rules, anchor=0.0), names)
    return prefix


def delete(prefix: str, files: Files) -> None:
    """Delete a checkpoint."""
    directory, name = os.path.split(prefix)
    commit.claim(directory, name.rpartition("-")[0], files)
    commit.delete(prefix, files)


def quarantine(prefix: str, files: Files) -> None:
    """Move a checkpoint away."""
    move_away(prefix, files)


def export(path: str, data: bytes, files: Files) -> None:
    """Write one file, which is there whole or not at all."""
    with mock.patch.object(new_file, "LOCAL", files), new_file.new_file(path) as output:
        output.write(data)


def recover(directory: str, files: Files) -> None:
    """End what dead processes have begun."""
    commit.claim(directory, NAME, files)


def read(prefix: str, files: Files) -> dict[str, np.ndarray] | None:
    """Every value, by key; None where there is no checkpoint of that name."""
    try:
        with open_checkpoint(prefix, files=files) as stored:
            keys = [entry.key for entry in stored.inventory.entries.values()]
            return {key: stored.values.read(key) for key in keys}
    except CheckpointNotFoundError:
        return None


def listing(directory: str, files: Files) -> list[str]:
    """The prefixes that are listed as checkpoints, highest number first."""
    found = discovery.candidates(directory, None, files)
    return [one.prefix for one in found if one.state != TORN]


def planted(name: str, other: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Files that look like what a save, a deletion or a move has left of a name, and are not.

    ``other`` are the files of a checkpoint of the same name with other values.
    """
    record = other[f"{name}.tfckpt.json"]
    texts = (b"", b"no record", record, record[: len(record) // 2], b"0" * 64 + b"\nelsewhere")
    for end, text in itertools.product(
        (".tfckpt.mark", ".tfckpt.draft", ".0a1b2c3d.tmp", ".index.0a1b2c3d.tmp"),
        (*texts, b"undone", b"move ", b"move  away\n"),
    ):
        yield {name + end: text}
        yield {name + end: text, f"{name}.tfckpt.mark": b""}
        yield {name + end: text, f"{name}.tfckpt.mark": record}
    yield {f"{name}.tfckpt.part/{file}": text for file, text in other.items()}
    yield {f"{name}.tfckpt.mark": b"", f"{name}.tfckpt.part/{name}-saver": b""}


class Process:
    """What a process remembers of its own saves; each begins with nothing."""

    def __init__(self, seed: int, lock: Callable[[], Any]) -> None:
        self._memory = [
            (io, "_in_use", set()),
            (numbering, "_tried", {}),
            (numbering, "_lock", lock()),
            (commit, "_held", {}),
            (os, "urandom", random.Random(seed).randbytes),
        ]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """It runs in this block, or until another one does."""
        with contextlib.ExitStack() as stack:
            for owner, name, value in self._memory:
                stack.enter_context(mock.patch.object(owner, name, value))
            yield

    def goes_on(self) -> None:
        """It runs instead of another one, in the block of that one."""
        for owner, name, value in self._memory:
            setattr(owner, name, value)


def write_plain(prefix: str, values: Values, shards: int, files: Files) -> None:
    """Write a checkpoint as another program does: data, then the index, and no record."""
    write_bundle(prefix, values, shards, _in_turn(values, shards), files)


def _in_turn(values: Values, shards: int) -> Callable[[str], int]:
    return {key: number % shards for number, key in enumerate(values)}.__getitem__


def _save(prefix: str, values: Values, files: Files, mark: commit.Mark | None = None) -> None:
    with commit.saving(prefix, files, mark) as save:
        shards = len(values)  # so many, or more: a number that no file of the name has
        while shards in save.taken:
            shards += 1
        index = write_data(prefix, values, shards, _in_turn(values, len(values)), files)
        if prefix.endswith(WITH_SAVER):
            _write_as_saver(prefix, files)
        with Bundle.open(prefix, files, index=index) as bundle:
            record = _record(prefix, bundle, save.files(shards))
        save.commit(record, index)


def _write_as_saver(prefix: str, files: Files) -> None:
    directory, name = prefix + PART, os.path.split(prefix)[1]
    files.makedirs(directory)
    with contextlib.closing(files.create(f"{directory}/{name}{OWN}")) as output:
        output.write(b"of a saver")
        output.sync()


def _record(prefix: str, bundle: Bundle, files: tuple[str, ...]) -> CommitRecord:
    entries = {
        key: Entry(key, Role.WEIGHT, each.dtype, each.shape, each.nbytes, key)
        for key, each in bundle.entries.items()
    }
    number = re.search(r"-([0-9]+)\Z", prefix)
    return CommitRecord(
        number=int(number[1]) if number else 0,
        inventory=Inventory(prefix, entries),
        index_sha256=bundle.digest,
        created=CREATED,
        finite=True,
        files=files,
    )
