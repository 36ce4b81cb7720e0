"""One damaged run, tried: restored, listed, saved into, restored again. Runs in a forked child.

The variables of a run encode the step and their own place, so that any other value is known. Beside
each run lies a directory that is none of its business.
"""

from __future__ import annotations

import functools
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

        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="head")])
        optimizer = keras.optimizers.SGD(0.5, momentum=0.5)
        optimizer.build(model.trainable_variables)
        tables = [tf.Variable(tf.zeros((4, 3))), tf.Variable(tf.zeros((4, 3)))]
        tables.append(tf.Variable(0, dtype=tf.int64))
        self.objects = {"model": model, "optimizer": optimizer}
        self.objects |= dict(zip(NAMES[-3:], tables, strict=True))
        self.variables = [*model.variables, *optimizer.variables, *tables]

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


def names_of(manager: Any) -> list[str]:
    return [Path(path).name for path in manager.checkpoints]


def make(place: str) -> None:
    """A run with three checkpoints, and a directory beside it that it must never touch."""
    manager = manager_of(Path(place, "run"))
    for step in STEPS:
        save(manager, step)
    victim = Path(place, "victim")
    (victim / "inner").mkdir(parents=True)
    data = "ckpt-3.data-00000-of-00001"
    for name in ("ckpt-1.index", "ckpt-3.index", data, "checkpoint", "inner/ckpt-1.index"):
        (victim / name).write_bytes(b"precious")


def seen(directory: Path) -> dict[str, Any]:
    """Every name below a directory: kind, time, content; links are not followed."""
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        plain = path.is_file() and not path.is_symlink()
        readable = plain and os.access(path, os.R_OK, effective_ids=True)
        content = path.read_bytes() if readable else None
        found[str(path.relative_to(directory))] = (status.st_mode, status.st_mtime_ns, content)
    return found


class _Said(logging.Handler):
    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage() + "\n"


def exercise(place: Path, max_to_keep: int | None = None) -> dict[str, Any]:
    """Restore, list, save, restore again: how that ``ended``, and its ``faults``.

    It is ``newest``, ``older`` (with a reason said), ``partial`` (each value that was not restored
    named), ``refused``, or ``silent``.
    """
    from absl import logging as absl_logging

    import tfckpt

    run, said = place / "run", _Said()
    before, outside = seen(run), {path.name: seen(path) for path in place.iterdir() if path != run}
    values().set(UNTOUCHED)
    absl_logging.get_absl_logger().addHandler(said)
    path, ended = None, "silent"
    try:
        manager = manager_of(run, max_to_keep)
        path = manager.restore_or_initialize()
    except tfckpt.TfckptError:
        ended, manager = "refused", manager_of(run, max_to_keep)
    absl_logging.get_absl_logger().removeHandler(said)
    if path is not None:
        ended = _restored(int(Path(path).name.rpartition("-")[2]), said.text)
    silent = f"silent: restored {path}, {values().steps()}; said: {said.text!r}"
    wrong = {
        silent: ended == "silent",
        "refused, and values have changed": ended == "refused" and values().step() != UNTOUCHED,
        **_saved(manager, run, before, path, max_to_keep),
    }
    after = {each.name: seen(each) for each in place.iterdir() if each != run}
    wrong["something outside the directory was touched"] = after != outside
    return {"ended": ended, "faults": [text for text, is_wrong in wrong.items() if is_wrong]}


def _restored(step: int, said: str) -> str:
    """How a restore ended that named a checkpoint: by the values, and by what was said."""
    others = [(name, its) for name, its in values().steps() if its != step]
    if others:
        told = all(its == UNTOUCHED and name in said for name, its in others)
        return "partial" if told else "silent"
    if step == STEPS[-1]:
        return "newest"
    return "older" if NEWEST in said else "silent"


def _saved(
    manager: Any, run: Path, before: dict[str, Any], path: str | None, max_to_keep: int | None
) -> dict[str, bool]:
    """What may be wrong with the next save and what it leaves, and whether it is."""
    import tensorflow as tf

    listed, latest = manager.checkpoints, manager.latest_checkpoint
    saved = save(manager, LATER)
    now, kept, state = seen(run), manager.checkpoints, run / "checkpoint"
    mine = Path(path or "nothing").name if max_to_keep else ""
    sound = [name for name in before if name not in OWN and mine in ("", name.split(".")[0])]
    changed = [name for name in sound if now.get(name) != before[name]]
    told: Any = tf.train.get_checkpoint_state(str(run)) if state.is_file() else None
    named = [*told.all_model_checkpoint_paths, told.model_checkpoint_path] if told else ["none"]
    untold = state.is_symlink() or not state.is_file()
    again = restored(run)
    return {
        f"latest is {latest}, listed are {listed}": latest != (listed[-1] if listed else None)
        or bool(path and path not in listed),
        f"saved as {saved}": int(saved.rpartition("-")[2]) <= STEPS[-1],
        f"the latest is not {saved}": manager.latest_checkpoint != saved or saved not in kept,
        f"changed or deleted: {changed}": bool(changed),
        f"too many are kept: {kept}": bool(max_to_keep and len(kept) > max_to_keep + 1),
        f"TensorFlow is told of {named}": not untold
        and (named[-1] != saved or any(Path(one).parent != run for one in named)),
        f"after {saved} was saved, {again} is restored": again != (Path(saved).name, LATER),
    }


def try_all(template: str, place: str, cases: list[list[Any]]) -> list[dict[str, Any]]:
    """How each of (kind, number, max_to_keep) ended; the last one printed is what aborts."""
    ended = []
    for kind, number, max_to_keep in cases:
        print(kind, number, flush=True)
        case = Path(place, f"{kind} {number}".replace(" ", "-"))
        shutil.copytree(template, case)
        damage(case / "run", kind, number)
        try:
            ended.append(exercise(case, max_to_keep))
        except Exception:
            faults = [traceback.format_exc(limit=-4)]
            ended.append({"ended": "error", "faults": faults})
        shutil.rmtree(case)
    return ended
