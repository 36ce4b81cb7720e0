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

import dataclasses
import datetime
import operator
import re
from typing import TYPE_CHECKING, Any

from tfckpt.errors import CheckpointNotFoundError
from tfckpt.stored.commits.record_file import DRAFT, MARK, SUFFIX, CommitRecord
from tfckpt.stored.io.explain import DATA
from tfckpt.stored.io.files import LOCAL, Files, join, reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Eighteen digits, as save counters have 64 bits.
_BASE = re.compile(r"(?P<name>.*)-(?P<number>[0-9]{1,18})", re.DOTALL)
_INDEX = ".index"
_ENDS = {end.rpartition(".")[2]: end for end in (_INDEX, SUFFIX, DRAFT, MARK)}
_DATA = re.compile(rf"(?P<base>.*){DATA}", re.DOTALL)


COMMITTED, FOREIGN, UNCOMMITTED = "committed", "foreign", "uncommitted"
DAMAGED, TORN = "damaged", "torn"
_UNRECORDED = CommitRecord()


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class CheckpointInfo:
    """A checkpoint of a directory: what file names say; then its record; then, if listed, the rest.

    Attributes:
        prefix: its path.
        number: None where its name has none.
        state: ``committed``, ``foreign``, ``uncommitted``, ``damaged`` or ``torn``.
        head: its record without values, where it can be read.
        nbytes: total size of its files, without those that an older checkpoint has, too.
        time: Unix time of the save, from the record or else from its newest file.
        problem: what is wrong with it; "" if nothing.
        best_by: the metric by which it is the best of its run; "" if it is not.
        kept: the retention rules that keep it; None where no rules were given.
        delete: whether these rules would delete it; None where none were given.
        next: whether they would after one more save; None where none were given.
        files: what identifies each of its files → the size.
        shared: bytes of those that an older checkpoint has, too, and its path.
    """

    prefix: str
    number: int | None
    state: str
    head: CommitRecord | None = None
    nbytes: int = 0
    time: float = 0.0
    problem: str = ""
    best_by: str = ""
    kept: tuple[str, ...] | None = None
    delete: bool | None = None
    next: bool | None = None
    files: Mapping[str, int] = dataclasses.field(default_factory=dict)
    shared: tuple[int, str] = (0, "")

    def __repr__(self) -> str:
        at = "" if self.record.step is None else f", step {self.record.step}"
        return f"<CheckpointInfo: {self.prefix}, {self.state}{at}>"

    @property
    def record(self) -> CommitRecord:
        """Its ``head``; an empty one where there is none."""
        return self.head or _UNRECORDED

    @property
    def metrics(self) -> Mapping[str, float]:
        """Those of its record."""
        return self.record.metrics

    def to_json(self) -> dict[str, Any]:
        """One of the ``checkpoints`` in the document of ``tfckpt list --json``."""
        record, utc, (shared, owner) = self.record, datetime.timezone.utc, self.shared
        return {
            "path": self.prefix,
            "number": self.number,
            "state": self.state,
            "time": datetime.datetime.fromtimestamp(self.time, utc).isoformat(),
            "step": record.step,
            "epoch": record.epoch,
            "metrics": dict(record.metrics),
            "metadata": dict(record.metadata),
            "best": bool(self.best_by),
            "finite": record.finite,
            "nbytes": self.nbytes,
            "shared": {"nbytes": shared, "path": owner} if shared else None,
            "problem": self.problem or None,
            "kept": None if self.kept is None else list(self.kept),
            "delete": self.delete,
            "next": self.next,
            "best_by": self.best_by or None,
            "preserved": record.number in record.preserved,
            "versions": dict(record.versions),
            "lineage": list(map(dataclasses.asdict, record.lineage)),
            "run": record.run,
        }


def candidates(
    directory: str, checkpoint_name: str | None = "ckpt", files: Files = LOCAL
) -> list[CheckpointInfo]:
    """The checkpoints of a directory, torn ones included, highest number first; [] where there are
    none.

    ``checkpoint_name`` is the part before the number, None for any. Names are not patterns:
    ``run[1]`` is the directory of that name.
    """
    return listed(directory, listing(directory, files), checkpoint_name)


def listed(
    directory: str, names: Iterable[str], checkpoint_name: str | None
) -> list[CheckpointInfo]:
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
            state = COMMITTED if base in committed else FOREIGN
        else:
            state = DAMAGED if base in recorded else TORN
        result.append(CheckpointInfo(directory + base, int(match["number"]), state))
    return sorted(result, key=operator.attrgetter("number", "prefix"), reverse=True)


def highest_number(names: Iterable[str], checkpoint_name: str = "ckpt", suffix: str = "") -> int:
    """The highest number in file names with this checkpoint name; 0 where there is none.

    Unfinished and orphaned files count, so a save with a higher number overwrites nothing: no
    index, orphaned data file, record or mark of an interrupted save. With ``suffix``, only names
    that end with it count.
    """
    end = rf"{re.escape(suffix)}\Z" if suffix else "(?![0-9])"
    used = re.compile(rf"{re.escape(checkpoint_name)}-([0-9]{{1,18}}){end}")
    matches = map(used.match, names)
    return max((int(match[1]) for match in matches if match), default=0)


def listing(directory: str, files: Files) -> list[str]:
    """The names in a directory; [] where there is none."""
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
