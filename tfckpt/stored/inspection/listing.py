"""Lists the checkpoints of a directory, with what is known about each without reading its values.

Beyond the file names (:mod:`tfckpt.stored.commits.discovery`) this includes whether index and data
files are sound, the content of the record, size and age.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
from typing import TYPE_CHECKING, Any

from tfckpt.errors import CheckpointError, UnsupportedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle, index_path
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.discovery import CheckpointKind, candidates
from tfckpt.stored.commits.record_file import parts
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.stored.io.explain import SHARD_OF_KERAS, SINGLE_FILES
from tfckpt.stored.io.files import LOCAL, Files, join

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfckpt.stored.commits.record_file import CommitRecord

_NO_INDEX = "has data files but no index, which was lost, not copied, or never written"


@dataclasses.dataclass(frozen=True, slots=True)
class ListedCheckpoint:
    """A checkpoint of a directory.

    Attributes:
        prefix: its path.
        number: None where its name has none.
        state: ``committed``, ``foreign``, ``uncommitted``, ``damaged`` or ``torn``.
        head: its record without values, where it can be read.
        nbytes: total size of its files.
        time: Unix time of the save, from the record or else from its newest file.
        problem: what is wrong with it; "" if nothing.
        best_by: the metric by which it is the best of its run; "" if it is not.
        kept: the retention rules that keep it; None where no rules were given.
        delete: whether these rules would delete it; None where none were given.
        next: whether they would after one more save; None where none were given.
    """

    prefix: str
    number: int | None
    state: str
    head: CommitRecord | None
    nbytes: int
    time: float
    problem: str = ""
    best_by: str = ""
    kept: tuple[str, ...] | None = None
    delete: bool | None = None
    next: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """One of the ``checkpoints`` in the document of ``tfckpt list --json``."""
        head, utc = self.head, datetime.timezone.utc
        return {
            "path": self.prefix,
            "number": self.number,
            "state": self.state,
            "time": datetime.datetime.fromtimestamp(self.time, utc).isoformat(),
            "step": head.step if head else None,
            "epoch": head.epoch if head else None,
            "metrics": dict(head.metrics) if head else {},
            "metadata": dict(head.metadata) if head else {},
            "best": bool(self.best_by),
            "finite": head.finite if head else None,
            "nbytes": self.nbytes,
            "problem": self.problem or None,
            "kept": None if self.kept is None else list(self.kept),
            "delete": self.delete,
            "next": self.next,
            "best_by": self.best_by or None,
            "preserved": bool(head and head.number in head.preserved),
            "versions": dict(head.versions) if head else {},
            "lineage": list(map(dataclasses.asdict, head.lineage)) if head else [],
            "run": head.run_first if head else None,
        }


def listing(directory: str, files: Files = LOCAL) -> list[ListedCheckpoint]:
    """The checkpoints of a directory, newest first, then those without a number."""
    names = _names(directory, files)
    numbered = candidates(directory, None, files)
    result = [
        _listed(candidate.prefix, candidate.number, candidate.kind, names, files)
        for candidate in numbered
    ]
    for path in without_number(directory, files):
        recorded = record_file.path_of(os.path.split(path)[1]) in names
        kind = CheckpointKind.COMMITTED if recorded else CheckpointKind.FOREIGN
        result.append(_listed(path, None, kind, names, files))
    return [one for one in result if not (one.problem and _is_gone(one.prefix, names, files))]


def _is_gone(prefix: str, names: set[str], files: Files) -> bool:
    """Whether a checkpoint was deleted after its directory was listed."""
    index = index_path(prefix)
    return os.path.split(index)[1] in names and not files.exists(index)


def without_number(directory: str, files: Files = LOCAL) -> list[str]:
    """The paths of unnumbered checkpoints in a directory, including Keras files."""
    names, numbered = _names(directory, files), candidates(directory, None, files)
    indexed = {index_path(os.path.split(one.prefix)[1]) for one in numbered}
    indices = [name.removesuffix(".index") for name in names - indexed if name.endswith(".index")]
    single = [name for name in names if name.endswith(SINGLE_FILES)]
    whole = [name for name in single if not SHARD_OF_KERAS.search(name)]
    return [join(directory, name) for name in sorted(indices) + sorted(whole)]


def _names(directory: str, files: Files) -> set[str]:
    try:
        return set(files.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _listed(
    prefix: str, number: int | None, kind: CheckpointKind, names: set[str], files: Files
) -> ListedCheckpoint:
    state, problem, readable, head = kind.value, "", True, None
    try:
        head = record_file.read_head(record_file.path_of(prefix), prefix, files)
        if kind in (CheckpointKind.TORN, CheckpointKind.DAMAGED):
            problem = _NO_INDEX
        elif head is None:
            with open_checkpoint(prefix, files=files) as stored:
                state = "uncommitted" if stored.kind == "uncommitted" else state
                problem = _missing(stored.values.missing_files)
        else:
            with Bundle.open(prefix, files) as bundle:
                problem = _missing(bundle.missing_files)
                if bundle.digest != head.index_sha256:  # another program has written over it
                    state, head = CheckpointKind.FOREIGN.value, None
    except UnsupportedCheckpointError as error:  # newer tfckpt, or unsupported format
        problem, readable = str(error), False
    except CheckpointError as error:
        problem = str(error)
    if problem and readable and kind is not CheckpointKind.TORN:
        state = CheckpointKind.DAMAGED.value
    sizes, times = [0], [0.0]
    for name in parts(prefix, names, files):
        with contextlib.suppress(OSError):  # it may have been deleted meanwhile
            nbytes, written = files.status(join(os.path.split(prefix)[0], name))
            sizes.append(nbytes)
            times.append(written)
    time = head.time if head else max(times)
    return ListedCheckpoint(prefix, number, state, head, sum(sizes), time, problem)


def _missing(paths: Iterable[str]) -> str:
    return "; ".join(f"{path}: the file is missing" for path in paths)
