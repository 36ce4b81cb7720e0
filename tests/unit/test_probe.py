"""A probe: what a save records of a function, what it leaves as it was, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import document, run

import tfckpt
import tfckpt.callbacks

ROW = (4,)
ONES = np.ones((8, *ROW), "float32")


def dense(k: Any) -> Any:
    layers = [k.layers.Dense(4, name="a"), k.layers.Dropout(0.5), k.layers.Dense(4, name="b")]
    return k.Sequential([k.Input(ROW), *layers])


def saved(model: Any, directory: Path, probe: Any = "auto") -> str:
    return str(tfckpt.Checkpoint(model=model).save(directory / "ckpt", probe=probe))


def weights(model: Any) -> list[Any]:
    return [weight.tolist() for weight in model.get_weights()]


# What is left as it was


def busy(k: Any) -> Any:
    """A model that changes whatever a call can."""

    class Busy(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner = k.layers.Dense(4, activity_regularizer="l2")
            self.norm = k.layers.BatchNormalization()
            self.seen = self.add_weight(name="seen", shape=(), trainable=False)
            self.calls, self.kept, self.last = 0, [], None

        @tf.function
        def call(self, x: Any, training: bool = False) -> Any:
            self.calls += 1
            self.kept.append(self.calls)
            self.seen.assign(self.seen + 1.0)
            self.last = x = self.norm(self.inner(x), training=training)
            self.add_loss(tf.reduce_sum(x))
            return x

    model = Busy()
    model(ONES)
    return model


def state(model: Any) -> Any:
    layers = [model, model.inner, model.norm]
    return (
        weights(model),
        [{k: id(v) for k, v in vars(layer).items()} for layer in layers],
        (model.calls, list(model.kept), [float(loss) for loss in model.losses]),
        (random.getstate(), np.random.get_state()[1].tolist()),
    )


def test_a_call_leaves_no_trace_and_sees_the_layers_of_a_compiled_one(flavour, tmp_path) -> None:
    tf.config.run_functions_eagerly(True)
    try:
        model = busy(flavour)
    finally:
        tf.config.run_functions_eagerly(False)
    before = state(model)
    path = saved(model, tmp_path, ONES)
    assert state(model) == before
    assert tfckpt.prove(path, model).same
    assert state(model) == before
    model = busy(flavour)
    path = saved(model, tmp_path, ONES)
    model.inner.kernel.assign(model.inner.kernel + 1.0)
    assert tfckpt.prove(path, model).part == "model/inner"


def test_a_run_that_records_and_verifies_trains_as_one_without(flavour, tmp_path) -> None:
    x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    ends = []
    for probe in (None, "auto"):
        flavour.utils.set_random_seed(3)
        model = dense(flavour)
        model.compile("adam", "mse", metrics=["mae"])
        place = str(tmp_path / str(probe))
        save = {"every_steps": 3, "every_epochs": 1}
        manager = {"directory": place, "save": save, **({"probe": probe} if probe else {})}
        restore = {"directory": place, "if_none": "initialize"}
        restore |= {"policy": {"verify": "function"}} if probe else {}
        config = {"version": 1, "manager": manager, "restore": restore}
        for epochs in (1, 2):
            callback = tfckpt.from_config(config, model).callback(verbose=0)
            history = model.fit(x, x, 8, epochs=epochs, verbose=0, callbacks=[callback]).history
        ends.append((weights(model), history))
    assert ends[0] == ends[1]
    assert tfckpt.prove(place, model).same
    with pytest.raises(tfckpt.PolicyError, match="probe: expected"):
        tfckpt.callbacks.resume(model, place, probe="all")


def test_a_function_that_the_model_calls_is_traced_by_the_training_alone(flavour, tmp_path) -> None:
    class Mine(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = flavour.layers.Dropout(0.5)
            self.helper = tf.function(self.drop)

        def drop(self, x: Any, training: bool = False) -> Any:
            return self.dropout(x, training=training)

        def call(self, x: Any, training: bool = False) -> Any:
            return self.helper(x, training=training)

    model = Mine()
    model.build((None, 64))
    batch = np.ones((8, 64), np.float32)
    traced = model.helper.experimental_get_tracing_count()
    saved(model, tmp_path, batch)
    assert model.helper.experimental_get_tracing_count() == traced
    dropped = np.mean(np.asarray(model(batch, training=True)) == 0)
    assert 0.2 < dropped < 0.8
    assert not tf.config.functions_run_eagerly()


# What is recorded, and by whom


def words(k: Any) -> Any:
    return k.Sequential([k.Input((1,), dtype="string"), k.layers.StringLookup(vocabulary=["a"])])


def stateful(k: Any) -> Any:
    """It is asked from its start."""
    model = k.Sequential([k.Input(batch_shape=(2, 5, 4)), k.layers.LSTM(3, stateful=True)])
    model(np.ones((2, 5, 4), "float32"))
    return model


def masked(k: Any, mask: float = -1e9) -> Any:
    """A mask does not hide what is beside it."""

    class Head(k.layers.Dense):
        def call(self, x: Any) -> Any:
            return super().call(x) + np.array([mask if n == 3 else 0 for n in range(10)], "float32")

    return k.Sequential([k.Input((8,)), Head(10, name="head")])


def masked_most(k: Any) -> Any:
    return masked(k, -3.4e38)


def scaled(k: Any, factor: float = 0.5) -> Any:
    """What is computed between layers is the model's own."""
    start = k.Input(ROW)
    x = k.layers.Dense(4, name="a")(start) * factor
    return k.Model(start, k.layers.Dense(4, name="b")(x))


