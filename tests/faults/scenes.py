"""What is under attack, in a child of a process that has imported TensorFlow; and the oracle.

A scene lays a directory, saves in it, and is judged by what plain TensorFlow and a next save find
there. The oracle does not know how anything is written.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
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

    Args:
        run: the directory of its checkpoints.
        fixed: whether it writes one name again and again.
        shares: whether what is frozen is written once.
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
    names = {str(one.relative_to(run)) for one in found}
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

    def subject(self, root: Path) -> Subject:
        return Subject(root / "run" / "inner", fixed=self.fixed, shares=self.shares)

    def lay(self, root: Path) -> None:
        subject = self.subject(root)
        for step in range(1, self.before + 1):
            if step == 1:
                subject.restore()
            subject.save(step)

    def act(self, root: Path, log: Path, strike: Strike) -> tuple[list[int], str]:
        subject, new, wrong, counted = self.subject(root), self.before + 1, "", None
        try:
            subject.restore()
            counted = int(subject.checkpoint.save_counter)
            subject.save(new)
            calls = strike.calm()
        except (OSError, tfckpt.TfckptError) as error:  # the process goes on
            calls = strike.calm()
            if counted not in (None, int(subject.checkpoint.save_counter)):
                wrong = f"save_counter was {counted}. "
            fresh, expected = self.subject(root), {new - 1, new - 1 + (EVER in str(error))}
            if (found := fresh.restore()) not in expected:
                wrong += f"after {error}: {found} is restored. "
            (subject if subject.fixed or subject.manager else fresh).save(new)
            wrong += ", ".join(stray(Path(subject.run)))
        with log.open("a") as file:
            file.write("saved\n")
        return calls, wrong

    def judge(self, root: Path, told: str) -> str:
        run, new = root / "run" / "inner", self.before + 1
        allowed = {new} if "saved" in told else {self.before, new}
        named = tf.train.latest_checkpoint(str(run))
        # a state file that could not be written names the one before, which is whole
        wrong = [] if not named or step_of(named) in {self.before, new} else [f"{named} is named"]
        if self.before and not self.fixed and "saved" not in told:
            assert step_of(str(run / f"ckpt-{self.before}")) == self.before
        subject = self.subject(root)
        if (found := subject.restore()) not in allowed:
            wrong.append(f"{found} is restored, not one of {allowed}")
        saved = subject.save(LAST)
        if step_of(saved) != LAST or (not self.fixed and tf.train.latest_checkpoint(run) != saved):
            wrong.append(f"the next save is {saved}")
        return ", ".join(wrong + stray(run))


SCENES = {
    "first save": Training(),
    "rotate": Training(2),
    "write over": Training(1, fixed=True),
    "share": Training(2, shares=True),
}


def lay(name: str, root: str) -> None:
    """In a child: the directory as it is found."""
    Path(root).mkdir()
    SCENES[name].lay(Path(root))


def attempt(name: str, root: str, log: str, mode: int, n: int) -> dict[str, Any]:
    """In a child: the scene under a fault; how many calls there were, and what is wrong."""
    save.files_for = lambda _: 2  # a thread of its own for a part of what is saved
    strike = Strike(root, log, mode, n)
    calls, problems = SCENES[name].act(Path(root), Path(log), strike)
    return {"calls": calls, "problems": problems}


def judge_many(cases: Sequence[Sequence[str]]) -> list[str]:
    return [judge(*case) for case in cases]


def judge(name: str, root: str, log: str) -> str:
    """In a child: what is wrong with a directory that nobody writes to any more."""
    try:
        found: str = SCENES[name].judge(Path(root), Path(log).read_text())
    except Exception:
        return traceback.format_exc(limit=-3)
    return found
