"""What two workers do together that goes wrong in one: see ``zoo.cluster``."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tfckpt
from tfckpt.live.workers import Workers
from zoo.workers import config

LATE = 14.0  # seconds, longer than the others wait, on a slow machine, too


def agree(strategy: Any, index: int, root: str) -> dict[str, Any]:
    """What comes of saves and restores that go wrong in one worker; a name each."""
    keras = importlib.import_module("keras")
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="dense")])
        summed = tf.Variable(
            0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    checkpoint = tfckpt.Checkpoint(model=model, summed=summed)
    manager = tfckpt.CheckpointManager(checkpoint, f"{root}/run", max_to_keep=None)
    bad = tfckpt.CheckpointManager(checkpoint, f"{root}/file/run", max_to_keep=None)
    came: dict[str, Any] = {}

    def value() -> float:
        return float(model.weights[0].numpy()[0, 0])

    def fill(number: float) -> None:
        model.set_weights([np.full((4, 3), number), np.full((3,), number)])

    def trying(name: str, act: Any) -> None:
        """Note what is raised, whether that changed the model, and how long it took."""
        before, start = value(), time.time()
        try:
            result = act()
        except (tfckpt.TfckptError, SystemExit) as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            seconds = time.time() - start
            came[name] = [kinds, str(error), value() == before, seconds]
        else:
            came[name] = [[], str(result), value(), time.time() - start]

    for number in (1, 2, 3):
        fill(number)
        trying(f"save {number}", manager.save)
    for name in ("absent", "damaged", "other"):
        mine, number = Path(f"{root}/{name}-{index}"), 1 + (name == "other") * index
        mine.mkdir()
        for file in Path(f"{root}/run").glob(f"ckpt-{number}.*"):
            content = file.read_bytes()
            if name == "damaged" and index == 1 and ".data-" in file.name:
                content = bytes(255 - byte for byte in content)
            if name != "absent" or index == 0:
                Path(mine, file.name).write_bytes(content)
        path = f"{mine}/ckpt-{number}"
        trying(name, lambda path=path: checkpoint.restore(path).assert_consumed())
    trying("right", lambda: checkpoint.restore(f"{root}/run/ckpt-1").assert_consumed())
    trying("no collective", partial(without_collectives, checkpoint, f"{root}/run/ckpt-1"))
    trying("chosen", manager.restore_or_initialize)
    if index == 0:
        Path(f"{root}/file").write_text("no directory")
        for newest in Path(f"{root}/run").glob("ckpt-3.data-*"):
            newest.write_bytes(bytes(255 - byte for byte in newest.read_bytes()))
    trying("no directory", bad.save)
    trying("passed over", manager.restore_or_initialize)
    more = {"more": tf.Variable(1.0)} if index else {}
    trying("other objects", lambda: tfckpt.Checkpoint(model=model, **more).write(f"{root}/x"))
    behind = tfckpt.CheckpointManager(
        checkpoint, f"{root}/behind", max_to_keep=None, enable_async=True
    )

    def in_background() -> str | None:
        path = behind.save()
        behind.sync()
        return path

    trying("in the background", in_background)
    if index == 1:
        time.sleep(LATE)
    trying("late", manager.save)
    trying("after it", manager.save)
    came["tutorial"] = tutorial(checkpoint, index, root)
    came["taken up"] = taken_up(model, index, root)
    came["seen"] = sorted(each.name for each in Path(f"{root}/run").iterdir())
    came["stopped"] = stopped(model, index, f"{root}/stopped", late=False)
    came["stopped late"] = stopped(model, index, f"{root}/stopped-late", late=True)
    return came


def tutorial(checkpoint: Any, index: int, root: str) -> Any:
    """TensorFlow's for several workers: each but the chief has a directory, and removes it."""
    own = f"{root}/workertemp_{index}/tutorial" if index else f"{root}/tutorial"
    said, handler, log = io.StringIO(), logging.StreamHandler(), logging.getLogger("absl")
    handler.setStream(said)
    log.addHandler(handler)
    manager = tfckpt.CheckpointManager(checkpoint, own, max_to_keep=1)
    for _ in range(2):
        manager.save()
        if index:
            tf.io.gfile.rmtree(own)
    log.removeHandler(handler)
    latest = tf.train.latest_checkpoint(f"{root}/tutorial")
    checkpoint.restore(latest).assert_consumed()
    return [latest, said.getvalue(), Path(own).exists()]


def taken_up(model: Any, index: int, root: str) -> Any:
    """A restore where one worker's config says that it saves elsewhere: the epoch, and the line."""
    plain = config(f"{root}/taken-up")
    tfckpt.from_config(plain, model=model).save(epoch=2)
    manager = {**plain["manager"], "directory": f"{root}/taken-up" + "-elsewhere" * index}
    run = tfckpt.from_config({**plain, "manager": manager}, model=model)
    return [run.restore().training, run.epoch]


def without_collectives(checkpoint: Any, path: str) -> None:
    """Restore where a collective fails, which a worker that refuses would leave hanging."""

    def fail(*_: Any) -> None:
        raise AssertionError("a collective")

    kind = type(checkpoint.summed)
    before, kind._get_cross_replica = kind._get_cross_replica, fail
    try:
        checkpoint.restore(path).assert_consumed()
    finally:
        kind._get_cross_replica = before


def stopped(model: Any, index: int, directory: str, *, late: bool) -> Any:
    """A loop in which one worker is asked to end; what the others do, and what is saved.

    ``late``: after that worker has said at the end of a step that it goes on.
    """
    step = tf.Variable(0)
    save = {"every_steps": 100, "on_signal": ["SIGTERM"]}
    run = tfckpt.from_config(config(directory, **save), model=model, step=step)
    for number in range(1, 10):
        step.assign(number)
        asked = index == 1 and number == 4
        if asked and not late:
            signal.raise_signal(signal.SIGTERM)
        try:
            with at_the_end_of(Workers, "exchange") if asked and late else contextlib.nullcontext():
                run.save_if_due()
        except SystemExit as end:
            return [number, end.code, [Path(path).name for path in run.manager.checkpoints]]
    return "not stopped"


@contextlib.contextmanager
def at_the_end_of(owner: Any, method: str) -> Iterator[None]:
    """SIGTERM comes when a call of the method is about to return."""
    before = getattr(owner, method)

    def and_then(*arguments: Any, **options: Any) -> Any:
        setattr(owner, method, before)
        said = before(*arguments, **options)
        signal.raise_signal(signal.SIGTERM)
        return said

    setattr(owner, method, and_then)
    yield
