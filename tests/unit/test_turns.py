"""Several threads that save and restore at once: each does it as a whole, in some order.

What a thread does in the middle of another's work is decided here, and not by their speed: it is
begun there, and the other goes on once it has either come to wait for its turn or is through.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tests.zoo.gate import PATIENCE
from tfckpt.live import turns
from tfckpt.live.apply import Undo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Other:
    """Another thread, which begins in the middle of what this one does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waits_or_done = threading.Event()
        self._thread: threading.Thread | None = None
        self._errors: list[BaseException] = []
        genuine, other = turns.Lock.held, self

        @contextlib.contextmanager
        def held(self: turns.Lock) -> Iterator[None]:
            if threading.current_thread() is other._thread:
                other._waits_or_done.set()
            with genuine(self):
                yield

        monkeypatch.setattr(turns.Lock, "held", held)

    def begin(self, work: Callable[[], object]) -> None:
        """Once only; returns when it waits, or is through."""
        if self._thread is not None:
            return

        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._errors.append(error)
            finally:
                self._waits_or_done.set()

        self._thread = threading.Thread(target=run)
        self._thread.start()
        assert self._waits_or_done.wait(PATIENCE)

    def end(self) -> None:
        assert self._thread is not None
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        for error in self._errors:
            raise error


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Other:
    return Other(monkeypatch)


def before_each(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, do: Any) -> None:
    """Have this thread do something before each call of a function."""
    genuine, thread = getattr(owner, name), threading.current_thread()

    def call(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is thread:
            do()
        return genuine(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


def before_second_assignment(monkeypatch: pytest.MonkeyPatch, do: Any) -> None:
    done = []
    before_each(monkeypatch, Undo, "assign", lambda: do() if len(done) == 1 else done.append(1))


def objects(value: float) -> dict[str, Any]:
    """Of two types, so that a save reads them in two pieces."""
    return {
        "a": tf.Variable(value),
        "b": tf.Variable([value] * 3),
        "c": tf.Variable(value, dtype=tf.float64),
        "d": [tf.Variable(value), tf.Variable(value, dtype=tf.float64)],
    }


def values(held: dict[str, Any]) -> set[float]:
    return {float(np.mean(each)) for each in tf.nest.flatten(held)}


@pytest.fixture
def saved(tmp_path: Path) -> list[str]:
    """Checkpoints of ones and of twos."""
    names = [str(tmp_path / name) for name in ("ones", "twos")]
    return [tfckpt.Checkpoint(**objects(float(n))).write(path) for n, path in enumerate(names, 1)]


def by_checkpoint(held: dict[str, Any], path: str) -> Any:
    return tfckpt.Checkpoint(**held).read(path)


def by_config(held: dict[str, Any], path: str) -> Any:
    return tfckpt.restore(path, **held)


@pytest.mark.parametrize("first", [by_checkpoint, by_config])
@pytest.mark.parametrize("second", [by_checkpoint, by_config])
def test_two_restores_of_the_same_objects(
    first: Any, second: Any, saved: list[str], other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = objects(0.0)
    before_second_assignment(monkeypatch, lambda: other.begin(lambda: second(held, saved[1])))
    first(held, saved[0])
    other.end()
    assert values(held) == {2.0}


def test_a_save_in_the_middle_of_a_restore(
    saved: list[str], other: Other, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, path = objects(0.0), str(tmp_path / "meanwhile")
    saver = tfckpt.Checkpoint(**held)
    before_second_assignment(monkeypatch, lambda: other.begin(lambda: saver.write(path)))
    by_checkpoint(held, saved[0])
    other.end()
    fresh = objects(5.0)
    by_checkpoint(fresh, path)
    assert values(fresh) == values(held) == {1.0}


def test_a_restore_in_the_middle_of_a_save(
    saved: list[str], other: Other, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, path, pieces = objects(0.0), str(tmp_path / "meanwhile"), []

    def begin() -> None:
        if pieces:
            other.begin(lambda: by_checkpoint(held, saved[0]))
        pieces.append(1)

    before_each(monkeypatch, tf.raw_ops, "ReadVariableOp", begin)
    tfckpt.Checkpoint(**held).write(path)
    other.end()
    fresh = objects(5.0)
    by_checkpoint(fresh, path)
    assert (values(fresh), values(held)) == ({0.0}, {1.0})


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("managers", [1, 2])
def test_many_threads_save_by_one_checkpoint(
    flavour: Any, in_background: bool, managers: int, tmp_path: Path
) -> None:
    model = flavour.Sequential([flavour.layers.Dense(3, name="only")])
    model(np.ones((1, 2), np.float32))
    checkpoint = tfckpt.Checkpoint(model=model)
    found = [
        tfckpt.CheckpointManager(checkpoint, tmp_path, 100, enable_async=in_background)
        for _ in range(managers)
    ]
    start, paths, errors = threading.Barrier(4), [], []

    def save(manager: Any) -> None:
        start.wait(PATIENCE)
        try:
            paths.extend(manager.save() for _ in range(5))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=[found[n % managers]]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    checkpoint.sync()
    assert not errors
    assert sorted(paths) == sorted(str(tmp_path / f"ckpt-{n}") for n in range(1, 21))
    assert sorted(found[0].checkpoints) == sorted(paths)
    assert int(checkpoint.save_counter) == 20
    for path in paths:
        fresh = flavour.Sequential([flavour.layers.Dense(3, name="only")])
        fresh(np.ones((1, 2), np.float32))
        tfckpt.Checkpoint(model=fresh).restore(path).assert_consumed()


def with_callback(do: Any, *, in_background: bool) -> tf.train.CheckpointOptions:
    return tf.train.CheckpointOptions(
        experimental_enable_async_checkpoint=in_background, experimental_write_callbacks=[do]
    )


def test_a_callback_in_the_background_is_told_that_it_cannot_save(tmp_path: Path) -> None:
    checkpoint = tfckpt.Checkpoint(**objects(1.0))
    options = with_callback(lambda: checkpoint.write(tmp_path / "again"), in_background=True)
    checkpoint.save(tmp_path / "ckpt", options)
    with pytest.raises(tfckpt.SaveError, match="a background save started another save"):
        checkpoint.sync()
    assert not (tmp_path / "again.index").exists()
    fresh = objects(0.0)
    tfckpt.Checkpoint(**fresh).restore(tmp_path / "ckpt-1").assert_consumed()
    assert values(fresh) == {1.0}


@pytest.mark.parametrize("what", ["save", "restore"])
def test_a_signal_handler_cannot_come_between_two_assignments(
    what: str, saved: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = objects(0.0)
    checkpoint = tfckpt.Checkpoint(**held)

    def handler(*_: Any) -> None:
        if what == "save":
            checkpoint.write(tmp_path / "mixed")
        else:
            tfckpt.restore(saved[1], **held)

    before_second_assignment(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(tfckpt.TfckptError, match="assigning values"):
            checkpoint.read(saved[0])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert values(held) == {0.0}
    assert not (tmp_path / "mixed.index").exists()
    monkeypatch.undo()
    checkpoint.read(saved[0]).assert_existing_objects_matched()
    assert values(held) == {1.0}
