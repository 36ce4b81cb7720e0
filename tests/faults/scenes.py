"""What is under attack, in a child of a process that has imported TensorFlow; and the oracle.

A scene is judged by what plain TensorFlow and a next save find, however anything is written.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from faults.strikes import Strike

import tfckpt
from tfckpt.live import save

EVER = "partial files could not be removed either"
LAST = 9
FROZEN = 7.0  # of every step


class Subject:
    """Values that are all of one step: what tfckpt writes, and an iterator, which TensorFlow does.

    ``fixed``: it writes one name again and again; ``shares``: what is frozen is written once.
    """

    def __init__(self, run: Path | str, *, fixed: bool = False, shares: bool = False) -> None:
        self.run, self.fixed = str(run), fixed
        self._options = {"include": "trainable"} if shares else {}
        self.frozen = tf.Variable(tf.zeros(1000), trainable=False)
        self.values = [tf.Variable(tf.zeros(300)), tf.Variable(0, dtype=tf.int64)]
        objects = dict(zip(("weights", "count"), self.values, strict=True))
        if shares:
            objects["frozen"] = self.frozen
        if not fixed:
            self.values.append(iter(tf.data.Dataset.range(100)))
            objects["data"] = self.values[-1]
        self.checkpoint, self._at = tfckpt.Checkpoint(**objects), 0
        self.manager: Any = None

    def restore(self) -> int:
        """The step that all values are of, 0 for none."""
        if self.fixed:
            if Path(f"{self.run}/fixed.index").exists():
                return self.read(f"{self.run}/fixed")
        else:
            self.manager = tfckpt.CheckpointManager(self.checkpoint, self.run, 2, **self._options)
            self.manager.restore_or_initialize()
        return self._step()

    def read(self, path: str) -> int:
        """The step of one checkpoint."""
        self.checkpoint.read(path).expect_partial()
        return self._step()

    def _step(self) -> int:
        weights, count, *data = self.values
        found = {*np.unique(weights.numpy()), int(count), *(int(next(each)) for each in data)}
        assert len(found) == 1, f"values of several steps: {found}"
        frozen = {FROZEN if self._options and count else 0.0}
        assert {*np.unique(self.frozen.numpy())} == frozen, "frozen values of another step"
        self._at = int(count) + 1
        return int(count)

    def save(self, step: int) -> str:
        weights, count, *data = self.values
        weights.assign(tf.fill(300, float(step)))
        self.frozen.assign(tf.fill(1000, FROZEN))
        count.assign(step)
        for each in data:
            for _ in range(self._at, step):
                next(each)
        self._at = step
        if self.fixed:
            return str(self.checkpoint.write(f"{self.run}/fixed"))
        return str(self.manager.save())


def step_of(prefix: str) -> int:
    """The step of a checkpoint as plain TensorFlow reads it."""
    reader = tf.train.load_checkpoint(prefix)
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("weights/")]
    (found,) = {float(one) for name in names for one in np.unique(reader.get_tensor(name))}
    return int(found)


def stray(run: Path) -> list[str]:
    """Files and empty directories that belong to no whole checkpoint."""
    found = [one for one in run.rglob("*") if not one.is_dir() or not any(one.iterdir())]
    return without_checkpoints({str(one.relative_to(run)) for one in found})


def without_checkpoints(names: set[str]) -> list[str]:
    belongs = {"checkpoint", ".tfckpt.lock"}
    for base in (name.removesuffix(".index") for name in names if name.endswith(".index")):
        data = [name for name in names if name.startswith(f"{base}.data-")]
        if data and len(data) == int(data[0][-5:]):
            belongs |= {f"{base}.index", f"{base}.tfckpt.json", *data}
    return sorted(names - belongs)


class Training(NamedTuple):
    """A process that restores and saves, as those before it did.

    ``before`` is how many saves there were; ``fixed`` and ``shares`` are as of `Subject`.
    """

    before: int = 0
    fixed: bool = False
    shares: bool = False

    def subject(self, root: str) -> Subject:
        return Subject(f"{root}/run/inner", fixed=self.fixed, shares=self.shares)

    def lay(self, root: str) -> None:
        subject = self.subject(root)
        for step in range(1, self.before + 1):
            if step == 1:
                subject.restore()
            subject.save(step)

    def act(self, root: str, log: str, calm: Callable[[], list[int]]) -> tuple[list[int], str]:
        subject, new, wrong, counted = self.subject(root), self.before + 1, "", None
        try:
            subject.restore()
            counted = int(subject.checkpoint.save_counter)
            subject.save(new)
            calls = calm()
        except (OSError, tfckpt.TfckptError) as error:  # the process goes on
            calls = calm()
            if counted not in (None, int(subject.checkpoint.save_counter)):
                wrong = f"save_counter was {counted}. "
            fresh, expected = self.subject(root), {new - 1, new - 1 + (EVER in str(error))}
            if (found := fresh.restore()) not in expected:
                wrong += f"after {error}: {found} is restored. "
            (subject if subject.fixed or subject.manager else fresh).save(new)
            wrong += ", ".join(stray(Path(subject.run)))
        with Path(log).open("a") as file:
            file.write("saved\n")
        return calls, wrong

    def judge(self, root: str, told: str) -> str:
        run, new, wrong = f"{root}/run/inner", self.before + 1, list[str]()
        allowed = {new} if "saved" in told else {self.before, new}
        if is_local := "://" not in root:
            named = tf.train.latest_checkpoint(run)
            # a state file that could not be written names the one before, which is whole
            if named and step_of(named) not in {self.before, new}:
                wrong.append(f"{named} is named")
            if self.before and not self.fixed and "saved" not in told:
                assert step_of(f"{run}/ckpt-{self.before}") == self.before
        subject = self.subject(root)
        if (found := subject.restore()) not in allowed:
            wrong.append(f"{found} is restored, not one of {allowed}")
        saved = subject.save(LAST)
        if self.subject(root).restore() != LAST or (is_local and step_of(saved) != LAST):
            wrong.append(f"the next save is {saved}")
        if is_local and not self.fixed and tf.train.latest_checkpoint(run) != saved:
            wrong.append(f"TensorFlow is not told of {saved}")
        return ", ".join(wrong + (stray(Path(run)) if is_local else []))


SCENES = {
    "first save": Training(),
    "rotate": Training(2),
    "write over": Training(1, fixed=True),
    "share": Training(2, shares=True),
}


def lay(name: str, root: str) -> None:
    """In a child: the directory as it is found."""
    if "://" not in root:
        Path(root).mkdir()
    SCENES[name].lay(root)


def attempt(name: str, root: str, log: str, mode: int, n: int) -> dict[str, Any]:
    """In a child: the scene under a fault; how many calls there were, and what is wrong."""
    save.files_for = lambda _: 2  # a thread of its own for a part of what is saved
    calls, problems = SCENES[name].act(root, log, Strike(root, log, mode, n).calm)
    return {"calls": calls, "problems": problems}


def judge_many(cases: Sequence[Sequence[str]]) -> list[str]:
    return [judge(*case) for case in cases]


def judge(name: str, root: str, log: str) -> str:
    """In a child: what is wrong with a directory that nobody writes to any more."""
    try:
        found: str = SCENES[name].judge(root, Path(log).read_text())
    except Exception:
        return traceback.format_exc(limit=-3)
    return found
