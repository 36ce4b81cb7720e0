"""``tfckpt.verify``: every checksum of a checkpoint, or of all in a directory.

All faults are reported, not just the first, at which a restore stops. To find out what can still be
used, they are needed by value name; so where a checkpoint does not open, its index and its record
are still used to list and name its values.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from typing import TYPE_CHECKING, Any

from tfckpt.core.text import free_name
from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.bundles import keys
from tfckpt.stored.bundles.bundle import Bundle, index_path
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.discovery import COMMITTED, DAMAGED, FOREIGN, TORN, candidates
from tfckpt.stored.commits.record_file import MARK
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.stored.io.files import LOCAL, Files, files_of, join
from tfckpt.stored.io.state_file import STATE_FILE, read_state, write_state
from tfckpt.tools.find_checkpoint import checkpoints_in, is_checkpoint, path_of
from tfckpt.tools.inspection import silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfckpt.manager.retention import Decision
    from tfckpt.policy import Keep
    from tfckpt.stored.bundles.values import StoredValues
    from tfckpt.stored.commits.discovery import CheckpointInfo
    from tfckpt.tools.inspection import Progress

BATCH = 64 << 20  # bytes between two progress reports


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        file: the file with the fault.
        name: canonical name of the value; ``""`` where the fault is not about a single value.
        message: what is wrong, without file and name.
    """

    file: str
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}{f' (value {self.name!r})' if self.name else ''}: {self.message}"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a verification.

    Attributes:
        path: of the checkpoint.
        kind: of the checkpoint; ``""`` where it does not open.
        values: number of values checked.
        nbytes: their total size.
        faults: in the order of the values.
        damaged: whether the faults are damage, not just an unsupported format.
        moved_to: where it is now, if it was moved into quarantine; else ``""``.
    """

    path: str
    kind: str
    values: int
    nbytes: int
    faults: tuple[Fault, ...]
    damaged: bool = True
    moved_to: str = ""

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """One of the ``checkpoints`` in the document of ``tfckpt verify --json``."""
        return {
            "path": self.path,
            "kind": self.kind or None,
            "ok": self.ok,
            "values": self.values,
            "nbytes": self.nbytes,
            "faults": [dataclasses.asdict(fault) for fault in self.faults],
            "quarantine": self.moved_to or None,
        }


def verify_one(
    path: str, files: Files = LOCAL, advance: Callable[[int, int], None] = lambda done, of: None
) -> Verdict:
    """Check a whole checkpoint; ``advance`` receives the bytes checked and in total."""
    try:
        with open_checkpoint(path, files=files) as stored:
            names = {entry.key: entry.name for entry in stored.inventory.entries.values()}
            sizes = stored.values.sizes or {  # of a bundle also the graph and parts of iterators
                entry.key: entry.nbytes
                for entry in stored.inventory.entries.values()
                if entry.shape is not None
            }
            faults = _check(stored.values, stored.prefix, names, sizes, advance)
            return Verdict(path, stored.kind, len(sizes), sum(sizes.values()), tuple(faults))
    except UnsupportedCheckpointError as error:
        return Verdict(path, "", 0, 0, (_fault(error, path, ""),), damaged=False)
    except DamagedCheckpointError as error:
        return _of_what_does_not_open(path, files, error, advance)


def _check(
    values: StoredValues,
    path: str,
    names: Mapping[str, str],
    sizes: Mapping[str, int],
    advance: Callable[[int, int], None],
) -> list[Fault]:
    faults: list[Fault] = []
    done, total = 0, sum(sizes.values())
    advance(done, total)
    for batch in _batches(sizes):
        try:
            values.verify(batch)
        except CheckpointError as error:  # find out which of them
            batch_faults = [
                fault for key in batch if (fault := _fault_of(values, path, names, key))
            ]
            if not batch_faults and not isinstance(error, UnsupportedCheckpointError):
                batch_faults = [_fault(error, path, names.get(error.name, _plain(error.name)))]
            faults += batch_faults
        for key in batch:
            done += sizes[key]
            advance(done, total)
    return faults


def _fault_of(values: StoredValues, path: str, names: Mapping[str, str], key: str) -> Fault | None:
    try:
        values.verify([key])
    except UnsupportedCheckpointError:
        pass  # a dtype that cannot be read is not damage
    except CheckpointError as error:
        return _fault(error, path, names.get(key, _plain(key)))
    return None


def _batches(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Keys that are checked together, by several threads."""
    batch: list[str] = []
    nbytes = 0
    for key, size in sizes.items():
        batch.append(key)
        nbytes += size
        if nbytes >= BATCH:
            yield batch
            batch, nbytes = [], 0
    yield batch


