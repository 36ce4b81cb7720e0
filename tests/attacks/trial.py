"""One damaged run, tried: restored, listed, saved into, restored again. Runs in a forked child.

The variables of a run encode the step and their own place, so that a value that was swapped, mixed
or left as it was is told from the right one. Beside each run lies a directory that is none of its
business; content, times and names of everything there are compared before and after.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import shutil
import traceback
from pathlib import Path
from typing import Any

from attacks.damage import NEWEST, damage

STEPS = (1, 2, 3)
UNTOUCHED = 0
OWN = ("checkpoint", ".tfckpt.lock")  # what every writer writes anew
LATER = 9
NOBODY = 65534
NAMES = (
    "model/head/kernel",
    "model/head/bias",
    "optimizer/iterations",
    "optimizer/learning_rate",
    "optimizer/momentum/head/kernel",
    "optimizer/momentum/head/bias",
    "first_table",
    "second_table",
    "train_step",
)


class Values:
    """What is saved: a small model with its optimizer, a table of weights, a step."""

    def __init__(self) -> None:
        import keras
        import tensorflow as tf

        self.model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="head")])
        self.optimizer = keras.optimizers.SGD(0.5, momentum=0.5)
        self.optimizer.build(self.model.trainable_variables)
        self.objects = {
            "model": self.model,
            "optimizer": self.optimizer,
            "first_table": tf.Variable(tf.zeros((4, 3))),
            "second_table": tf.Variable(tf.zeros((4, 3))),
            "train_step": tf.Variable(0, dtype=tf.int64),
        }
        self.variables = [
            *self.model.variables,
            *self.optimizer.variables,
            *(self.objects[name] for name in ("first_table", "second_table", "train_step")),
        ]

    def set(self, step: int) -> None:
        import tensorflow as tf

        for place, variable in enumerate(self.variables):
            variable.assign(tf.cast(tf.fill(variable.shape, 100 * step + place), variable.dtype))

    def step(self) -> int | None:
        """The one step that all values are of; None where they are not."""
        steps = {step for _, step in self.steps()}
        return steps.pop() if len(steps) == 1 else None

    def steps(self) -> list[tuple[str, int | None]]:
        """The canonical name of each variable, with the step that all of its elements are of."""
        import numpy as np

        found = []
        for place, (name, variable) in enumerate(zip(NAMES, self.variables, strict=True)):
            elements = {float(one) - place for one in np.ravel(variable.numpy())}
            step = elements.pop() / 100 if len(elements) == 1 else None
            found.append((name, int(step) if step in range(1000) else None))
        return found


@functools.cache
def values() -> Values:
    """Built once per process; what is tried anew is the checkpoint and its manager."""
    return Values()


def manager_of(
    directory: str | Path, max_to_keep: int | None = None, *, durable: bool = False, **more: Any
) -> Any:
    """A new one, of a new checkpoint; it waits for no disk, since no power is cut here."""
    import tfckpt

    checkpoint = tfckpt.Checkpoint(**values().objects)
    return tfckpt.CheckpointManager(
        checkpoint, str(directory), max_to_keep, durable=durable, **more
    )


def save(manager: Any, step: int) -> str:
    values().set(step)
    path = manager.save()
    assert path is not None
    return path


def restored(directory: str | Path, **more: Any) -> tuple[str, int | None]:
    """What a new manager restores there: the checkpoint's name, and the step of all values."""
    values().set(UNTOUCHED)
    path = manager_of(directory, **more).restore_or_initialize()
    return Path(path).name, values().step()


def plain_manager_of(directory: str | Path, max_to_keep: int | None = None) -> Any:
    import tensorflow as tf

    checkpoint = tf.train.Checkpoint(**values().objects)
    return tf.train.CheckpointManager(checkpoint, str(directory), max_to_keep)


def make(place: str, plain: bool = False) -> None:
    """A run with three checkpoints, and a directory beside it that it must never touch."""
    manager = (plain_manager_of if plain else manager_of)(Path(place, "run"))
    for step in STEPS:
        save(manager, step)
    make_victim(Path(place, "victim"))


def make_victim(victim: Path) -> None:
    victim.mkdir()
    for name in ("ckpt-1.index", "ckpt-3.index", "ckpt-3.data-00000-of-00001", "checkpoint"):
        (victim / name).write_bytes(b"precious")
    (victim / "inner").mkdir()
    (victim / "inner" / "ckpt-1.index").write_bytes(b"precious")


def seen(directory: Path) -> dict[str, Any]:
    """Every name below a directory: kind, time, content; links are not followed."""
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        plain = (
            path.is_file()
            and not path.is_symlink()
            and os.access(path, os.R_OK, effective_ids=True)
        )
        content = path.read_bytes() if plain else None
        found[str(path.relative_to(directory))] = (status.st_mode, status.st_mtime_ns, content)
    return found


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage() + "\n"


