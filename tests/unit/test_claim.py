"""What would fail at the first save is refused before the first step; later, as the config says."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.fits import X, Y, fit, runs_of, saved, state

import tfckpt
from tfckpt.stored.commits.writer_lock import LOCK_FILE
from tfckpt.stored.io.files import LocalFiles, LocalOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def run(flavour, tmp_path) -> Callable[..., Any]:
    return runs_of(flavour, tmp_path / "run")


@pytest.fixture
def loop(tmp_path) -> Callable[..., Any]:
    """``loop(every_steps=2)``: a step and a run of it."""

    def build(manager: dict[str, Any] | None = None, **save: Any) -> Any:
        step, value = tf.Variable(0), tf.Variable(tf.zeros(1000))
        where = {"directory": str(tmp_path / "run")}
        config = {"version": 1, "manager": {**where, "save": save, **(manager or {})}}
        return step, tfckpt.from_config(config, step=step, value=value)

    return build


@contextmanager
def in_use(directory: Path) -> Iterator[None]:
    """As by another process."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK_FILE).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def full(monkeypatch: Any, free: int = 1000) -> Iterator[None]:
    """Writing meets a full disk, of which so much is free."""

    def no_space(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(LocalOutput, "write", no_space)
        patch.setattr(LocalFiles, "free", lambda self, path: free)
        yield


def warned(caplog: Any) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


class Counter:
    """How many batches were trained."""

    def __init__(self, keras: Any) -> None:
        self.batches = 0
        self.callback = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: setattr(self, "batches", self.batches + 1)
        )


# Before the first step


def test_a_directory_in_use_is_refused_before_the_first_step(run, flavour, tmp_path) -> None:
    model, one = run(every_epochs=1)
    counter, where = Counter(flavour), tmp_path / "run"
    with in_use(where), pytest.raises(tfckpt.InUseError, match="another process saves into"):
        fit(model, 1, one.callback(verbose=0), counter.callback)
    assert counter.batches == 0


def test_what_is_refused_is_refused_before_the_restore(run, tmp_path, monkeypatch) -> None:
    model, first = run(every_epochs=1)
    fit(model, 1, first.callback(verbose=0))
    model, second = run(every_epochs=1)
    before = state(model)
    monkeypatch.setattr(LocalFiles, "free", lambda self, path: 10)
    with pytest.raises(tfckpt.SaveError, match="but only 10 B are free"):
        fit(model, 2, second.callback(verbose=0))
    np.testing.assert_equal(state(model), before)
    assert second.report is None


@pytest.mark.parametrize("epochs_or_steps", ["every_epochs", "every_steps"])
def test_a_disk_without_room_is_refused_before_the_first_step(
    run, flavour, tmp_path, monkeypatch, epochs_or_steps
) -> None:
    model, one = run(**{epochs_or_steps: 1})
    weights = sum(4 * int(np.prod(variable.shape)) for variable in model.variables)
    counter = Counter(flavour)
    monkeypatch.setattr(LocalFiles, "free", lambda self, path: 64)
    with pytest.raises(tfckpt.SaveError, match="but only 64 B are free") as error:
        fit(model, 1, one.callback(verbose=0), counter.callback)
    start = f"{tmp_path}/run: a save needs at least "
    assert str(error.value).startswith(start)
    assert int(str(error.value).removeprefix(start).split(" B")[0]) >= weights
    assert counter.batches == 0


def test_room_for_slots_that_the_first_step_makes_is_asked_for_after_it(
    run, flavour, monkeypatch
) -> None:
    model, one = run(every_epochs=1)
    weights = sum(4 * int(np.prod(variable.shape)) for variable in model.trainable_variables)
    counter = Counter(flavour)
    monkeypatch.setattr(LocalFiles, "free", lambda self, path: 2 * weights)
    with pytest.raises(tfckpt.SaveError, match="a save needs at least"):
        fit(model, 1, one.callback(verbose=0), counter.callback)
    assert counter.batches <= 1
    assert saved(one) == []


