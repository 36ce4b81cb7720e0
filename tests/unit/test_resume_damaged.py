"""A resume whose newest checkpoint has a flipped bit takes the one before."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.stored.bundles.bundle import Bundle


def flip(prefix: str, key: str) -> None:
    with Bundle.open(prefix) as bundle:
        entry = bundle.entries[key]
        path = bundle.path(entry.shard)
    with Path(path).open("r+b") as file:
        file.seek(entry.offset)
        byte = file.read(1)[0]
        file.seek(entry.offset)
        file.write(bytes([byte ^ 1]))


def model() -> keras.Model:
    built = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="a")])
    built.compile("sgd", "mse")
    return built


class Killed(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if batch == 2:
            raise ZeroDivisionError


def data() -> tf.data.Dataset:
    x = np.ones((8, 2), "float32")
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(8, seed=1).batch(2)


@pytest.mark.parametrize("what", ["string", "variant"], ids=["graph", "iterator"])
def test_what_tensorflow_reads_is_passed_over_by_fit(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = model()
    resume = tfckpt.callbacks.resume(first, tmp_path, save_freq=1)
    with pytest.raises(ZeroDivisionError):
        first.fit(data(), epochs=1, callbacks=[resume, Killed()])
    (newest, before) = (f"ckpt-{one.number}" for one in tfckpt.list_checkpoints(tmp_path)[:2])
    with Bundle.open(str(tmp_path / newest)) as bundle:
        key = next(key for key, entry in bundle.entries.items() if entry.dtype == what)
    flip(str(tmp_path / newest), key)
    assert [one.ok for one in tfckpt.verify(tmp_path)][:2] == [False, True]
    again = model()
    again.fit(data(), epochs=2, callbacks=[tfckpt.callbacks.resume(again, tmp_path)])
    said = capsys.readouterr().out
    assert f"restored {tmp_path / before}" in said
    assert int(again.optimizer.iterations) == 8


def test_a_damaged_step_is_passed_over(tmp_path: Path) -> None:
    step = tf.Variable(0, dtype=tf.int64)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(step=step), tmp_path, None)
    for number in (1, 2):
        step.assign(number)
        manager.save()
    flip(str(tmp_path / "ckpt-2"), "step/.ATTRIBUTES/VARIABLE_VALUE")
    step.assign(0)
    report = tfckpt.restore(tmp_path, step=step)
    assert report.path == str(tmp_path / "ckpt-1")
    assert int(step) == 1
