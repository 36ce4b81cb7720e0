"""Training again between two checkpoints: bit-equal, or the first value that differs."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml
from zoo.command_line import document, run

import tfckpt

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X[:, :2] * 3


def configured(place: Path, **manager: Any) -> str:
    keys = {
        "version": 1,
        "manager": {"directory": str(place / "runs"), **manager},
        "restore": {"directory": str(place / "runs"), "if_none": "initialize"},
    }
    (place / "config.yaml").write_text(yaml.safe_dump(keys))
    return str(place / "config.yaml")


def files(config: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (Path(config).parent / "runs").iterdir()}


def fit(
    keras: Any, config: Any, rate: float = 0.01, shuffled: bool = False, perturbed: bool = False
) -> None:
    """Two epochs of four steps; the further arguments change the program."""

    class Perturb(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if perturbed and int(self.model.optimizer.iterations) == 8:
                self.model.layers[-1].bias.assign_add([0.0, 0.5])

    keras.utils.set_random_seed(1)
    layers = [keras.Input((4,)), keras.layers.Dense(3, name="body")]
    if keras.__name__ == "keras":  # the other's dropout has no state that could be saved
        layers.append(keras.layers.Dropout(0.5, name="drop"))
    model = keras.Sequential([*layers, keras.layers.Dense(2, name="head")])
    schedule = keras.optimizers.schedules.ExponentialDecay(rate, 100, 0.9)
    model.compile(keras.optimizers.SGD(schedule, momentum=0.9), "mse", jit_compile=False)
    seed = list(os.urandom(16))
    order = np.random.default_rng(seed).permutation(len(X)) if shuffled else np.arange(len(X))
    data = tf.data.Dataset.from_tensor_slices((X[order], Y[order])).shuffle(32).batch(8)
    callbacks = [Perturb(), tfckpt.from_config(config, model).callback(verbose=0)]
    model.fit(data, epochs=2, verbose=0, callbacks=callbacks)


def loop(config: Any, noise: float = 0.0, steps: int = 20) -> None:
    weight, step = tf.Variable([1.0, 2.0]), tf.Variable(0)
    run = tfckpt.from_config(config, weight=weight, step=step)
    run.restore()
    random = np.random.default_rng(list(os.urandom(16)))
    while step < steps:
        tf.random.set_seed(int(step))
        weight.assign_add(tf.random.normal([2]) + noise * random.normal())
        step.assign_add(1)
        run.save_if_due(metrics={"sum": float(tf.reduce_sum(weight))})
    run.sync()


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def keras(request) -> Any:
    return importlib.import_module(request.param)


@pytest.fixture(scope="module")
def fitted(keras, tmp_path_factory) -> str:
    """The config of a program that has trained, saved after steps 3, 4, 7 and 8."""
    place = tmp_path_factory.mktemp("fitted")
    config = configured(place, save={"every_steps": 3, "every_epochs": 1})
    fit(keras, config)
    return config


@pytest.fixture(scope="module")
def looped(tmp_path_factory) -> str:
    """The config of a loop that has trained, saved after steps 5, 10, 15 and 20."""
    config = configured(tmp_path_factory.mktemp("looped"), save={"every_steps": 5})
    loop(config)
    return config


@pytest.fixture(autouse=True)
def _nothing_that_is_shared_changes(request):
    shared = [n for n in ("fitted", "looped") if n in request.fixturenames]
    before = [files(request.getfixturevalue(name)) for name in shared]
    yield
    assert [files(request.getfixturevalue(name)) for name in shared] == before


def test_a_seeded_training_is_bit_equal(keras, fitted) -> None:
    found = tfckpt.replay(fitted, lambda config: fit(keras, config), start=1, end=4)
    assert found.same, found
    assert (found.compared, found.step) == (3, 8)
    assert str(found).startswith(f"bit-equal: {Path(fitted).parent / 'runs'}/ckpt-4 (step 8)")


@pytest.mark.parametrize(
    ("change", "start", "path", "name"),
    [
        ({"shuffled": True}, 2, "ckpt-3", "model/body/bias"),
        ({"rate": 0.02}, 1, "ckpt-2", "model/body/bias"),
        ({"perturbed": True}, 1, "ckpt-4", "model/head/bias"),
    ],
    ids=str,
)
def test_a_changed_program_is_found_at_the_first_checkpoint_that_differs(
    keras, fitted, change, start, path, name
) -> None:
    found = tfckpt.replay(fitted, lambda config: fit(keras, config, **change), start=start, end=4)
    assert (found.same, found.path[-6:], found.name, found.kind) == (False, path, name, "value")
    assert found.largest is not None
    assert found.largest > 0
    if change == {"perturbed": True}:
        assert (found.differing, found.largest) == (1, pytest.approx(0.5))
        assert f"{found.name}: value, 1 differ, by at most 0.5" in str(found)
        assert f"{found.different} different, {found.equal} equal" in str(found)


def test_a_save_by_a_signal_or_the_clock_is_made_again_at_its_step(tmp_path) -> None:
    save = {"every_minutes": 1e-9, "on_signal": ["SIGTERM"]}
    config = configured(tmp_path, save=save, max_to_keep=9)
    loop(config, steps=6)
    found = tfckpt.replay(config, lambda config: loop(config, steps=6), start=1, end=5)
    assert (found.same, found.compared) == (True, 4), found


def test_every_setting_of_the_manager_is_taken_over(keras, tmp_path) -> None:
    directory, own = str(tmp_path / "runs of $USER"), {"checkpoint_name": "model"}
    place = {"directory": directory.replace("$", "$$"), **own}
    keys = {
        "version": 1,
        "manager": {
            **place,
            "save": {"every_epochs": 1},
            "keep": [{"best": 9, "monitor": "loss", "mode": "min"}],
            "load_best_when_done": True,
            "enable_async": True,
            "if_busy": "wait",
        },
        "restore": {"first_of": [{**place, "policy": "own"}], "if_none": "initialize"},
        "policies": {"own": {"include": ["**"]}},
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(keys))
    fit(keras, str(file))
    for config in (str(file), keys):
        found = tfckpt.replay(config, lambda config: fit(keras, config), start=1, end=2)
        assert (found.same, found.end) == (True, f"{directory}/model-2"), found


def test_a_loop_of_ones_own(looped) -> None:
    found = tfckpt.replay(looped, loop, start=1, end=4)
    assert (found.same, found.compared, found.step) == (True, 3, 20)
    found = tfckpt.replay(looped, lambda config: loop(config, 0.1), start=1, end=4)
    assert (found.name, found.step, found.differing) == ("weight", 10, 2)


def test_metrics_and_generators_are_compared(tmp_path) -> None:
    config = configured(tmp_path)

    def train(config: str, loss: float = 1.0, draws: int = 1) -> None:
        step = tf.Variable(0)
        run = tfckpt.from_config(config, step=step)
        run.restore()
        for _ in range(3):
            step.assign_add(1)
            np.random.random(draws)
            run.save(metrics={"loss": loss, "nothing": float("nan")})

    np.random.seed(3)
    train(config)
    tfckpt.annotate(tmp_path / "runs" / "ckpt-3", metrics={"later": 1.0})
    assert tfckpt.replay(config, train, start=1, end=3).same
    found = tfckpt.replay(config, lambda path: train(path, 1.25), start=1, end=3)
    assert (found.name, found.kind, found.largest) == ("loss", "metric", 0.25)
    found = tfckpt.replay(config, lambda path: train(path, draws=2), start=1, end=3)
    assert (found.name, found.kind) == ("the generator of numpy", "generator")


def test_another_version_and_another_run_are_said(tmp_path, monkeypatch) -> None:
    config = configured(tmp_path, save={"every_steps": 5})
    with monkeypatch.context() as patch:
        patch.setattr(tf, "__version__", "2.16.0")
        loop(config)
    older = f"the run had tensorflow 2.16.0, and this is {tf.__version__}"
    path = tfckpt.from_config(config, weight=tf.Variable([1.0, 2.0]), step=tf.Variable(20)).save()
    for start, end, said in ((1, 2, (older,)), (3, 5, "the two checkpoints are of different runs")):
        found = tfckpt.replay(config, loop, start=start, end=end)
        assert said == found.warnings or said in found.warnings
        assert found.warnings[0] in str(found)
    Path(f"{path}.tfckpt.json").unlink()
    with pytest.raises(tfckpt.UnsupportedCheckpointError, match="no commit record"):
        tfckpt.replay(config, loop, start=1, end=5)
    with pytest.raises(tfckpt.TfckptError, match="no `manager` section"):
        tfckpt.replay({"version": 1}, loop, start=1, end=5)


def unrestored(config: str) -> None:
    tfckpt.from_config(config, step=tf.Variable(0)).save_if_due()


def fails(_config: str) -> None:
    raise ZeroDivisionError("of the program")


@pytest.mark.parametrize(
    ("train", "start", "end", "error", "reason"),
    [
        (loop, 1, 9, tfckpt.CheckpointNotFoundError, "no checkpoint 9; there are: 1, 2, 3, 4"),
        (loop, 7, 9, tfckpt.CheckpointNotFoundError, "no checkpoint 7"),
        (loop, 2, 2, tfckpt.TfckptError, "checkpoint 2 is not later than checkpoint 2"),
        (lambda _: None, 1, 4, tfckpt.TfckptError, "saved nothing at the step of .*ckpt-4"),
        (unrestored, 1, 4, tfckpt.TfckptError, "without restoring the checkpoint"),
        (fails, 1, 4, ZeroDivisionError, "of the program"),
        (None, 1, 4, tfckpt.TfckptError, "in the run's own directory"),  # takes another config
    ],
)
def test_what_cannot_be_replayed(looped, train, start, end, error, reason) -> None:
    with pytest.raises(error, match=reason):
        tfckpt.replay(looped, train or (lambda _: loop(looped)), start=start, end=end)


def test_the_command_says_it_by_its_status(looped, tmp_path, monkeypatch) -> None:
    (tmp_path / "looping.py").write_text(
        "from test_replay import loop, fails\ndef noisy(config):\n    loop(config, 0.1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    between = ("replay", looped, "--from", "1", "--to", "3", "--train")
    done = run(*between, "looping:loop")
    assert done.status == 0
    assert done.out.startswith("bit-equal: ")
    found = document(*between, "looping:noisy", status=1)
    assert (found["same"], found["name"]) == (False, "weight")
    for wrong in ("looping:fails", "looping:absent", "looping"):
        done = run(*between, wrong)
        assert (done.status, "--train" in done.err) == (2, True)
    assert run(*between[:5], "9", "--train", "looping:loop").status == 2


def two_fits(keras: Any):
    def train(config: str) -> None:
        keras.utils.set_random_seed(1)
        body = keras.layers.Dense(3, name="body")
        model = keras.Sequential([keras.Input((4,)), body, keras.layers.Dense(2, name="head")])
        callback = tfckpt.from_config(config, model).callback(verbose=0)
        body.trainable = False
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(X, Y, batch_size=16, epochs=2, verbose=0, callbacks=[callback])
        scale = float(np.sum(np.abs(model.layers[-1].kernel.numpy())))
        body.trainable = True
        schedule = keras.optimizers.schedules.ExponentialDecay(0.01 * scale, 100, 0.9)
        model.compile(keras.optimizers.SGD(schedule), "mse", jit_compile=False)
        model.fit(X, Y, batch_size=16, epochs=4, verbose=0, callbacks=[callback])

    return train


def test_a_program_of_two_fits(keras, tmp_path) -> None:
    config, train = configured(tmp_path, save={"every_epochs": 1}), two_fits(keras)
    train(config)
    for start, end in ((1, 4), (2, 3), (3, 6)):
        found = tfckpt.replay(config, train, start=start, end=end)
        assert (found.same, found.compared) == (True, end - start), found
