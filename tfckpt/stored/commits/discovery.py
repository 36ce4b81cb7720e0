"""Finds the checkpoints of a directory from its listing.

TensorFlow reads the state file instead, which may be lost, stale or copied from another run. A
checkpoint is *committed* where tfckpt's commit record lies beside its index, and *foreign* where
plain TensorFlow wrote it. A record and data without an index are *damaged*: leaving such a
checkpoint out would make the run start from scratch. Data alone is *torn*: plain TensorFlow was
interrupted while it saved or deleted. Unfinished saves of tfckpt have names of their own
(:mod:`tfckpt.stored.commits.staging`) and are not listed, nor is what is being moved away. No file
is opened, and no name is treated as a glob pattern.
"""

from __future__ import annotations

import dataclasses
import re
from enum import Enum

from tfckpt.errors import CheckpointNotFoundError
from tfckpt.stored.commits.record_file import DELETED, MOVED, SUFFIX
from tfckpt.stored.io.files import LOCAL, Files, join, reading, stands_for
from tfckpt.stored.paths.wrong_paths import DATA

# Eighteen digits, as save counters have 64 bits.
_BASE = re.compile(r"(?P<name>.*)-(?P<number>[0-9]{1,18})", re.DOTALL)
_INDEX = ".index"
_STAGED = ".tmp"
_SUFFIXES = (_INDEX, SUFFIX, DELETED, MOVED)
_ENDS = "|".join(map(re.escape, _SUFFIXES))
_PART = re.compile(rf"(?P<base>.*)(?:(?P<suffix>{_ENDS})|{DATA})", re.DOTALL)


class CheckpointKind(str, Enum):
    """The kind of a checkpoint, as far as its file names show."""

    COMMITTED = "committed"
    FOREIGN = "foreign"
    DAMAGED = "damaged"
    TORN = "torn"

    __str__ = str.__str__


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint; ``prefix`` is ``<directory>/<checkpoint_name>-<number>``."""

    number: int
    prefix: str
    kind: CheckpointKind


def candidates(
    directory: str, checkpoint_name: str | None = "ckpt", files: Files = LOCAL
) -> list[Candidate]:
    """The checkpoints of a directory, torn ones included, highest number first; [] where there are
    none.

    ``checkpoint_name`` is the part before the number, None for any. Names are not patterns:
    ``run[1]`` is the directory of that name.
    """
    parts: dict[str, set[str]] = {part: set() for part in (*_SUFFIXES, _STAGED, "")}
    for name in _listing(directory, files):
        part, base = _part(name)
        parts[part].add(base)
    indexed, recorded = parts[_INDEX], parts[SUFFIX]
    # Data beside a staged save is being written, beside a deletion being removed.
    data_alone = parts[""] - indexed - (parts[_STAGED] - recorded) - parts[DELETED]
    result = []
    for base in (indexed | data_alone) - parts[MOVED]:
        match = _BASE.fullmatch(base)
        if match is None or checkpoint_name not in (None, match["name"]):
            continue
        if base in indexed:
            kind = CheckpointKind.COMMITTED if base in recorded else CheckpointKind.FOREIGN
        else:
            kind = CheckpointKind.DAMAGED if base in recorded else CheckpointKind.TORN
        result.append(Candidate(int(match["number"]), join(directory, base), kind))
    return sorted(result, key=lambda candidate: (candidate.number, candidate.prefix), reverse=True)


def _part(name: str) -> tuple[str, str]:
    """The kind of file and the checkpoint it belongs to; ``""`` for data, and for other files."""
    if match := _PART.fullmatch(name):
        return match["suffix"] or "", match["base"]
    if (staged := stands_for(name)) is not None:
        return _STAGED, staged
    return "", ""


def highest_number(directory: str, checkpoint_name: str = "ckpt", files: Files = LOCAL) -> int:
    """The highest number in any file name with this checkpoint name; 0 where there is none.

    Unfinished and orphaned files count, so a save with a higher number overwrites nothing: no
    index, orphaned data file, record or ``ckpt-7_temp`` directory of an interrupted save.
    """
    used = re.compile(re.escape(checkpoint_name) + r"-([0-9]{1,18})(?![0-9])")
    matches = map(used.match, _listing(directory, files))
    return max((int(match[1]) for match in matches if match), default=0)


def _listing(directory: str, files: Files) -> list[str]:
    with reading(directory):
        try:
            return files.listdir(directory)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            from tfckpt.stored.paths.lookalikes import Audience, look

            findings = look(directory, files)
            hint = "use another directory, or move the file away"
            if findings.others:
                hint = findings.others[0].how(Audience.CONFIG, directory)
            raise CheckpointNotFoundError(findings.state, path=directory, hint=hint) from None