def exercise(place: Path, max_to_keep: int | None = None, **more: Any) -> dict[str, Any]:
    """Restore, list, save, restore again.

    Returns:
        ``ended``: ``newest``, ``older`` (with a reason said), ``partial`` (each value that was
        not restored named), ``refused``, or ``silent``; the ``reason``; and ``faults``, everything
        that is not as it must be.
    """
    from absl import logging as absl_logging

    import tfckpt

    run, victim = place / "run", place / "victim"
    before, beside = seen(run), seen(victim)
    names_above = {path.name for path in place.iterdir()}
    faults: list[str] = []
    said = _Said()
    absl_logging.get_absl_logger().addHandler(said)
    values().set(UNTOUCHED)
    path, reason, ended = None, "", "silent"
    try:
        manager = manager_of(run, max_to_keep, **more)
        path = manager.restore_or_initialize()
    except tfckpt.TfckptError as error:
        ended, reason = "refused", str(error)
        if values().step() != UNTOUCHED:
            faults.append("refused, and values have changed")
    finally:
        absl_logging.get_absl_logger().removeHandler(said)
    if path is not None:
        ended, reason = _restored(int(Path(path).name.rpartition("-")[2]), said.text)
    if ended == "silent":
        faults.append(f"silent: restored {path}, {values().steps()}; said: {said.text!r}")
    manager = manager_of(run, max_to_keep, **more) if ended == "refused" else manager
    faults += _saved(manager, run, before, path, max_to_keep)
    if seen(victim) != beside or {path.name for path in place.iterdir()} != names_above:
        faults.append("something outside the directory was touched")
    return {"ended": ended, "reason": reason, "faults": faults}


def _restored(step: int, said: str) -> tuple[str, str]:
    """How a restore ended that named a checkpoint: by the values, and by what was said."""
    others = [(name, its) for name, its in values().steps() if its != step]
    if others:
        told = all(its == UNTOUCHED and name in said for name, its in others)
        return ("partial", said) if told else ("silent", "")
    if step == STEPS[-1]:
        return "newest", ""
    return ("older", said) if NEWEST in said else ("silent", "")


def _saved(
    manager: Any,
    run: Path,
    before: dict[str, Any],
    path: str | None,
    max_to_keep: int | None,
) -> list[str]:
    """What is wrong with the next save and what it leaves."""
    faults = []
    listed, latest = manager.checkpoints, manager.latest_checkpoint
    if latest != (listed[-1] if listed else None) or (path and path not in listed):
        faults.append(f"latest is {latest}, listed are {listed}")
    saved = save(manager, LATER)
    if int(Path(saved).name.rpartition("-")[2]) <= STEPS[-1]:
        faults.append(f"saved as {saved}")
    if manager.latest_checkpoint != saved or saved not in manager.checkpoints:
        faults.append(f"{saved} was saved, the latest is {manager.latest_checkpoint}")
    kept = None if max_to_keep is None else Path(path or "nothing").name
    now = seen(run)
    for name, content in before.items():
        of_one_kept = kept is None or name.split(".")[0] == kept
        if name not in OWN and of_one_kept and now.get(name) != content:
            faults.append(f"{name} was changed or deleted")
    if max_to_keep and len(manager.checkpoints) > max_to_keep + 1:
        faults.append(f"too many are kept: {manager.checkpoints}")
    faults += _state_file(run, saved)
    again = restored(run)
    if again != (Path(saved).name, LATER):
        faults.append(f"after {saved} was saved, {again} is restored")
    return faults


def _state_file(run: Path, saved: str) -> list[str]:
    """What TensorFlow's tools are told, where the state file could be written at all."""
    import tensorflow as tf

    path = run / "checkpoint"
    if path.is_symlink() or not path.is_file():
        return []
    told = tf.train.get_checkpoint_state(str(run))
    if told is None or told.model_checkpoint_path != saved:
        return [f"TensorFlow is told of {told}"]
    outside = [one for one in told.all_model_checkpoint_paths if Path(one).parent != run]
    return [f"TensorFlow is told of {outside}"] if outside else []


def try_batch(template: str, place: str, cases: list[list[Any]], progress: str) -> None:
    """Cases are (kind, number, max_to_keep); a line per finished case is added to ``progress``."""
    for kind, number, max_to_keep in cases:
        case = Path(place, f"{kind} {number}".replace(" ", "-"))
        shutil.copytree(template, case)
        damage(case / "run", kind, number)
        try:
            found = exercise(case, max_to_keep)
        except Exception:
            found = {"ended": "error", "reason": "", "faults": [traceback.format_exc(limit=-4)]}
        with Path(progress).open("a") as file:
            file.write(json.dumps(found) + "\n")
        shutil.rmtree(case)


def try_unreadable(template: str, place: str) -> Any:
    """The state file may not be read; root, who may read everything, becomes somebody else."""
    case = Path(place, "case")
    shutil.copytree(template, case)
    exercise(case)  # loads what the user whom root becomes might not be able to load
    shutil.rmtree(case)
    shutil.copytree(template, case)
    state = case / "run" / "checkpoint"
    state.chmod(0)
    if os.geteuid() == 0:
        for path in (Path(place), case, *case.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
    assert not os.access(state, os.R_OK, effective_ids=True)
    return exercise(case)


def try_plain(template: str, place: str, cases: list[list[Any]]) -> list[str]:
    """What plain TensorFlow makes of the same: ``restored``, ``fresh``, or the error."""
    ended = []
    for kind, number, _ in cases:
        case = Path(place, f"{kind} {number}".replace(" ", "-"))
        shutil.copytree(template, case)
        damage(case / "run", kind, number)
        values().set(UNTOUCHED)
        try:
            path = plain_manager_of(case / "run").restore_or_initialize()
            ended.append("restored" if path else "fresh")
        except Exception as error:
            ended.append(type(error).__name__)
        shutil.rmtree(case)
    return ended
