"""``tfckpt.list_checkpoints``: what a directory has, the best of it, and what rules would keep."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import operator
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.text import preformatted
from tfckpt.errors import (
    ARGUMENTS,
    CheckpointError,
    CheckpointNotFoundError,
    PolicyError,
    Problem,
    UnsupportedCheckpointError,
)
from tfckpt.manager.retention import SavedCheckpoint, decide, ranked, united
from tfckpt.stored.bundles.bundle import Bundle, index_path
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.discovery import CheckpointKind, listed
from tfckpt.stored.commits.record_file import parts_of
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.stored.io.explain import SHARD, SINGLE_FILES, look
from tfckpt.stored.io.files import LOCAL, Files, files_of, join
from tfckpt.tools.find_checkpoint import path_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tfckpt.manager.directory import Directory
    from tfckpt.manager.retention import Decision
    from tfckpt.policy import Keep
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
    head: CommitRecord | None
    nbytes: int
    time: float
    problem: str = ""
    best_by: str = ""
    kept: tuple[str, ...] | None = None
    delete: bool | None = None
    next: bool | None = None
    files: Mapping[str, int] = dataclasses.field(default_factory=dict, repr=False)
    shared: tuple[int, str] = (0, "")

    def to_json(self) -> dict[str, Any]:
        """One of the ``checkpoints`` in the document of ``tfckpt list --json``."""
        head, utc, (shared, owner) = self.head, datetime.timezone.utc, self.shared
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
            "shared": {"nbytes": shared, "path": owner} if shared else None,
            "problem": self.problem or None,
            "kept": None if self.kept is None else list(self.kept),
            "delete": self.delete,
            "next": self.next,
            "best_by": self.best_by or None,
            "preserved": bool(head and head.number in head.preserved),
            "versions": dict(head.versions) if head else {},
            "lineage": list(map(dataclasses.asdict, head.lineage)) if head else [],
            "run": head.run if head else None,
        }


def listing(directory: str, files: Files = LOCAL) -> list[ListedCheckpoint]:
    """The checkpoints of a directory, newest first, then those without a number."""
    names = _names(directory, files)
    row = partial(_listed, names=names, data=record_file.data_files(names), files=files)
    result = [row(prefix, number, kind) for number, prefix, kind in listed(directory, names, None)]
    for path in _without_number(directory, names):
        recorded = record_file.path_of(os.path.split(path)[1]) in names
        kind = CheckpointKind.COMMITTED if recorded else CheckpointKind.FOREIGN
        result.append(row(path, None, kind))
    there = [one for one in result if not (one.problem and _is_gone(one.prefix, names, files))]
    return _counted_once(there)


def _counted_once(found: Sequence[ListedCheckpoint]) -> list[ListedCheckpoint]:
    """The same, where a file that several share counts for the oldest of them."""
    owners, counted = dict[str, str](), dict[str, ListedCheckpoint]()
    for one in sorted(found, key=lambda one: (one.number is None, one.number)):
        shared = [file for file in one.files if file in owners]
        if shared:
            nbytes = sum(one.files[file] for file in shared)
            of = nbytes, owners[shared[0]]
            one = dataclasses.replace(one, nbytes=one.nbytes - nbytes, shared=of)  # noqa: PLW2901
        for file in one.files:
            owners.setdefault(file, one.prefix)
        counted[one.prefix] = one
    return [counted[one.prefix] for one in found]


def freed_by(found: Iterable[ListedCheckpoint], deleted: Collection[str]) -> int:
    """How many bytes a deletion frees: of files that no other checkpoint has."""
    kept, gone = dict[str, int](), dict[str, int]()
    for one in found:
        (gone if one.prefix in deleted else kept).update(one.files)
    return sum(nbytes for file, nbytes in gone.items() if file not in kept)


def _is_gone(prefix: str, names: set[str], files: Files) -> bool:
    """Whether a checkpoint was deleted after its directory was listed."""
    index = index_path(prefix)
    return os.path.split(index)[1] in names and not files.exists(index)


def without_number(directory: str, files: Files = LOCAL) -> list[str]:
    """The paths of unnumbered checkpoints in a directory, including Keras files."""
    return _without_number(directory, _names(directory, files))


def _without_number(directory: str, names: set[str]) -> list[str]:
    numbered = listed(directory, names, None)
    indexed = {index_path(os.path.split(one.prefix)[1]) for one in numbered}
    indices = [name.removesuffix(".index") for name in names - indexed if name.endswith(".index")]
    single = [name for name in names if name.endswith(SINGLE_FILES)]
    whole = [name for name in single if not SHARD.search(name)]
    return [join(directory, name) for name in sorted(indices) + sorted(whole)]


def _names(directory: str, files: Files) -> set[str]:
    try:
        return set(files.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _listed(
    prefix: str,
    number: int | None,
    kind: CheckpointKind,
    *,
    names: set[str],
    data: Mapping[str, list[str]],
    files: Files,
) -> ListedCheckpoint:
    state, problem, readable, head, recorded = kind.value, "", True, None, None
    directory, name = os.path.split(prefix)
    try:
        head = recorded = record_file.read_head(prefix, files)
        if kind in (CheckpointKind.TORN, CheckpointKind.DAMAGED):
            problem = _NO_INDEX
        elif head is None:
            with open_checkpoint(prefix, files=files) as stored:
                state = "uncommitted" if stored.kind == "uncommitted" else state
                problem = _missing(stored.values.missing_files)
        else:
            with Bundle.open(prefix, files) as bundle:
                lost = (join(directory, file) for file in head.files if file not in names)
                problem = _missing(dict.fromkeys([*bundle.missing_files, *lost]))
                if bundle.digest != head.index_sha256:  # another program has written over it
                    state, head = CheckpointKind.FOREIGN.value, None
    except UnsupportedCheckpointError as error:  # newer tfckpt, or unsupported format
        problem, readable = str(error), False
    except CheckpointError as error:
        problem = str(error)
    if problem and readable and kind is not CheckpointKind.TORN:
        state = CheckpointKind.DAMAGED.value
    sizes, times = dict[str, int](), [0.0]
    for part in parts_of(name, names, data.get(name, ()), recorded):
        with contextlib.suppress(OSError):  # it may have been deleted meanwhile
            nbytes, written = files.status(path := join(directory, part))
            sizes[files.identity(path)] = nbytes
            times.append(written)
    time, total = head.time if head else max(times), sum(sizes.values())
    return ListedCheckpoint(prefix, number, state, head, total, time, problem, files=sizes)


def _missing(paths: Iterable[str]) -> str:
    return "; ".join(f"{path}: the file is missing" for path in paths)


class CheckpointList(tuple["ListedCheckpoint", ...]):
    """The checkpoints of a directory; a notebook shows it as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        from tfckpt.tools.result_texts import listing_text

        return listing_text(self)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def list_checkpoints(
    directory: str | os.PathLike[str],
    *,
    keep: Iterable[Keep | Mapping[str, Any]] = (),
    checkpoint_name: str | None = None,
) -> CheckpointList:
    """The checkpoints of a directory, as ``tfckpt list`` shows them. Does not import TensorFlow.

    Args:
        directory: where they are.
        keep: retention rules, as in a config: ``[{"latest": 3}]``. Each row then says by which of
            them it is ``kept``, or that they would ``delete`` it; nothing is deleted here.
        checkpoint_name: the name of those that the rules are for, where the directory has several.

    Returns:
        A tuple: the numbered ones, newest first, then those without a number. One that is damaged
        has a ``problem``.

    Raises:
        CheckpointNotFoundError: there is none.
        PolicyError: a rule is not valid, or the directory has checkpoints of several names.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> directory = tempfile.mkdtemp()
    >>> manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), directory, None)
    >>> paths = [manager.save(), manager.save()]
    >>> rows = tfckpt.list_checkpoints(directory, keep=[{"latest": 1}])
    >>> [(row.number, row.state, row.delete) for row in rows]
    [(2, 'committed', False), (1, 'committed', True)]
    """
    path, found = path_of(directory), list[Any]()
    files = files_of(path)
    with contextlib.suppress(CheckpointNotFoundError):  # the path is a file
        found = listing(path, files)
    if not found:
        nothing = look(path, files)
        raise CheckpointNotFoundError(f"no checkpoint in {path}", hint="\n  ".join(nothing.lines))
    found = with_best(found)
    if rules := _rules(keep):
        undamaged = undamaged_of(path, found, checkpoint_name)
        deleted = set(undamaged.decide(rules, one_more=True).delete)
        found = [
            dataclasses.replace(one, next=one.prefix in deleted)
            for one in with_decision(found, undamaged.decide(rules))
        ]
    return CheckpointList(found)