def _of_what_does_not_open(
    path: str, files: Files, error: DamagedCheckpointError, advance: Callable[[int, int], None]
) -> Verdict:
    try:
        bundle = Bundle.open(path, files, whole=False)
    except CheckpointError:
        return Verdict(path, "", 0, 0, (_fault(error, path, error.name),))
    with bundle:
        names = record_file.names_of(path, files)
        sizes = bundle.sizes
        faults = _check(bundle, path, names, sizes, advance)
        if error.path not in {fault.file for fault in faults}:
            faults.insert(0, _fault(error, path, names.get(error.name, error.name)))
        return Verdict(path, "", len(sizes), sum(sizes.values()), tuple(faults))


def _plain(key: str) -> str:
    return "/".join(keys.edges(key)) if keys.ATTRIBUTES in key else key


def _fault(error: CheckpointError, path: str, name: str) -> Fault:
    return Fault(error.path or path, name, "\n".join(filter(None, (error.message, error.hint))))


def verify(
    source: str | os.PathLike[str], *, quarantine: bool = False, progress: Progress = silent
) -> tuple[Verdict, ...]:
    """Check every checksum, as ``tfckpt verify`` does. Does not import TensorFlow.

    Damage is no error here, but a verdict that is not ``ok``, with all its ``faults``.

    Args:
        source: the path of a checkpoint, or a directory, of which all are checked.
        quarantine: whether to move damaged ones into the subdirectory ``quarantine``.
        progress: as for :func:`tfckpt.inspect`.

    Returns:
        A verdict for each checkpoint, the newest first.

    Raises:
        CheckpointNotFoundError: there is no checkpoint.
        InUseError: a damaged one cannot be moved, since another process saves into its directory.
        SaveError: a link is in its place, or in that of the subdirectory.
        OSError: it cannot be moved for another reason.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> path = tfckpt.Checkpoint(model=model).save(tempfile.mkdtemp() + "/ckpt")
    >>> [verdict.ok for verdict in tfckpt.verify(path)]
    [True]
    """
    return tuple(verdicts(path_of(source), quarantine=quarantine, progress=progress))


def verdicts(
    path: str, *, quarantine: bool = False, progress: Progress = silent
) -> Iterator[Verdict]:
    """The same, each verdict as soon as it is known."""
    files = files_of(path)
    if quarantine:
        from tfckpt.stored.commits.commit import sweep

        directory = os.path.split(path)[0] if is_checkpoint(path) else path
        with contextlib.suppress(OSError):  # an error only where a checkpoint is to be moved
            sweep(directory, files)
    for verdict in _verdicts(path, progress):
        if quarantine and verdict.faults and verdict.damaged:
            yield dataclasses.replace(verdict, moved_to=move_away(verdict.path, files))
        else:
            yield verdict


def _verdicts(path: str, progress: Progress) -> Iterator[Verdict]:
    files, found = files_of(path), checkpoints_in(path)
    paths = [one.prefix for one in found]
    if not is_checkpoint(path):
        from tfckpt.tools.listing import without_number

        paths += without_number(path, files)
    by_prefix = {one.prefix: one for one in found}
    for number, one in enumerate(paths or [path]):
        if one in by_prefix and (fault := _missing_index(by_prefix[one])):
            yield fault
            continue
        position = f"{number + 1}/{len(paths)} " if len(paths) > 1 else ""
        try:
            with progress(f"{position}{one}") as advance:
                verdict = verify_one(one, files, advance)
        except CheckpointNotFoundError:
            if one not in by_prefix:
                raise
            continue  # it was deleted meanwhile
        if verdict.ok or one not in by_prefix or files.exists(index_path(one)):
            yield verdict