def deep(k: Any) -> Any:
    """More outputs than a record holds: it says more of the outer parts."""
    x = start = k.Input(ROW)
    for n in range(500):
        x = k.layers.Activation("tanh", name=f"a_long_name_of_a_layer_{n}")(x)
    return k.Model(start, k.layers.Dense(4, name="out")(x))


BATCH = np.array([["a"], ["b"]])


@pytest.mark.parametrize(
    ("build", "probe", "part"),
    [
        (words, BATCH, None),
        (stateful, "auto", "model/lstm"),
        (masked, "auto", "model/head"),
        (masked_most, "auto", "model/head"),
        (scaled, "auto", "model/a"),
        (deep, "auto", "model"),
    ],
)
def test_another_function_is_found_and_the_same_is_not_accused(
    flavour, build, probe, part, tmp_path
) -> None:
    model, other = build(flavour), build(flavour)
    path = saved(model, tmp_path, probe)
    size = len(json.dumps(tfckpt.inspect(path).record.proof))
    assert size <= 64 << 10
    assert size > 32 << 10 or build is not deep
    if part is not None:
        found = tfckpt.prove(path, other)
        assert not found.same
        assert found.part.startswith(part)
    other.set_weights(model.get_weights())
    assert tfckpt.prove(path, other).same
    other.set_weights([weight * np.float32(1 + 1e-6) for weight in other.get_weights()])
    assert tfckpt.prove(path, other).same
    if build is scaled:
        other = scaled(flavour, 0.25)
        other.set_weights(model.get_weights())
        in_tf_keras = "model/tf.math.multiply"  # where an operation is a layer
        part = "model" if flavour.__name__ == "keras" else in_tf_keras
        assert tfckpt.prove(path, other).part.startswith(part)


def test_several_models_have_a_batch_each_and_managers_record_too(flavour, tmp_path) -> None:
    objects = {"generator": dense(flavour), "critic": dense(flavour)}
    checkpoint = tfckpt.Checkpoint(**objects)
    with pytest.raises(tfckpt.SaveError, match="a dict with a batch for each: "):
        checkpoint.save(tmp_path / "a", probe=ONES)
    path = checkpoint.save(tmp_path / "a", probe="auto")
    by_manager = tfckpt.CheckpointManager(checkpoint, tmp_path / "own", None).save(probe="auto")
    config = {"version": 1, "manager": {"directory": str(tmp_path / "run"), "probe": "auto"}}
    assert tfckpt.prove(by_manager, **objects).same
    assert tfckpt.prove(tfckpt.from_config(config, **objects).save(), **objects).same
    objects["critic"].layers[0].kernel.assign(-objects["critic"].layers[0].kernel)
    assert tfckpt.prove(path, **objects).part == "critic/a"


def drawing(k: Any) -> Any:
    class Noisy(k.layers.Layer):
        def call(self, x: Any) -> Any:
            return x + np.random.rand()

    return k.Sequential([k.Input(ROW), k.layers.Dense(4), Noisy()])


def unbuilt(k: Any) -> Any:
    return k.Sequential([k.layers.Dense(4)])