def with_best(found: Sequence[ListedCheckpoint]) -> list[ListedCheckpoint]:
    """The same, with the best of the newest run marked, by the rule of its newest that has one."""
    heads = {one.prefix: one.head for one in found if one.head is not None}
    run = next((head.run for head in heads.values()), None)
    heads = {prefix: head for prefix, head in heads.items() if head.run == run}
    best_by = next((head.best_by for head in heads.values() if head.best_by), None)
    if best_by is None:
        return list(found)
    saved = [SavedCheckpoint.of(prefix, head.number, head) for prefix, head in heads.items()]
    metric, mode = best_by
    best = [one.prefix for one in ranked(saved, 1, metric, greatest=mode == "max")]
    return [
        dataclasses.replace(one, best_by=metric) if one.prefix in best else one for one in found
    ]


def with_decision(found: Sequence[ListedCheckpoint], decision: Decision) -> list[ListedCheckpoint]:
    """The same, each with what retention rules decide about it."""
    deleted = set(decision.delete)
    return [
        dataclasses.replace(
            one, kept=tuple(decision.kept.get(one.prefix, ())), delete=one.prefix in deleted
        )
        for one in found
    ]


class Undamaged(NamedTuple):
    """The checkpoints of a directory that rules decide about.

    Attributes:
        directory: where they are.
        saved: those that are whole, the oldest first.
        newest: the id of each run → the record of its newest checkpoint.
    """

    directory: Directory
    saved: Sequence[SavedCheckpoint]
    newest: Mapping[str | None, CommitRecord]

    def decide(self, rules: Sequence[Keep], *, one_more: bool = False) -> Decision:
        """What the rules decide about each run; with ``one_more``, after another save of the last.

        Its metrics are unknown.
        """
        saved = [*self.saved, _after(self.saved)] if one_more and self.saved else self.saved
        runs = dict[str | None, list[SavedCheckpoint]]()
        for one in saved:
            runs.setdefault(one.run, []).append(one)
        decided = []
        for run, own in runs.items():
            began, preserved = self.newest[run].run_began, self.newest[run].preserved
            decided.append(decide(own, rules, anchor=began or time.time(), preserved=preserved))
        return united(decided, saved)


