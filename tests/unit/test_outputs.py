"""What ``save(probe=…)`` records and ``check_outputs`` compares, and what neither leaves behind."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt

BATCH = np.linspace(-1, 1, 32, dtype="f").reshape(8, 4)


def dense(keras: Any) -> Any:
    layers = [keras.layers.Dense(3, name="a"), keras.layers.Dense(2, name="b")]
    return keras.Sequential([keras.Input((4,)), *layers])


def normalized(keras: Any) -> Any:
    named = {"a": keras.layers.BatchNormalization(), "b": keras.layers.Dropout(0.5, seed=1)}
    inputs = keras.Input((4,))
    outputs = {key: layer(inputs) for key, layer in named.items()}
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse", metrics={"a": ["mae"]})
    model.fit(BATCH, {"a": BATCH, "b": BATCH}, verbose=0)
    return model


def stateful(keras: Any) -> Any:
    inputs = keras.Input(batch_shape=(8, 3, 4))
    return keras.Model(inputs, keras.layers.LSTM(2, stateful=True, name="lstm")(inputs))


def regular(keras: Any) -> Any:
    """Adds to the model's losses when it is called."""
    layer = keras.layers.Dense(2, activity_regularizer="l2", name="a")
    return keras.Sequential([keras.Input((4,)), layer])


def words(keras: Any) -> Any:
    inputs = keras.Input((), dtype="string")
    return keras.Model(inputs, keras.layers.StringLookup(vocabulary=["a", "b"])(inputs))


def half(keras: Any) -> Any:
    layer = keras.layers.Dense(2, dtype="mixed_bfloat16", name="a")
    return keras.Sequential([keras.Input((4,)), layer])


MODELS = {
    "dense": (dense, BATCH, "1 output of 8 examples"),
    "normalized": (normalized, BATCH, "2 outputs of 8 examples"),
    "stateful": (stateful, np.ones((8, 3, 4), "f"), "1 output of 8 examples"),
    "regular": (regular, BATCH, "1 output of 8 examples"),
    "words": (words, np.array(["a", "c", "b"]), "1 output of 3 examples"),
    "half": (half, BATCH.tolist(), "1 output of 8 examples"),
}


def all_bytes(model: Any) -> list[bytes]:
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(getattr(optimizer, "variables", None) or [])]
    states = [
        each for layer in model.layers for each in tf.nest.flatten(getattr(layer, "states", None))
    ]
    return [np.asarray(each).tobytes() for each in (*variables, *states) if each is not None]


@pytest.mark.parametrize("name", MODELS)
def test_a_save_and_a_check_leave_the_model_as_it_was(flavour, tmp_path: Path, name: str) -> None:
    build, batch, seen = MODELS[name]
    model = build(flavour)
    before, losses = all_bytes(model), len(model.losses)
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe=batch)
    assert all_bytes(model) == before
    other = build(flavour)
    report = tfckpt.restore(path, other, optimizer="reset", on_unexpected="ignore")
    before = all_bytes(other)
    for _ in range(2):
        assert str(report.check_outputs()) == f"equal in every bit: {seen}"
    assert all_bytes(other) == before
    assert len(model.losses) == losses


def test_the_largest_difference_is_numpys(tmp_path: Path) -> None:
    model = dense(keras)
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe=BATCH)
    report = tfckpt.restore(path, model)
    old = model(BATCH).numpy()
    kernel = model.layers[1].kernel
    kernel.assign(np.asarray(kernel)[:, ::-1])
    new = model(BATCH).numpy()
    (found,) = report.check_outputs().outputs
    assert (found.name, found.equal) == ("model", False)
    assert found.largest == pytest.approx(np.abs(old - new).max())
    assert found.relative == pytest.approx(
        np.abs(old - new).max() / max(np.abs(old).max(), np.abs(new).max())
    )
    text = str(report.check_outputs())
    assert text.startswith("different: 1 of 1 output of 8 examples\n  model: largest difference ")


def test_of_a_large_output_the_ends_are_kept(tmp_path: Path) -> None:
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(4096, name="wide")(inputs))
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe=BATCH)
    record = tmp_path / "ckpt-1.tfckpt.json"
    assert record.stat().st_size < 8 << 10
    report = tfckpt.restore(path, model)
    assert report.check_outputs().equal
    model.layers[1].bias.assign_add(np.eye(1, 4096, 2, dtype="f")[0])
    (found,) = report.check_outputs().outputs
    assert found.largest == pytest.approx(1, rel=1e-5)
    assert "first and last 8 values" in found.details
    ends = np.eye(1, 4096, 2, dtype="f")[0]
    model.layers[1].bias.assign_add(np.eye(1, 4096, 99, dtype="f")[0] - ends)
    assert not report.check_outputs().equal  # by its digest


