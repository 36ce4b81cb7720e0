"""Training again between two checkpoints: bit-equal, or the first value that differs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
import yaml
from zoo.command_line import document, run

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X[:, :2] * 3


class Program:
    """Trains with a config; what is set on it changes the program."""

    def __init__(self, flavour: Any, directory: Path) -> None:
        self.flavour, self.directory = flavour, directory
        self.rate, self.shuffled, self.callbacks = 0.01, False, []
        self.restores, self.epochs = True, 3
        self.config = str(directory / "config.yaml")
        self.runs = directory / "runs"
        self.write(save={"every_steps": 3, "every_epochs": 1})

    def write(self, **manager: Any) -> None:
        keys = {
            "version": 1,
            "manager": {"directory": str(self.runs), **manager},
            "restore": {"directory": str(self.runs), "if_none": "initialize"},
        }
        Path(self.config).write_text(yaml.safe_dump(keys))

    def model(self) -> Any:
        keras = self.flavour
        keras.utils.set_random_seed(1)
        layers = [keras.Input((4,)), keras.layers.Dense(3, name="body")]
        if keras.__name__ == "keras":  # the other's dropout has no state that could be saved
            layers.append(keras.layers.Dropout(0.5, name="drop"))
        model = keras.Sequential([*layers, keras.layers.Dense(2, name="head")])
        schedule = keras.optimizers.schedules.ExponentialDecay(self.rate, 100, 0.9)
        model.compile(keras.optimizers.SGD(schedule, momentum=0.9), "mse")
        return model

    def __call__(self, config: str) -> None:
        model = self.model()
        x, y = X, Y
        if self.shuffled:
            order = np.random.default_rng(list(os.urandom(16))).permutation(len(X))
            x, y = X[order], Y[order]
        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(32).batch(8)
        run = tfckpt.from_config(config, model)
        callbacks = [*self.callbacks, *([run.callback(verbose=0)] if self.restores else [])]
        model.fit(data, epochs=self.epochs, verbose=0, callbacks=callbacks)

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.runs.iterdir()}


@pytest.fixture
def program(flavour, tmp_path) -> Program:
    """A program that has trained: 4 steps an epoch, saved after each third step and each epoch."""
    found = Program(flavour, tmp_path)
    found(found.config)
    return found


def steps(program: Program) -> dict[int, int]:
    found = tfckpt.list_checkpoints(program.runs)
    return {one.number: one.head.step for one in found if one.head is not None}


def test_a_seeded_training_is_bit_equal(program: Program) -> None:
    before = program.files()
    last = max(steps(program))
    found = tfckpt.replay(program.config, program, start=1, end=last)
    assert found.same, found
    assert (found.compared, found.step) == (last - 1, 12)
    assert str(found).startswith(f"bit-equal: {program.runs}/ckpt-{last} (step 12)")
    assert program.files() == before


def test_another_order_of_the_data_is_found(program: Program) -> None:
    program.shuffled = True
    found = tfckpt.replay(program.config, program, start=2, end=5)
    assert (found.same, found.name, found.kind) == (False, "model/body/bias", "value")
    assert found.largest is not None
    assert found.largest > 0


def test_a_changed_learning_rate_is_found_at_the_first_checkpoint(program: Program) -> None:
    before, program.rate = program.files(), 0.02
    found = tfckpt.replay(program.config, program, start=1, end=5)
    assert (found.name, found.path) == ("model/body/bias", f"{program.runs}/ckpt-2")
    assert program.files() == before


def test_a_perturbed_weight_is_named_with_how_much(program: Program, flavour) -> None:
    class Perturb(flavour.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if int(self.model.optimizer.iterations) == 8:
                bias = self.model.layers[-1].bias
                bias.assign_add([0.0, 0.5])

    program.callbacks = [Perturb()]
    numbers = {step: number for number, step in sorted(steps(program).items())}
    found = tfckpt.replay(program.config, program, start=1, end=numbers[8])
    assert (found.name, found.differing) == ("model/head/bias", 1)
    assert found.largest == pytest.approx(0.5)
    assert f"{found.name}: value, 1 differ, by at most 0.5" in str(found)
    assert f"{found.different} different, {found.equal} equal" in str(found)


def test_a_save_by_a_signal_or_the_clock_is_made_again_at_its_step(flavour, tmp_path) -> None:
    program = Program(flavour, tmp_path)
    program.write(save={"every_minutes": 1e-9, "on_signal": ["SIGTERM"]}, max_to_keep=9)
    program(program.config)
    first, *_, last = sorted(steps(program))
    found = tfckpt.replay(program.config, program, start=first, end=last - 3)
    assert found.same, found
    assert found.compared == last - 3 - first


def test_every_setting_of_the_manager_is_taken_over(flavour, tmp_path) -> None:
    program = Program(flavour, tmp_path)
    program.runs = tmp_path / "runs of $USER"
    rule = {"best": 9, "monitor": "loss", "mode": "min"}
    keys = {
        "version": 1,
        "manager": {
            "directory": str(program.runs).replace("$", "$$"),
            "checkpoint_name": "model",
            "save": {"every_epochs": 1},
            "keep": [rule],
            "load_best_when_done": True,
            "enable_async": True,
            "if_busy": "wait",
        },
        "restore": {
            "first_of": [
                {
                    "directory": str(program.runs).replace("$", "$$"),
                    "checkpoint_name": "model",
                    "policy": "own",
                }
            ],
            "if_none": "initialize",
        },
        "policies": {"own": {"include": ["**"]}},
    }
    Path(program.config).write_text(yaml.safe_dump(keys))
    program(program.config)
    for config in (program.config, keys):
        found = tfckpt.replay(config, program, start=1, end=3)
        assert found.same, found
        assert found.end == f"{program.runs}/model-3"


def loop(config: str, noise: float = 0.0) -> None:
    weight, step = tf.Variable([1.0, 2.0]), tf.Variable(0)
    run = tfckpt.from_config(config, weight=weight, step=step)
    run.restore()
    random = np.random.default_rng(list(os.urandom(16)))
    while step < 20:
        tf.random.set_seed(int(step))
        weight.assign_add(tf.random.normal([2]) + noise * random.normal())
        step.assign_add(1)
        run.save_if_due(metrics={"sum": float(tf.reduce_sum(weight))})
    run.sync()


def test_a_loop_of_ones_own(tmp_path) -> None:
    program = Program(None, tmp_path)
    program.write(save={"every_steps": 5})
    loop(program.config)
    found = tfckpt.replay(program.config, loop, start=1, end=4)
    assert (found.same, found.compared, found.step) == (True, 3, 20)
    found = tfckpt.replay(program.config, lambda config: loop(config, 0.1), start=1, end=4)
    assert (found.name, found.step, found.differing) == ("weight", 10, 2)


def test_metrics_and_generators_are_compared(tmp_path) -> None:
    program = Program(None, tmp_path)
    program.write()

    def train(config: str, loss: float = 1.0, draws: int = 1) -> None:
        step = tf.Variable(0)
        run = tfckpt.from_config(config, step=step)
        run.restore()
        for _ in range(3):
            step.assign_add(1)
            np.random.random(draws)
            run.save(metrics={"loss": loss, "nothing": float("nan")})

    np.random.seed(3)
    train(program.config)
    tfckpt.annotate(program.runs / "ckpt-3", metrics={"later": 1.0})
    assert tfckpt.replay(program.config, train, start=1, end=3).same
    found = tfckpt.replay(program.config, lambda path: train(path, 1.25), start=1, end=3)
    assert (found.name, found.kind, found.largest) == ("loss", "metric", 0.25)
    found = tfckpt.replay(program.config, lambda path: train(path, draws=2), start=1, end=3)
    assert (found.name, found.kind) == ("the generator of numpy", "generator")


def test_another_version_of_tensorflow_is_said(tmp_path, monkeypatch) -> None:
    program = Program(None, tmp_path)
    program.write(save={"every_steps": 5})
    with monkeypatch.context() as patch:
        patch.setattr(tf, "__version__", "2.16.0")
        loop(program.config)
    found = tfckpt.replay(program.config, loop, start=1, end=2)
    assert found.same
    assert found.warnings == (f"the run had tensorflow 2.16.0, and this is {tf.__version__}",)
    assert found.warnings[0] in str(found)


def test_checkpoints_of_two_runs_in_one_directory(looped: Program) -> None:
    weight, step = tf.Variable([1.0, 2.0]), tf.Variable(20)
    run = tfckpt.from_config(looped.config, weight=weight, step=step)
    run.save()
    found = tfckpt.replay(looped.config, loop, start=3, end=5)
    assert found.warnings == ("the two checkpoints are of different runs",)


def nothing(_config: str) -> None:
    """Trains nothing."""


def unrestored(config: str) -> None:
    run = tfckpt.from_config(config, step=tf.Variable(0))
    run.save_if_due()


def fails(_config: str) -> None:
    raise ZeroDivisionError("of the program")


@pytest.fixture
def looped(tmp_path) -> Program:
    program = Program(None, tmp_path)
    program.write(save={"every_steps": 5})
    loop(program.config)
    return program


@pytest.mark.parametrize(
    ("train", "start", "end", "error", "reason"),
    [
        (loop, 1, 9, tfckpt.CheckpointNotFoundError, "no checkpoint 9; there are: 1, 2, 3, 4"),
        (loop, 7, 9, tfckpt.CheckpointNotFoundError, "no checkpoint 7"),
        (loop, 2, 2, tfckpt.TfckptError, "checkpoint 2 is not later than checkpoint 2"),
        (nothing, 1, 4, tfckpt.TfckptError, "saved nothing at the step of .*ckpt-4"),
        (unrestored, 1, 4, tfckpt.TfckptError, "without restoring the checkpoint"),
        (fails, 1, 4, ZeroDivisionError, "of the program"),
    ],
)
def test_what_cannot_be_replayed(
    looped: Program, train: Callable[[str], None], start: int, end: int, error: Any, reason: str
) -> None:
    before = looped.files()
    with pytest.raises(error, match=reason):
        tfckpt.replay(looped.config, train, start=start, end=end)
    assert looped.files() == before


def test_a_checkpoint_of_another_program_has_no_step(looped: Program) -> None:
    (looped.runs / "ckpt-4.tfckpt.json").unlink()
    with pytest.raises(tfckpt.UnsupportedCheckpointError, match="no commit record"):
        tfckpt.replay(looped.config, loop, start=1, end=4)


def test_a_config_that_saves_nothing(looped: Program) -> None:
    with pytest.raises(tfckpt.TfckptError, match="no `manager` section"):
        tfckpt.replay({"version": 1}, loop, start=1, end=4)


def test_the_command_says_it_by_its_status(looped: Program, monkeypatch) -> None:
    (looped.directory / "looping.py").write_text(
        "from test_replay import loop, fails\ndef noisy(config):\n    loop(config, 0.1)\n"
    )
    monkeypatch.syspath_prepend(str(looped.directory))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    between = ("replay", looped.config, "--from", "1", "--to", "3", "--train")
    done = run(*between, "looping:loop")
    assert done.status == 0
    assert done.out.startswith("bit-equal: ")
    found = document(*between, "looping:noisy", status=1)
    assert (found["same"], found["name"]) == (False, "weight")
    for wrong in ("looping:fails", "looping:absent", "looping"):
        done = run(*between, wrong)
        assert (done.status, "--train" in done.err) == (2, True)
    assert run(*between[:5], "9", "--train", "looping:loop").status == 2


def two_fits(flavour: Any) -> Callable[[str], None]:
    def train(config: str) -> None:
        keras = flavour
        keras.utils.set_random_seed(1)
        body = keras.layers.Dense(3, name="body")
        model = keras.Sequential([keras.Input((4,)), body, keras.layers.Dense(2, name="head")])
        callback = tfckpt.from_config(config, model).callback(verbose=0)
        body.trainable = False
        model.compile("sgd", "mse")
        model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[callback])
        scale = float(np.sum(np.abs(model.layers[-1].kernel.numpy())))
        body.trainable = True
        schedule = keras.optimizers.schedules.ExponentialDecay(0.01 * scale, 100, 0.9)
        model.compile(keras.optimizers.SGD(schedule), "mse")
        model.fit(X, Y, batch_size=8, epochs=4, verbose=0, callbacks=[callback])

    return train


@pytest.mark.parametrize(("start", "end"), [(1, 4), (2, 3), (3, 6)])
def test_a_program_of_two_fits(flavour, tmp_path, start: int, end: int) -> None:
    program, train = Program(flavour, tmp_path), two_fits(flavour)
    program.write(save={"every_epochs": 1})
    train(program.config)
    found = tfckpt.replay(program.config, train, start=start, end=end)
    assert (found.same, found.compared) == (True, end - start), found


def test_a_program_that_takes_another_config_ends_before_it_changes_the_run(
    looped: Program,
) -> None:
    before = looped.files()
    with pytest.raises(tfckpt.TfckptError, match="in the run's own directory"):
        tfckpt.replay(looped.config, lambda _: loop(looped.config), start=1, end=4)
    assert looped.files() == before