def test_a_directory_that_cannot_be_made_is_refused_before_the_first_step(
    run, flavour, tmp_path, monkeypatch
) -> None:
    def read_only(self: Any, path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    model, one = run(every_epochs=1)
    counter = Counter(flavour)
    monkeypatch.setattr(LocalFiles, "makedirs", read_only)
    with pytest.raises(
        tfckpt.SaveError, match="checkpoints cannot be written: Read-only file"
    ) as error:
        fit(model, 1, one.callback(verbose=0), counter.callback)
    assert f"{tmp_path}/run" in str(error.value)
    assert "use a directory that this process may create and write" in str(error.value)
    assert counter.batches == 0


def test_a_directory_that_cannot_be_written_is_refused_before_the_first_step(
    run, flavour, monkeypatch
) -> None:
    def denied(self: Any, path: str, new: bytes | None = None) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    model, one = run(every_epochs=1)
    counter = Counter(flavour)
    monkeypatch.setattr(LocalFiles, "lock", denied)
    with pytest.raises(tfckpt.SaveError, match="checkpoints cannot be written: Permission denied"):
        fit(model, 1, one.callback(verbose=0), counter.callback)
    assert counter.batches == 0


def test_a_file_in_the_place_of_the_directory_is_refused(run, flavour, tmp_path) -> None:
    model, one = run(every_epochs=1)
    (tmp_path / "run").write_text("in the way")
    counter = Counter(flavour)
    with pytest.raises(tfckpt.SaveError, match="checkpoints cannot be written: File exists"):
        fit(model, 1, one.callback(verbose=0), counter.callback)
    assert counter.batches == 0


def test_the_first_call_of_a_loop_claims_before_any_save_is_due(loop, tmp_path) -> None:
    step, one = loop(every_steps=100)
    with in_use(tmp_path / "run"):
        for _ in range(2):
            step.assign_add(1)
            with pytest.raises(tfckpt.InUseError, match="another process saves into"):
                one.save_if_due()
    assert one.save_if_due() is None  # the other has ended
    holder = (tmp_path / "run" / LOCK_FILE).open("rb")
    with holder, pytest.raises(BlockingIOError):
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_first_call_of_a_loop_asks_for_room(loop, monkeypatch) -> None:
    _, one = loop(every_minutes=10)
    monkeypatch.setattr(LocalFiles, "free", lambda self, path: 3000)
    with pytest.raises(tfckpt.SaveError, match=r"at least 3\.9 KiB, but only 2\.9 KiB are free"):
        one.save_if_due()


def test_what_restores_alone_needs_no_directory_of_its_own(run, tmp_path) -> None:
    model, first = run(every_epochs=1)
    fit(model, 1, first.callback(verbose=0))
    code = (
        "import sys, keras, tfckpt\n"
        "model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name='a'),"
        " keras.layers.Dense(2)])\n"
        "where = {'directory': sys.argv[1]}\n"
        "config = {'version': 1, 'manager': {**where, 'save': {'every_steps': 1}},"
        " 'restore': {**where, 'policy': {'include': ['model/**']}}}\n"
        "print(tfckpt.plan(config, model=model).problems, tfckpt.restore(config, model=model).path)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "run")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["()", f"{tmp_path}/run/ckpt-1"], done.stderr


def test_a_claim_leaves_nothing_but_the_lock(loop, tmp_path) -> None:
    _, one = loop(every_steps=100)
    one.save_if_due()
    assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK_FILE]


# Later


def test_a_full_disk_says_how_much_is_missing(loop, monkeypatch) -> None:
    step, one = loop(every_steps=1)
    step.assign_add(1)
    one.save_if_due()
    step.assign_add(1)
    with full(monkeypatch), pytest.raises(tfckpt.SaveError, match="No space left") as error:
        one.save_if_due()
    assert "a save needs at least 3.9 KiB, but only 1000 B are free" in str(error.value)


@pytest.mark.parametrize("enable_async", [False, True])
def test_a_failed_save_is_survived_where_the_config_says_so(
    loop, monkeypatch, caplog, enable_async
) -> None:
    step, one = loop({"on_save_error": "warn", "enable_async": enable_async}, every_steps=2)

    def train(steps: int) -> None:
        for _ in range(steps):
            step.assign_add(1)
            one.save_if_due()

    train(2)
    one.manager.sync()
    with full(monkeypatch):
        train(5)  # due at 4 and at 6
        one.checkpoint._background.failure()
    assert saved(one) == ["ckpt-1"]
    train(1)
    one.sync()
    assert saved(one) == ["ckpt-1", "ckpt-2"]
    said = "a save failed; the training continues without it: "
    assert warned(caplog).count(said) == 2
    assert "but only 1000 B are free" in warned(caplog)
    assert tfckpt.Checkpoint(step=step).restore(one.manager.checkpoints[0]) is not None
    assert int(step) == 2


def test_a_failure_at_the_very_end_is_said_too(loop, monkeypatch, caplog) -> None:
    step, one = loop({"on_save_error": "warn", "enable_async": True}, every_steps=1)
    one.save_if_due()
    step.assign_add(1)
    with full(monkeypatch):
        one.save_if_due()
        one.sync()
    assert warned(caplog).count("a save failed; the training continues without it") == 1


def test_by_hand_it_is_an_error_all_the_same(loop, monkeypatch) -> None:
    _, one = loop({"on_save_error": "warn"}, every_steps=1)
    with full(monkeypatch), pytest.raises(tfckpt.SaveError):
        one.save()


def test_without_the_key_it_ends_the_training(loop, monkeypatch) -> None:
    step, one = loop(every_steps=1)
    one.save_if_due()
    step.assign_add(1)
    with full(monkeypatch), pytest.raises(tfckpt.SaveError):
        one.save_if_due()


def test_a_fit_survives_failed_saves(flavour, tmp_path, monkeypatch, caplog) -> None:
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])
    model.compile("sgd", "mse")
    manager = {"directory": str(tmp_path / "run"), "save": {"every_epochs": 1}}
    config = {"version": 1, "manager": {**manager, "on_save_error": "warn"}}
    one = tfckpt.from_config(config, model=model)
    genuine, writes = LocalOutput.write, iter(range(99))

    def fails_once(self: Any, data: Any) -> None:
        if one.epoch == 2 and next(writes) == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        genuine(self, data)

    monkeypatch.setattr(LocalOutput, "write", fails_once)
    history = model.fit(X, Y, epochs=4, verbose=0, callbacks=[one.callback(verbose=0)])
    assert history.epoch == [0, 1, 2, 3]
    assert [tfckpt_epoch(path) for path in one.manager.checkpoints] == [1, 3, 4]
    assert warned(caplog).count("a save failed; the training continues without it") == 1


def tfckpt_epoch(path: str) -> int:
    import json

    return int(json.loads(Path(f"{path}.tfckpt.json").read_bytes())["epoch"])


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_signal_ends_the_process_though_its_save_failed(loop, monkeypatch, caplog) -> None:
    step, one = loop({"on_save_error": "warn"}, on_signal=["SIGTERM"])
    one.save()
    step.assign_add(1)
    one.save_if_due()
    os.kill(os.getpid(), signal.SIGTERM)
    with full(monkeypatch), pytest.raises(SystemExit, match="143"):
        one.save_if_due()
    said = warned(caplog)
    assert "a save failed" in said
    assert f"SIGTERM: not saved; the newest checkpoint is {one.manager.checkpoints[0]}" in said
