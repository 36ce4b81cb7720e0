"""``tfckpt.list_checkpoints``: what a directory has, the best of it, and what rules would keep."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tfckpt.core.text import preformatted
from tfckpt.errors import (
    ARGUMENTS,
    CheckpointError,
    CheckpointNotFoundError,
    PolicyError,
    Problem,
    UnsupportedCheckpointError,
)
from tfckpt.manager.retention import decide_by_run, following, ranked, undamaged
from tfckpt.stored.bundles.bundle import Bundle, index_path
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.discovery import (
    COMMITTED,
    DAMAGED,
    FOREIGN,
    TORN,
    UNCOMMITTED,
    CheckpointInfo,
    candidates,
    listed,
)
from tfckpt.stored.commits.record_file import parts_of
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.stored.io.explain import SHARD, SINGLE_FILES, look
from tfckpt.stored.io.files import LOCAL, Files, files_of, join
from tfckpt.tools.find_checkpoint import path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tfckpt.manager.retention import Decision
    from tfckpt.policy import Keep

_COMPLETE = (COMMITTED, FOREIGN)
_POLL = 1.0  # seconds between two looks for a newer checkpoint
_NO_INDEX = "has data files but no index, which was lost, not copied, or never written"


def listing(directory: str, files: Files = LOCAL) -> list[CheckpointInfo]:
    """The checkpoints of a directory, newest first, then those without a number."""
    names = _names(directory, files)
    row = partial(_listed, names=names, data=record_file.data_files(names), files=files)
    result = [row(one) for one in listed(directory, names, None)]
    for path in _without_number(directory, names):
        recorded = record_file.path_of(os.path.split(path)[1]) in names
        result.append(row(CheckpointInfo(path, None, COMMITTED if recorded else FOREIGN)))
    there = [one for one in result if not (one.problem and _is_gone(one.prefix, names, files))]
    return _counted_once(there)


def _counted_once(found: Sequence[CheckpointInfo]) -> list[CheckpointInfo]:
    """The same, where a file that several share counts for the oldest of them."""
    owners, counted = dict[str, str](), dict[str, CheckpointInfo]()
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


def freed_by(found: Iterable[CheckpointInfo], deleted: Collection[str]) -> int:
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
    one: CheckpointInfo, *, names: set[str], data: Mapping[str, list[str]], files: Files
) -> CheckpointInfo:
    prefix, state, problem, readable, head, recorded = one.prefix, one.state, "", True, None, None
    directory, name = os.path.split(prefix)
    try:
        head = recorded = record_file.read_head(prefix, files)
        if state in {TORN, DAMAGED}:
            problem = _NO_INDEX
        elif head is None:
            with open_checkpoint(prefix, files=files) as stored:
                state = UNCOMMITTED if stored.kind == UNCOMMITTED else state
                problem = _missing(stored.values.missing_files)
        else:
            lost = [join(directory, file) for file in head.files if file not in names]
            if record_file.index_digest(prefix, files) != head.index_sha256:
                with Bundle.open(prefix, files) as bundle:  # another program has written over it
                    lost = [*dict.fromkeys([*bundle.missing_files, *lost])]
                state, head = FOREIGN, None
            problem = _missing(lost)
    except UnsupportedCheckpointError as error:  # newer tfckpt, or unsupported format
        problem, readable = str(error), False
    except CheckpointError as error:
        problem = str(error)
    if problem and readable and one.state != TORN:
        state = DAMAGED
    sizes, times = dict[str, int](), [0.0]
    for part in parts_of(name, names, data.get(name, ()), recorded):
        with contextlib.suppress(OSError):  # it may have been deleted meanwhile
            nbytes, written = files.status(path := join(directory, part))
            sizes[files.identity(path)] = nbytes
            times.append(written)
    time, total = head.time if head else max(times), sum(sizes.values())
    return CheckpointInfo(prefix, one.number, state, head, total, time, problem, files=sizes)


def _missing(paths: Iterable[str]) -> str:
    return "; ".join(f"{path}: the file is missing" for path in paths)


class CheckpointList(tuple[CheckpointInfo, ...]):
    """The checkpoints of a directory; a notebook shows it as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<CheckpointList: {', '.join(os.path.split(one.prefix)[1] for one in self[:9])}>"

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
        _, rows = of_one_name(path, found, checkpoint_name)
        then = [following(saved)] if (saved := undamaged(rows)) else []
        deleted = set(decide_by_run([*rows, *then], rules).delete)
        found = [
            dataclasses.replace(one, next=one.prefix in deleted)
            for one in with_decision(found, decide_by_run(rows, rules))
        ]
    return CheckpointList(found)