def test_several_models_have_a_batch_each(tmp_path: Path) -> None:
    models = {"a": dense(keras), "b": normalized(keras)}
    checkpoint = tfckpt.Checkpoint(**models)
    with pytest.raises(tfckpt.SaveError, match="a dict with a batch of each: a, b"):
        checkpoint.save(tmp_path / "ckpt", probe=BATCH)
    path = checkpoint.save(tmp_path / "ckpt", probe={"b": BATCH})
    assert [one.name for one in tfckpt.restore(path, **models).check_outputs().outputs] == [
        "b[a]",
        "b[b]",
    ]


def seen_by(self: Any, what: str) -> None:
    if what == "an attribute":
        self.calls += 1
    elif what == "a list in a dict":
        self.held["all"][1].append(2)
    elif what == "an object":
        self.own.count += 1
    elif what == "an array":
        self.array += 1
    elif what == "a generator of its own":
        self.own.chance.random()
    elif what == "Python's generator":
        random.random()
    else:
        np.random.rand()


class Own:
    def __init__(self) -> None:
        self.count, self.chance = 0, np.random.default_rng(0)


CHANGES = {
    "an attribute": "model/odd.calls",
    "a list in a dict": "model/odd.held",
    "an object": "model/odd.own",
    "an array": "model/odd.array",
    "a generator of its own": "model/odd.own",
    "Python's generator": "python",
    "NumPy's generator": "numpy",
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_else_a_call_changes_is_put_back_and_named(tmp_path: Path, what: str) -> None:
    class Odd(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__(name="odd")
            self.calls, self.own, self.array = 0, Own(), np.zeros(3)
            self.held = {"all": [0, [1]]}

        def call(self, inputs: Any) -> Any:
            seen_by(self, what)
            return inputs

        def state(self) -> Any:
            rest = self.own.count, self.own.chance.bit_generator.state, self.array.tolist()
            mine = self.calls, [*self.held["all"][1]], *rest
            return repr((mine, random.getstate(), np.random.get_state()))

    odd = Odd()
    model = keras.Sequential([keras.Input((4,)), odd, keras.layers.Dense(2, name="out")])
    model(BATCH)
    before = odd.state()
    with pytest.raises(tfckpt.SaveError, match=f"when it is called: {re.escape(CHANGES[what])}"):
        tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe=BATCH)
    assert odd.state() == before
    assert not list(tmp_path.glob("ckpt*"))


REFUSED: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    "shape": (dense, np.ones((8, 5), "f"), "model cannot be called on this batch: "),
    "large": (dense, np.ones((1 << 17, 4), "f"), "more than 1,048,576 bytes"),
    "not a model": (lambda _: tf.Variable(1.0), BATCH, "no Keras model among the objects"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_probe_that_cannot_be_taken_writes_nothing(tmp_path: Path, name: str) -> None:
    build, batch, said = REFUSED[name]
    with pytest.raises(tfckpt.SaveError, match=said):
        tfckpt.Checkpoint(model=build(keras)).save(tmp_path / "ckpt", probe=batch)
    assert not list(tmp_path.glob("ckpt*"))


def test_what_cannot_be_said(tmp_path: Path) -> None:
    model = dense(keras)
    plain = tfckpt.Checkpoint(model=model).save(tmp_path / "plain")
    with pytest.raises(tfckpt.RestoreError, match="its save has recorded no outputs"):
        tfckpt.restore(plain, model).check_outputs()
    theirs = tf.train.Checkpoint(model=model).save(str(tmp_path / "theirs"))
    with pytest.raises(tfckpt.TfckptError, match="no checkpoint with a record"):
        tfckpt.restore(theirs, model).check_outputs()

    def noisy(x: Any) -> Any:  # whatever seeds other tests have set
        return x + tf.raw_ops.RandomStandardNormal(shape=[4], dtype=tf.float32)

    noise = keras.layers.Lambda(noisy, output_shape=(4,))
    drawing = keras.Sequential([keras.Input((4,)), noise, keras.layers.Dense(2, name="out")])
    path = tfckpt.Checkpoint(model=drawing).save(tmp_path / "ckpt", probe=BATCH)
    with pytest.raises(tfckpt.TfckptError, match="model is another one at each call"):
        tfckpt.restore(path, drawing).check_outputs()


def test_a_manager_and_a_run_record_them(tmp_path: Path) -> None:
    model = dense(keras)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), tmp_path / "a", None)
    path = manager.save(probe=BATCH)
    run = tfckpt.from_config({"version": 1, "manager": {"directory": str(tmp_path / "b")}}, model)
    for each in (path, run.save(probe=BATCH)):
        assert tfckpt.restore(each, model).check_outputs().equal
