"""Which checkpoints a directory holds, by its own listing.

TensorFlow asks the state file, which may be lost, stale or somebody else's; names on disk cannot
be. A checkpoint is *committed* where tfckpt's record stands beside its index, *foreign* where not:
plain TensorFlow wrote it, or a save was not finished. Nothing is opened, and no name is taken for
a pattern.
"""

from __future__ import annotations

import dataclasses
import re
from enum import Enum

from tfckpt.stored.commit import SUFFIX
from tfckpt.stored.files import LOCAL, Files, join, reading

# Eighteen digits: save counters are 64 bits wide.
_INDEX = re.compile(r"(?P<name>.*)-(?P<number>[0-9]{1,18})\.index", re.DOTALL)


class Kind(str, Enum):
    """Who vouches for a checkpoint."""

    COMMITTED = "committed"
    FOREIGN = "foreign"

    __str__ = str.__str__


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint by its name: ``prefix`` is ``<directory>/<checkpoint_name>-<number>``."""

    number: int
    prefix: str
    kind: Kind


def candidates(
    directory: str, checkpoint_name: str | None = "ckpt", files: Files = LOCAL
) -> list[Candidate]:
    """The checkpoints of a directory, newest first: by number, not by time or alphabet.

    Args:
        directory: as it is; ``run[1]`` is the directory of that name.
        checkpoint_name: what stands before the number; None for any.
        files: where it is.

    Returns:
        [] where there is none, or no directory.
    """
    names = set(_listing(directory, files))
    found = []
    for name in names:
        match = _INDEX.fullmatch(name)
        if match is None or checkpoint_name not in (None, match["name"]):
            continue
        base = name[: -len(".index")]
        kind = Kind.COMMITTED if base + SUFFIX in names else Kind.FOREIGN
        found.append(Candidate(int(match["number"]), join(directory, base), kind))
    return sorted(found, key=lambda one: (one.number, one.prefix), reverse=True)


def highest_number(directory: str, checkpoint_name: str = "ckpt", files: Files = LOCAL) -> int:
    """The highest number that any file of that name has, finished or not; 0 where none has.

    A save that takes a higher one overwrites nothing: neither an index nor the orphaned data file,
    record or ``ckpt-7_temp`` directory of a save that was cut short.
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