def _missing_index(candidate: CheckpointInfo) -> Verdict | None:
    """The verdict on a checkpoint that has no index, which needs no reading."""
    if candidate.state not in {TORN, DAMAGED}:
        return None
    message = "the index is missing: it was deleted, not copied, or never written"
    fault = Fault(f"{candidate.prefix}.index", "", message)
    return Verdict(candidate.prefix, "", 0, 0, (fault,))


def decided(path: str, name: str, rules: Sequence[Keep]) -> tuple[list[CheckpointInfo], Decision]:
    """What is in a directory, and what rules decide; if they delete any, the newest was read."""
    from tfckpt.manager.retention import decide_by_run, undamaged
    from tfckpt.tools.listing import listing, of_one_name

    files = files_of(path)
    found = listing(path, files)
    while True:
        _, rows = of_one_name(path, found, name)
        decision = decide_by_run(rows, rules)
        if not decision.delete:
            return found, decision
        newest = undamaged(rows)[-1].prefix
        if not (faults := verify_one(newest, files).faults):
            return found, decision
        problem = f"{faults[0].file}: {faults[0].message}"
        found = [
            dataclasses.replace(one, state=DAMAGED, problem=problem)
            if one.prefix == newest
            else one
            for one in found
        ]


def move_away(path: str, files: Files) -> str:
    """Move the files of a checkpoint into ``quarantine/NAME``, and return its path.

    The state file ceases to name the checkpoint before anything is moved; an interrupted move is
    completed by the next command or save.
    """
    from tfckpt.stored.commits import commit

    if not files.exists(index_path(path)):
        path = path.rstrip("/")  # a directory; the name of an index may be empty after the last /
    parent, name = os.path.split(path)
    commit.refuse_links(path, files)
    commit.claim(parent, None, files)
    _leave_out(parent, name, files)
    directory = join(parent, commit.QUARANTINE)
    target = free_name(name or "unnamed", lambda taken: files.exists(join(directory, taken)))
    return commit.move_away(path, target, files)


def _leave_out(parent: str, name: str, files: Files) -> None:
    """Take a checkpoint out of the state file, which goes if nothing is left to name."""
    path, state = join(parent, STATE_FILE), None
    with contextlib.suppress(CheckpointError):  # TensorFlow treats a damaged one as missing
        state = read_state(path, files)
    if state is None:
        return
    times = itertools.zip_longest(
        state.all_model_checkpoint_paths, state.all_model_checkpoint_timestamps
    )
    marked = {each.removesuffix(MARK) for each in files.listdir(parent) if each.endswith(MARK)}
    gone = {name, *marked}  # a store may hold what is half deleted
    left = [(named, time) for named, time in times if os.path.split(named)[1] not in gone]
    newest = state.model_checkpoint_path
    if os.path.split(newest)[1] in gone:
        newest = left[-1][0] if left else _newest_beside(parent, name, gone, files)
    elif len(left) == len(state.all_model_checkpoint_paths):
        return
    paths = [named for named, _ in left] or [newest]
    stamps = [time for _, time in left if time is not None]
    if newest:
        last_preserved = state.last_preserved_timestamp
        write_state(parent, files, paths, stamps, last_preserved, newest=newest)
    else:
        files.remove(path)
    files.fsync_dir(parent)


def _newest_beside(parent: str, name: str, gone: set[str], files: Files) -> str:
    """The newest other checkpoint that has an index and the same name but for the number."""
    base = name.rpartition("-")[0]
    for one in candidates(parent, base, files):
        if one.state in {COMMITTED, FOREIGN} and os.path.split(one.prefix)[1] not in gone:
            return os.path.split(one.prefix)[1]
    return ""