def with_best(found: Sequence[CheckpointInfo]) -> list[CheckpointInfo]:
    """The same, with the best of the newest run marked, by the rule of its newest that has one."""
    recorded = [one for one in found if one.head is not None]
    own = [one for one in recorded if one.record.run == recorded[0].record.run]
    best_by = next((one.record.best_by for one in own if one.record.best_by), None)
    if best_by is None:
        return list(found)
    metric, mode = best_by
    best = ranked(own, 1, metric, greatest=mode == "max")
    return [dataclasses.replace(one, best_by=metric) if one in best else one for one in found]


def with_decision(found: Sequence[CheckpointInfo], decision: Decision) -> list[CheckpointInfo]:
    """The same, each with what retention rules decide about it."""
    deleted = set(decision.delete)
    return [
        dataclasses.replace(
            one, kept=tuple(decision.kept.get(one.prefix, ())), delete=one.prefix in deleted
        )
        for one in found
    ]


def of_one_name(
    path: str, found: Sequence[CheckpointInfo], name: str | None
) -> tuple[str, list[CheckpointInfo]]:
    """The name of the checkpoints that rules are for, and those of that name."""
    numbered = [one for one in found if one.number is not None]
    names = sorted({_name(one) for one in numbered if one.state == COMMITTED})
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
    name = name or names[0]
    return name, [one for one in numbered if _name(one) == name]


def _rules(keep: Iterable[Keep | Mapping[str, Any]]) -> tuple[Keep, ...]:
    if not (given := list(keep)):
        return ()
    from tfckpt.manager.arguments import rules

    try:
        return rules(None, None, given)
    except ValueError as error:
        raise PolicyError(ARGUMENTS, [Problem(str(error))]) from None


def _name(checkpoint: CheckpointInfo) -> str:
    return os.path.split(checkpoint.prefix)[1].rpartition("-")[0]


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str],
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """The newest checkpoint of a directory each time that there is a newer one, for an evaluator.

    As ``tf.train.checkpoints_iterator``, but the directory itself is asked, not the file
    ``checkpoint`` in it, and only what is complete is yielded: a save that has not ended, or was
    killed, is not.

    Args:
        checkpoint_dir: the directory, or its URL; it may not be there yet.
        min_interval_secs: seconds between two checkpoints at least.
        timeout: seconds to wait for a newer one; None waits for ever.
        timeout_fn: called after a timeout, and after each checkpoint; the iterator ends if it
            returns True. Without it, a timeout ends the iterator.

    >>> import tempfile, tensorflow as tf, tfckpt
    >>> directory = tempfile.mkdtemp()
    >>> manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(a=tf.Variable(0)), directory, 3)
    >>> _ = manager.save(), manager.save()
    >>> [path[-6:] for path in tfckpt.checkpoints_iterator(directory, timeout=0)]
    ['ckpt-2']
    """
    directory = path_of(checkpoint_dir)
    files, newest = files_of(directory), ""
    while True:
        begun = time.monotonic()
        found = _newest(directory, files)
        while found in ("", newest) and (
            timeout is None or (left := begun + timeout - time.monotonic()) > 0
        ):
            time.sleep(_POLL if timeout is None else min(_POLL, left))
            found = _newest(directory, files)
        if found not in ("", newest):
            begun, newest = time.monotonic(), found
            yield newest
            time.sleep(max(0, begun + min_interval_secs - time.monotonic()))
        elif timeout_fn is None:
            return
        if timeout_fn is not None and timeout_fn():
            return


def _newest(directory: str, files: Files) -> str:
    complete = (one for one in candidates(directory, None, files) if one.state in _COMPLETE)
    return next((one.prefix for one in complete), "")