def undamaged_of(path: str, found: Sequence[ListedCheckpoint], name: str | None) -> Undamaged:
    """The undamaged ones of the checkpoints that were found in a directory."""
    from tfckpt.manager.directory import Directory

    numbered = [one for one in found if one.number is not None]
    names = sorted({_name(one) for one in numbered if one.state == CheckpointKind.COMMITTED})
    if not names:
        message = "has no checkpoint that tfckpt committed"
        hint = "retention rules never delete what other software wrote" if found else ""
        raise CheckpointNotFoundError(message, path=path, hint=hint)
    if name is None and len(names) > 1:
        message = f"{path} has checkpoints named {' and '.join(names)}"
        hint = "select one with `checkpoint_name`"
        raise PolicyError(ARGUMENTS, [Problem(message, hint=hint)])
    if name is not None and name not in names:
        message = f"{path} has no checkpoints named {name}; it has {' and '.join(names)}"
        raise PolicyError(ARGUMENTS, [Problem(message)])
    name, saved = name or names[0], list[SavedCheckpoint]()
    newest: dict[str | None, CommitRecord] = {}
    for one in reversed(numbered):
        if one.head is not None and one.number is not None and _name(one) == name:
            newest[one.head.run] = one.head
            if one.state == CheckpointKind.COMMITTED and not one.problem:
                saved.append(SavedCheckpoint.of(one.prefix, one.number, one.head))
    return Undamaged(Directory(path, name, files_of(path)), saved, newest)


def _after(saved: Sequence[SavedCheckpoint]) -> SavedCheckpoint:
    """The save that follows, as far from the last one as that is from the one before."""
    ordered = sorted(saved, key=operator.attrgetter("number"))
    before, last = ordered[-2:] if len(ordered) > 1 else (ordered[0], ordered[0])
    step = None
    if last.step is not None and before.step is not None:
        step = last.step + max(last.step - before.step, 1)
    return SavedCheckpoint(
        prefix="",
        number=last.number + 1,
        time=last.time + max(last.time - before.time, 0.0),
        step=step,
        metrics={},
        finite=last.finite,
        run=last.run,
    )


def _rules(keep: Iterable[Keep | Mapping[str, Any]]) -> tuple[Keep, ...]:
    if not (given := list(keep)):
        return ()
    from tfckpt.manager.arguments import rules

    try:
        return rules(None, None, given)
    except ValueError as error:
        raise PolicyError(ARGUMENTS, [Problem(str(error))]) from None


def _name(checkpoint: ListedCheckpoint) -> str:
    return os.path.split(checkpoint.prefix)[1].rpartition("-")[0]
