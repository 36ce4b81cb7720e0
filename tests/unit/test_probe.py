"""A probe: what a save records of a function, what it leaves as it was, and what it refuses."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.cli.main import main
from tfckpt.planning.proof import compared, decoded, encoded, unpacked_batch

if TYPE_CHECKING:
    from collections.abc import Callable

ROW = (4,)


def dense(k: Any) -> Any:
    layers = [k.layers.Dense(4, name="a"), k.layers.Dropout(0.5), k.layers.Dense(4, name="b")]
    return k.Sequential([k.Input(ROW), *layers])


def saved(model: Any, directory: Path, probe: Any = "auto") -> str:
    return str(tfckpt.Checkpoint(model=model).save(directory / "ckpt", probe=probe))


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
    model(np.ones((2, *ROW), "float32"))
    return model


def state(model: Any) -> Any:
    layers = [model, model.inner, model.norm]
    return (
        [w.tolist() for w in model.get_weights()],
        [{k: id(v) for k, v in vars(layer).items()} for layer in layers],
        (model.calls, list(model.kept), [float(loss) for loss in model.losses]),
        (random.getstate(), np.random.get_state()[1].tolist()),
    )


def test_a_call_leaves_no_trace(flavour, tmp_path) -> None:
    tf.config.run_functions_eagerly(True)
    try:
        model = busy(flavour)
    finally:
        tf.config.run_functions_eagerly(False)
    before = state(model)
    path = saved(model, tmp_path, np.ones((2, *ROW), "float32"))
    assert state(model) == before
    assert tfckpt.prove(path, model).same
    assert state(model) == before


def test_layers_of_a_compiled_call_are_seen(flavour, tmp_path) -> None:
    model = busy(flavour)
    path = saved(model, tmp_path, np.ones((2, *ROW), "float32"))
    model.inner.kernel.assign(model.inner.kernel + 1.0)
    assert tfckpt.prove(path, model).part == "model/inner"


def test_metrics_and_the_next_training_step_are_as_without(flavour, tmp_path) -> None:
    x, y = np.ones((8, *ROW), "float32"), np.zeros((8, 4), "float32")
    ends = []
    for probe in (None, "auto"):
        flavour.utils.set_random_seed(1)
        model = dense(flavour)
        model.compile("adam", "mse", metrics=["mae"])
        model.fit(x, y, epochs=1, verbose=0)
        tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe=probe)
        model.fit(x, y, epochs=2, verbose=0)
        ends.append([w.tolist() for w in model.get_weights()])
    assert ends[0] == ends[1]


def test_a_stateful_layer_is_asked_from_its_start(flavour, tmp_path) -> None:
    def build() -> Any:
        rnn = flavour.layers.LSTM(3, stateful=True)
        return flavour.Sequential([flavour.Input(batch_shape=(2, 5, 4)), rnn])

    model, other = build(), build()
    model(np.ones((2, 5, 4), "float32"))
    path = saved(model, tmp_path)
    other.set_weights(model.get_weights())
    assert tfckpt.prove(path, other).same


def test_verify_function_puts_everything_back(flavour, tmp_path) -> None:
    model, other = dense(flavour), dense(flavour)
    path = saved(model, tmp_path)
    before = [w.tolist() for w in other.get_weights()]
    rename = [
        {"checkpoint": f"model/{one}/**", "model": f"model/{two}/**"} for one, two in ("ab", "ba")
    ]
    with pytest.raises(tfckpt.RestoreError, match="before it calls model/a") as raised:
        tfckpt.restore(path, other, rename=rename, verify="function")
    assert "every variable has its old value again" in str(raised.value)
    assert [w.tolist() for w in other.get_weights()] == before
    tfckpt.restore(path, other, verify="function")
    assert [w.tolist() for w in other.get_weights()] == [w.tolist() for w in model.get_weights()]


def test_without_a_probe_the_error_has_the_line_that_records_one(flavour, tmp_path) -> None:
    model = dense(flavour)
    path = saved(model, tmp_path, None)
    before = model.get_weights()
    report = tfckpt.restore(path, model)
    for call in (report.prove, lambda: tfckpt.restore(path, model, verify="function")):
        with pytest.raises(tfckpt.RestoreError, match=r'save\(…, probe="auto"\)'):
            call()
    assert all(map(np.array_equal, model.get_weights(), before))


def test_a_report_can_be_pickled_and_does_not_keep_its_models(flavour, tmp_path) -> None:
    model = dense(flavour)
    report = tfckpt.restore(saved(model, tmp_path), model)
    assert report.prove().same
    other = pickle.loads(pickle.dumps(report))
    assert str(other) == str(report)
    with pytest.raises(tfckpt.TfckptError, match="is gone"):
        other.prove()


def test_what_is_computed_between_layers_is_the_models_own(flavour, tmp_path) -> None:
    def build(factor: float) -> Any:
        start = flavour.Input(ROW)
        x = flavour.layers.Dense(4, name="a")(start) * factor
        return flavour.Model(start, flavour.layers.Dense(4, name="b")(x))

    other = build(0.25)
    proof = tfckpt.restore(saved(build(0.5), tmp_path), other).prove()
    in_tf_keras = "model/tf.math.multiply"  # where an operation is a layer
    assert proof.part == ("model" if flavour.__name__ == "keras" else in_tf_keras)


def test_a_run_that_records_and_verifies_trains_as_one_without(flavour, tmp_path) -> None:
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    ends = []
    for number, probe in enumerate((None, "auto")):
        flavour.utils.set_random_seed(3)
        model = dense(flavour)
        model.compile("adam", "mse", metrics=["mae"])
        manager = {
            "directory": str(tmp_path / str(number)),
            "save": {"every_steps": 3, "every_epochs": 1},
            **({"probe": probe} if probe else {}),
        }
        restore = {"directory": manager["directory"], "if_none": "initialize"}
        restore |= {"policy": {"verify": "function"}} if probe else {}
        config = {"version": 1, "manager": manager, "restore": restore}
        for epochs in (2, 4):
            run = tfckpt.from_config(config, model)
            callback = run.callback(verbose=0)
            history = model.fit(x, x, 8, epochs=epochs, verbose=0, callbacks=[callback]).history
        ends.append(([w.tolist() for w in model.get_weights()], history))
    assert ends[0] == ends[1]


def test_the_callback_records_with_each_save(flavour, tmp_path) -> None:
    import tfckpt.callbacks

    model, x = dense(flavour), np.ones((8, *ROW), "float32")
    model.compile("sgd", "mse")
    callback = tfckpt.callbacks.resume(model, tmp_path / "run", probe="auto", verbose=0)
    model.fit(x, x, epochs=2, verbose=0, callbacks=[callback])
    assert tfckpt.prove(tmp_path / "run", model).same
    with pytest.raises(tfckpt.PolicyError, match="probe: expected"):
        tfckpt.callbacks.resume(model, tmp_path / "run", probe="all")


def drawing(k: Any) -> Any:
    class Noisy(k.layers.Layer):
        def call(self, x: Any) -> Any:
            return x + np.random.rand()

    return k.Sequential([k.Input(ROW), k.layers.Dense(4), Noisy()])


def unbuilt(k: Any) -> Any:
    return k.Sequential([k.layers.Dense(4)])


def words(k: Any) -> Any:
    return k.Sequential([k.Input((1,), dtype="string"), k.layers.StringLookup(vocabulary=["a"])])


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
    flavour, build: Callable[[Any], Any], probe: Any, reason: str, tmp_path
) -> None:
    with pytest.raises(tfckpt.SaveError, match=reason):
        saved(build(flavour), tmp_path, probe)
    assert not [*tmp_path.rglob("*.index")]


def test_words_are_a_batch(flavour, tmp_path) -> None:
    model = words(flavour)
    path = saved(model, tmp_path, np.array([["a"], ["b"]]))
    assert tfckpt.prove(path, model).same


def test_several_models_have_a_batch_each(flavour, tmp_path) -> None:
    objects = {"generator": dense(flavour), "critic": dense(flavour)}
    checkpoint = tfckpt.Checkpoint(**objects)
    with pytest.raises(tfckpt.SaveError, match="a dict with a batch for each: "):
        checkpoint.save(tmp_path / "a", probe=np.ones((1, 4), "float32"))
    path = checkpoint.save(tmp_path / "a", probe="auto")
    objects["critic"].layers[0].kernel.assign(-objects["critic"].layers[0].kernel)
    assert tfckpt.prove(path, **objects).part == "critic/a"


def test_a_config_records_with_each_save(flavour, tmp_path) -> None:
    model = dense(flavour)
    config = {"version": 1, "manager": {"directory": str(tmp_path / "run"), "probe": "auto"}}
    path = tfckpt.from_config(config, model).save()
    assert tfckpt.prove(path, model).same
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), tmp_path / "own", None)
    assert tfckpt.prove(manager.save(probe="auto"), model).same


def test_a_record_is_bounded_and_says_more_of_the_outer_parts(flavour, tmp_path) -> None:
    x = start = flavour.Input(ROW)
    for n in range(500):
        x = flavour.layers.Activation("tanh", name=f"a_long_name_of_a_layer_{n}")(x)
    model = flavour.Model(start, flavour.layers.Dense(4, name="out")(x))
    path = saved(model, tmp_path)
    proof = tfckpt.inspect(path).record.proof
    assert 32 << 10 < len(json.dumps(proof)) <= 64 << 10
    assert tfckpt.prove(path, model).difference == 0
    model.get_layer("out").bias.assign(np.ones(4))
    assert tfckpt.prove(path, model).part in ("model/out", "model")


def test_equal_digests_are_equal_whatever_else_a_record_says() -> None:
    outputs = decoded(
        encoded({"model": ({"list": []}, [])}) | {"model": {"batch": {}, "outputs": []}}, "p"
    )
    with pytest.raises(tfckpt.TfckptError, match="no part of the model"):
        compared("p", {"model": outputs["model"][1]}, {"model": []}, 0.0)


@pytest.mark.parametrize(
    "batch",
    [
        {"drawn": ["float32", [1 << 40], 2, 0]},
        {"drawn": ["float32", [-1], 2, 0]},
        {"array": ["float32", [9], "AAAA"]},
        {"other": []},
        {},
    ],
)
def test_a_record_that_makes_no_sense_is_damaged(flavour, batch, tmp_path) -> None:
    model = dense(flavour)
    path = saved(model, tmp_path)
    change_record(path, lambda proof: proof["model"].update(batch=batch))
    with pytest.raises(tfckpt.DamagedCheckpointError, match="invalid batch"):
        tfckpt.prove(path, model)


def change_record(path: str, change: Callable[[dict[str, Any]], object]) -> None:
    import hashlib

    file = Path(f"{path}.tfckpt.json")
    body, _, _ = file.read_text().rpartition(',\n"sha256"')
    lines = body.split("\n")
    at = next(n for n, line in enumerate(lines) if line.startswith('"proof"'))
    proof = json.loads("{" + lines[at].rstrip(",") + "}")["proof"]
    change(proof)
    lines[at] = f'"proof": {json.dumps(proof)},'
    body = "\n".join(lines)
    seal = hashlib.sha256(body.encode()).hexdigest()
    file.write_text(f'{body},\n"sha256": "{seal}"\n}}\n')


def test_the_command_says_it_by_its_status(tmp_path, monkeypatch, capsys) -> None:
    import keras

    monkeypatch.chdir(tmp_path)
    Path("model_of_proof.py").write_text(
        "import keras\n"
        "def build():\n"
        "    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name='a')])\n"
    )
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name="a")])
    saved(model, tmp_path / "run")
    saved(model, tmp_path / "without", None)
    command = ["tfckpt", "prove", "run", "--model", "model_of_proof:build"]
    assert main(command) == 1
    assert "model/a is the first part whose output differs" in capsys.readouterr().out
    assert main([*command, "--restore", "run"]) == 0
    assert capsys.readouterr().out == "same function: 2 outputs, bit for bit\n"
    assert main([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["part"] == "model/a"
    assert main(["tfckpt", "prove", "without", "--model", "model_of_proof:build"]) == 2
    assert 'probe="auto"' in capsys.readouterr().err


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
    tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe=batch)
    dropped = np.mean(np.asarray(model(batch, training=True)) == 0)
    assert 0.2 < dropped < 0.8
    assert not tf.config.functions_run_eagerly()


def test_a_restore_that_renames_layers_is_proven(flavour, tmp_path) -> None:
    def stack(first: int) -> Any:
        layers = [flavour.layers.Dense(4, name=f"block{first + n}") for n in range(3)]
        return flavour.Sequential([flavour.Input((4,)), *layers])

    saved, live = stack(1), stack(0)
    path = tfckpt.Checkpoint(model=saved).save(tmp_path / "ckpt", probe="auto")
    rename = [
        {"checkpoint": f"model/block{n + 1}/**", "model": f"model/block{n}/**"} for n in range(3)
    ]
    report = tfckpt.restore(path, live, rename=rename, verify="function")
    assert report.prove().same


@pytest.mark.parametrize("batch", [{"dict": [1]}, {}, {"list": 1}, {"array": ["float32"]}])
def test_a_batch_that_a_record_cannot_hold_is_damage(batch: dict[str, Any]) -> None:
    with pytest.raises(tfckpt.DamagedCheckpointError, match="has an invalid batch"):
        unpacked_batch(batch, "runs/ckpt-1")


def test_averages_are_another_function_than_the_weights_that_were_saved(flavour, tmp_path) -> None:
    def build() -> Any:
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="out")])
        model.compile(flavour.optimizers.Adam(0.1, use_ema=True), "mse")
        model.fit(np.ones((4, 4)), np.ones((4, 2)), epochs=3, verbose=0)
        return model

    path = tfckpt.Checkpoint(model=build()).save(tmp_path / "ckpt", probe="auto")
    other = build()
    before = other.get_weights()
    with pytest.raises(tfckpt.RestoreError, match="about the weights that were saved"):
        tfckpt.restore(path, other, ema="only", include=["model/**"], verify="function")
    for value, then in zip(other.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, then)
    assert tfckpt.restore(path, other, include=["model/**"], verify="function").prove().same


@pytest.mark.parametrize("mask", [-1e9, -3.4e38])
def test_a_mask_does_not_hide_what_is_beside_it(flavour, tmp_path, mask) -> None:
    masked = np.zeros(10, np.float32)
    masked[3] = mask

    class Head(flavour.layers.Dense):
        def call(self, x: Any) -> Any:
            return super().call(x) + masked

    def build() -> Any:
        return flavour.Sequential([flavour.Input((8,)), Head(10, name="head")])

    model, other = build(), build()
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe="auto")
    found = tfckpt.prove(path, other)
    assert not found.same
    assert found.part == "model/head"
    other.set_weights(model.get_weights())
    assert tfckpt.prove(path, other).same
    head = other.get_layer("head")
    head.set_weights([weight * np.float32(1 + 1e-6) for weight in head.get_weights()])
    assert tfckpt.prove(path, other).same