@pytest.mark.parametrize(
    ("build", "probe", "reason"),
    [
        (drawing, "auto", "draws random numbers"),
        (unbuilt, np.ones((1, 4), "float32"), "is not built"),
        (words, "auto", "more than numbers: pass a batch"),
        (dense, np.ones((1, 3), "float32"), "cannot be called on this batch"),
        (dense, np.ones((9000, 4), "float32"), "a record holds 32,768"),
        (dense, "all", 'expected a batch or "auto"'),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_anything_is_written(
    flavour, build, probe, reason, tmp_path
) -> None:
    with pytest.raises(tfckpt.SaveError, match=reason):
        saved(build(flavour), tmp_path, probe)
    assert not [*tmp_path.rglob("*.index")]


# What is said of another function


def test_verify_function_puts_everything_back_and_a_report_proves_later(flavour, tmp_path) -> None:
    model, other = dense(flavour), dense(flavour)
    path = saved(model, tmp_path)
    before = weights(other)
    rename = [
        {"checkpoint": f"model/{one}/**", "model": f"model/{two}/**"} for one, two in ("ab", "ba")
    ]
    with pytest.raises(tfckpt.RestoreError, match="before it calls model/a") as raised:
        tfckpt.restore(path, other, rename=rename, verify="function")
    assert "every variable has its old value again" in str(raised.value)
    assert weights(other) == before
    report = tfckpt.restore(path, other, verify="function")
    assert weights(other) == weights(model)
    assert report.prove().same
    again = pickle.loads(pickle.dumps(report))
    assert str(again) == str(report)
    with pytest.raises(tfckpt.TfckptError, match="is gone"):
        again.prove()
    without = saved(model, tmp_path, None)
    report = tfckpt.restore(without, other)
    for call in (report.prove, lambda: tfckpt.restore(without, other, verify="function")):
        with pytest.raises(tfckpt.RestoreError, match=r'save\(…, probe="auto"\)'):
            call()
    assert weights(other) == weights(model)


def test_averages_are_another_function_than_the_weights_that_were_saved(flavour, tmp_path) -> None:
    def build() -> Any:
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="out")])
        optimizer = flavour.optimizers.Adam(0.1, use_ema=True)
        model.compile(optimizer, "mse", run_eagerly=True)
        model.fit(ONES, ONES[:, :2], epochs=2, verbose=0)
        return model

    path, other = saved(build(), tmp_path), build()
    before = weights(other)
    with pytest.raises(tfckpt.RestoreError, match="about the weights that were saved"):
        tfckpt.restore(path, other, ema="prefer", include=["model/**"], verify="function")
    assert weights(other) == before
    assert tfckpt.restore(path, other, include=["model/**"], verify="function").prove().same


# Of a drawn batch: too large, of no shape, no array, none.
DAMAGED = ['["float32",[1099511627776],2,0]', '["float32",[-1],2,0]', "[]", '{"list":1}']


def test_prove_and_its_command_say_it(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model_of_proof.py").write_text(
        "import keras\n"
        "def build():\n"
        "    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name='a')])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    model = __import__("model_of_proof").build()
    path = saved(model, tmp_path / "run")
    saved(model, tmp_path / "without", None)
    build = ("--model", "model_of_proof:build")
    done = run("prove", "run", *build)
    assert done.status == 1
    assert "model/a is the first part whose output differs" in done.out
    done = run("prove", "run", *build, "--restore", "run")
    assert (done.status, done.out) == (0, "same function: 2 outputs, bit for bit\n")
    assert document("prove", "run", *build, status=1)["part"] == "model/a"
    done = run("prove", "without", *build)
    assert done.status == 2
    assert 'probe="auto"' in done.err
    record = Path(f"{path}.tfckpt.json")
    body = record.read_text(encoding="utf-8").rpartition(',\n"sha256"')[0]
    for batch in DAMAGED:
        changed, count = re.subn(r'(?<="drawn":)\["float32",.*?\],\d+,\d+\]', batch, body)
        assert count == 1
        digest = hashlib.sha256(changed.encode()).hexdigest()
        record.write_text(f'{changed},\n"sha256": "{digest}"\n}}\n', encoding="utf-8")
        with pytest.raises(tfckpt.DamagedCheckpointError, match="has an invalid batch"):
            tfckpt.prove(path, model)
