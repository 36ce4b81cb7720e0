"""Finds the checkpoints of a directory from its listing.

TensorFlow reads the state file instead, which may be lost, stale or copied from another run. A
checkpoint is *committed* where tfckpt's commit record lies beside its index, or its draft as after
a loss of power, and *foreign* where plain TensorFlow wrote it. A record and data without an index
are *damaged*: leaving such a checkpoint out would make the run start from scratch. Data alone is
*torn*: plain TensorFlow was interrupted while it saved or deleted. What tfckpt has not finished has
a mark (:mod:`tfckpt.stored.commits.commit`) and is not listed while it has no index. No file is
opened, and no name is treated as a glob pattern.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.errors import CheckpointNotFoundError
from tfckpt.stored.commits.record_file import DRAFT, MARK, SUFFIX
from tfckpt.stored.io.explain import DATA
from tfckpt.stored.io.files import LOCAL, Files, join, reading

if TYPE_CHECKING:
    from collections.abc import Iterable

# Eighteen digits, as save counters have 64 bits.
_BASE = re.compile(r"(?P<name>.*)-(?P<number>[0-9]{1,18})", re.DOTALL)
_INDEX = ".index"
_ENDS = {end.rpartition(".")[2]: end for end in (_INDEX, SUFFIX, DRAFT, MARK)}
_DATA = re.compile(rf"(?P<base>.*){DATA}", re.DOTALL)


class CheckpointKind(str, Enum):
    """The kind of a checkpoint, as far as its file names show."""

    COMMITTED = "committed"
    FOREIGN = "foreign"
    DAMAGED = "damaged"
    TORN = "torn"

    __str__ = str.__str__


class Candidate(NamedTuple):
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
    return listed(directory, _listing(directory, files), checkpoint_name)


def listed(directory: str, names: Iterable[str], checkpoint_name: str | None) -> list[Candidate]:
    """The same of a directory with these names."""
    parts: dict[str, set[str]] = {part: set() for part in (*_ENDS.values(), "")}
    for name in names:
        if checkpoint_name is not None and not name.startswith(checkpoint_name):
            continue
        end = _ENDS.get(name.rpartition(".")[2])
        if end is None:
            if match := _DATA.fullmatch(name):
                parts[""].add(match["base"])
        elif name.endswith(end):
            parts[end].add(name.removesuffix(end))
    indexed, recorded = parts[_INDEX], parts[SUFFIX]
    committed = indexed & (recorded | parts[DRAFT])
    # Data beside a mark is being written or removed.
    data_alone = parts[""] - indexed - (parts[MARK] - recorded)
    result, directory = [], join(directory, "")
    for base in indexed | data_alone:
        match = _BASE.fullmatch(base)
        if match is None or checkpoint_name not in (None, match["name"]):
            continue
        if base in indexed:
            kind = CheckpointKind.COMMITTED if base in committed else CheckpointKind.FOREIGN
        else:
            kind = CheckpointKind.DAMAGED if base in recorded else CheckpointKind.TORN
        result.append(Candidate(int(match["number"]), directory + base, kind))
    return sorted(result, reverse=True)


def highest_number(
    directory: str, checkpoint_name: str = "ckpt", files: Files = LOCAL, suffix: str = ""
) -> int:
    """The highest number in any file name with this checkpoint name; 0 where there is none.

    Unfinished and orphaned files count, so a save with a higher number overwrites nothing: no
    index, orphaned data file, record or mark of an interrupted save. With ``suffix``, only names
    that end with it count.
    """
    end = rf"{re.escape(suffix)}\Z" if suffix else "(?![0-9])"
    used = re.compile(rf"{re.escape(checkpoint_name)}-([0-9]{{1,18}}){end}")
    matches = map(used.match, _listing(directory, files))
    return max((int(match[1]) for match in matches if match), default=0)


def _listing(directory: str, files: Files) -> list[str]:
    with reading(directory):
        try:
            return files.listdir(directory)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            from tfckpt.stored.io.explain import look

            findings = look(directory, files)
            hint = "use another directory, or move the file away"
            if findings.others:
                hint = findings.others[0].how(directory)
            raise CheckpointNotFoundError(findings.state, path=directory, hint=hint) from None
