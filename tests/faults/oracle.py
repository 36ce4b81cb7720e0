"""What must hold of a directory after a fault, asked by objects that know nothing of it.

Nothing is *unrecoverable*: a restore gives the last step that was acknowledged or one that was
being saved, with every value of that step; what else was acknowledged and is to be kept can be
read; one more save succeeds, and plain TensorFlow reads it. And there is no *debris* after it.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import tensorflow as tf
from faults.journal import Journal, State
from faults.subjects import Subject, listing, plain_step

_OURS = ("checkpoint", ".tfckpt.lock")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Text of what is wrong, "" where nothing is."""

    unrecoverable: str
    debris: str


def judge(
    library: str, directory: str, journal: str, max_to_keep: int, fixed: bool
) -> dict[str, str]:
    """In a child: the verdict on a directory that nobody writes to any more."""
    state = Journal(Path(journal)).state()
    try:
        subject = _recovered(library, directory, state, max_to_keep, fixed=fixed)
    except Exception as error:
        return dataclasses.asdict(Verdict(brief(error), ""))
    return dataclasses.asdict(Verdict("", debris(subject, fixed=fixed)))


def judge_many(cases: list[list[Any]]) -> list[dict[str, str]]:
    return [judge(*case) for case in cases]


def brief(error: BaseException) -> str:
    """What was raised and where, in a line or two."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " > ".join(f"{Path(at.filename).name}:{at.lineno}" for at in frames)
    return f"{type(error).__name__}: {error} ({places})"


def restored(library: str, directory: str, max_to_keep: int, *, fixed: bool) -> int | None:
    """What fresh objects get of a directory: a step, None where there is no checkpoint.

    Raises:
        AssertionError: values of several steps.
        Exception: of the library, which could not restore.
    """
    return _restore(Subject(library, directory), max_to_keep, fixed=fixed)


def _restore(subject: Subject, max_to_keep: int, *, fixed: bool) -> int | None:
    if not fixed:
        subject.open(max_to_keep)
        return subject.restore()
    try:
        return subject.read(Path(subject.fixed_prefix).name)
    except (FileNotFoundError, tf.errors.NotFoundError):
        return None


def _recovered(
    library: str, directory: str, state: State, max_to_keep: int, *, fixed: bool
) -> Subject:
    if library == "tfckpt" and (Path(directory) / "checkpoint").exists():
        found = tf.train.latest_checkpoint(directory)
        assert found is not None, "plain TensorFlow finds no checkpoint"
        assert plain_step(found) in state.ever, f"plain TensorFlow finds {found}"
    subject = Subject(library, directory)
    step = _restore(subject, max_to_keep, fixed=fixed)
    assert step in state.allowed, f"step {step} is restored, not one of {state.allowed}"
    if not fixed:
        for kept, name in state.kept(max_to_keep).items():
            assert Subject(library, directory).read(name) == kept, f"{name} is not step {kept}"
    following = max({0, *state.ever}) + 1
    if fixed:
        subject.write(following)
        newest = subject.fixed_prefix
    else:
        subject.save(following)
        newest = tf.train.latest_checkpoint(directory)
        assert newest == subject.manager.latest_checkpoint
        runs = Counter(run_of(library, path) for path in subject.manager.checkpoints)
        assert max(runs.values()) <= max_to_keep + 1  # and what was restored from
    assert plain_step(newest) == following
    return subject


def run_of(library: str, path: str) -> str:
    """Which run saved a checkpoint, which deletes no other's."""
    if library != "tfckpt":
        return ""
    import tfckpt

    record = tfckpt.inspect(path).record
    return "" if record is None else str(record.run)


def debris(subject: Subject, *, fixed: bool) -> str:
    """What is in the directory after a save and belongs to no whole checkpoint."""
    names = listing(subject.directory)
    prefixes = [subject.fixed_prefix] if fixed else subject.manager.checkpoints
    bases = [Path(prefix).name for prefix in prefixes]
    expected = {*_OURS}
    for base in bases:
        data = sorted(name for name in names if name.startswith(f"{base}.data-"))
        if not data or f"{base}.index" not in names or len(data) != int(data[0][-5:]):
            continue
        expected |= {*data, f"{base}.index"}
        if subject.library == "tfckpt":
            expected.add(f"{base}.tfckpt.json")
    return ", ".join(name for name in names if name not in expected)
