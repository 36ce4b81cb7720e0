"""``on_exception``: what is saved when an exception ends a training, and when nothing is."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.fits import X, Y, saved

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EPOCHS, BATCHES = 3, 3


class Boom(Exception):
    """What a user's code raises."""


def build(keras: Any) -> Any:
    """A model whose training changes weights, moving averages, slots and metrics."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dense(2)]
    )
    model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
    return model


def state(model: Any) -> list[np.ndarray]:
    return [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def counting(keras: Any) -> Any:
    """A callback of a user's that counts the ends of batches and epochs, and says so."""

    class Counting(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.seen = [0, 0]

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen[0] += 1

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seen[1] += 1

        def get_state(self) -> Any:
            return {"seen": self.seen}

        def set_state(self, state: Any) -> None:
            self.seen = state["seen"]

    return Counting()


def raising(keras: Any, hook: str, when: int, error: type[BaseException] = Boom) -> Any:
    """A callback that raises when it is told something for the so many-th time."""
    told: list[int] = []

    def tell(*_: Any, **__: Any) -> None:
        told.append(1)
        if len(told) == when:
            raise error("as a user's code does")

    methods = {hook: lambda self, *arguments, **more: tell()}
    return type("Raising", (keras.callbacks.Callback,), methods)()


def fit(keras: Any, model: Any, *callbacks: Any, directory: Path | None = None, **more: Any) -> Any:
    own = []
    if directory is not None:
        own = [tfckpt.callbacks.resume(model, directory, on_exception=True, verbose=0)]
    options = {"epochs": EPOCHS, "batch_size": 4, "verbose": 0, "validation_data": (X[:6], Y[:6])}
    return model.fit(X, Y, callbacks=[*own, *callbacks], **{**options, **more})


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(
    ("hook", "when", "step"),
    [
        ("on_train_batch_end", 5, 5),
        ("on_train_batch_end", BATCHES, BATCHES),
        ("on_train_batch_begin", 5, 4),
        ("on_epoch_begin", 2, BATCHES),
        ("on_epoch_end", 2, 2 * BATCHES),
        ("on_test_begin", 2, 2 * BATCHES),
        ("on_test_batch_end", 2, BATCHES),
    ],
)
def test_a_training_ended_by_a_callback_goes_on_exactly(
    flavour: Any, tmp_path: Path, hook: str, when: int, step: int, last: bool
) -> None:
    whole, count = build(flavour), counting(flavour)
    history = fit(flavour, whole, count).history
    model, raises = build(flavour), raising(flavour, hook, when)
    between = [counting(flavour), raises] if last else [raises, counting(flavour)]
    with pytest.raises(Boom):
        fit(flavour, model, *between, directory=tmp_path / "run")
    newest = tf.train.latest_checkpoint(str(tmp_path / "run"))
    record = tfckpt.inspect(newest).record
    assert record is not None
    assert record.step == step
    again, counted = build(flavour), counting(flavour)
    resumed = fit(flavour, again, counted, raising(flavour, hook, 0), directory=tmp_path / "run")
    np.testing.assert_equal(state(again), state(whole))
    assert counted.seen == count.seen == [EPOCHS * BATCHES, EPOCHS]
    assert resumed.history == history


def test_a_step_that_raises_saves_nothing_and_says_so(
    flavour: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build(flavour)

    def batches() -> Any:
        for number in range(5):
            if number == 4:
                raise Boom
            yield X[:4], Y[:4]

    specs = tf.TensorSpec((4, 4)), tf.TensorSpec((4, 2))
    data = tf.data.Dataset.from_generator(batches, output_signature=specs)
    callback = tfckpt.callbacks.resume(model, tmp_path / "run", save_freq=2, on_exception=True)
    with pytest.raises(tf.errors.OpError, match="Boom"):
        model.fit(data, epochs=1, verbose=0, callbacks=[callback])
    out = capsys.readouterr().out
    assert "not saved, since the step that raised it may have changed part of the values" in out
    assert f"the newest checkpoint is {tmp_path}/run/ckpt-2" in out
    assert saved(callback.tfckpt_run) == ["ckpt-1", "ckpt-2"]
    assert "evaluate" not in vars(model)


def test_plain_keras_has_begun_a_step_whose_data_raises(flavour: Any) -> None:
    """The fact behind it: what does not need the batch is computed while it is awaited."""
    model = build(flavour)

    def batches() -> Any:
        for _ in range(2):
            yield X[:4], Y[:4]
        end = time.monotonic() + 10
        while int(model.optimizer.iterations) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        raise Boom

    specs = tf.TensorSpec((4, 4)), tf.TensorSpec((4, 2))
    data = tf.data.Dataset.from_generator(batches, output_signature=specs)
    with pytest.raises(tf.errors.OpError, match="Boom"):
        model.fit(data, epochs=1, verbose=0)
    assert int(model.optimizer.iterations) == 3


def test_ctrl_c_in_a_step_says_what_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import keras

    class Model(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            if self.optimizer.iterations > 0:
                raise KeyboardInterrupt
            return super().train_step(data)

    model = Model([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", run_eagerly=True)
    callback = tfckpt.callbacks.resume(model, tmp_path, on_exception=True)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, batch_size=4, verbose=0, callbacks=[callback])
    assert "with `on_signal: [SIGINT]`, Ctrl-C saves at the end of" in capsys.readouterr().out
    assert saved(callback.tfckpt_run) == []


def test_who_was_told_too_early_is_named(
    flavour: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A restart would tell it again of a beginning that it may have counted."""
    counts: list[int] = []
    early = type(
        "Early",
        (flavour.callbacks.Callback,),
        {"on_epoch_begin": lambda self, epoch, logs=None: counts.append(epoch)},
    )()
    model = build(flavour)
    callback = tfckpt.callbacks.resume(model, tmp_path, on_exception=True, save_freq=2)
    with pytest.raises(Boom):
        fit(flavour, model, callback, early, raising(flavour, "on_epoch_begin", 2))
    assert "a restart would call on_epoch_begin of Early again" in capsys.readouterr().out
    before = saved(callback.tfckpt_run)
    assert int(callback.tfckpt_run.manager.latest_checkpoint[-1]) == len(before)


def test_without_the_option_nothing_is_saved(flavour: Any, tmp_path: Path) -> None:
    model = build(flavour)
    callback = tfckpt.callbacks.resume(model, tmp_path, verbose=0)
    with pytest.raises(Boom):
        fit(flavour, model, callback, raising(flavour, "on_train_batch_end", 2))
    assert saved(callback.tfckpt_run) == []


def test_before_the_first_step_there_is_nothing_to_save(
    flavour: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build(flavour)
    callback = tfckpt.callbacks.resume(model, tmp_path, on_exception=True)
    with pytest.raises(Boom):
        fit(flavour, model, callback, raising(flavour, "on_epoch_begin", 1))
    assert "saved " not in capsys.readouterr().out
    assert saved(callback.tfckpt_run) == []


def test_what_is_saved_already_is_not_saved_again(
    flavour: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build(flavour)
    callback = tfckpt.callbacks.resume(model, tmp_path, save_freq=1, on_exception=True)
    with pytest.raises(Boom):
        fit(flavour, model, callback, raising(flavour, "on_train_batch_begin", 3))
    assert saved(callback.tfckpt_run) == ["ckpt-1", "ckpt-2"]
    assert f"Boom: saved {tmp_path}/ckpt-2" in capsys.readouterr().out


def test_a_save_that_fails_does_not_hide_the_exception(
    flavour: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build(flavour)
    callback = tfckpt.callbacks.resume(model, tmp_path / "run", on_exception=True)

    class Fails(flavour.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            for path in (tmp_path / "run").iterdir():
                path.unlink()
            (tmp_path / "run").rmdir()
            (tmp_path / "run").write_text("no directory any more")
            raise Boom

    with pytest.raises(Boom):
        fit(flavour, model, callback, Fails())
    out = capsys.readouterr().out
    assert "Boom: not saved, because the save failed: " in out


def test_an_error_of_another_callback_does_not_hide_the_first(
    flavour: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build(flavour)
    callback = tfckpt.callbacks.resume(model, tmp_path, on_exception=True)
    others = [raising(flavour, "on_epoch_end", 1, error) for error in (Boom, OSError)]
    with pytest.raises(Boom):
        fit(flavour, model, callback, *others)
    assert "not saved, since another callback raised OSError" in capsys.readouterr().out
    assert saved(callback.tfckpt_run) == []


def test_an_evaluation_that_raises_leaves_the_metrics_of_the_training(
    flavour: Any, tmp_path: Path
) -> None:
    """The loss of the epoch is in its history, though the evaluation had begun to measure."""
    whole = build(flavour)
    history = fit(flavour, whole).history
    model = build(flavour)

    def bad() -> Any:
        yield X[:4], Y[:4]
        raise Boom

    specs = tf.TensorSpec((4, 4)), tf.TensorSpec((4, 2))
    data = tf.data.Dataset.from_generator(bad, output_signature=specs)
    with pytest.raises(tf.errors.OpError, match="Boom"):
        fit(flavour, model, directory=tmp_path, validation_data=data)
    again = build(flavour)
    assert fit(flavour, again, directory=tmp_path).history == history
    np.testing.assert_equal(state(again), state(whole))


# Loops


@pytest.fixture
def loop(flavour: Any, tmp_path: Path) -> Callable[..., Any]:
    """``loop(raises)``: a model that is trained for 6 steps, and its run."""

    def train(
        during: Callable[[int], None] = lambda number: None,
        between: Callable[[int], None] = lambda number: None,
        *,
        marked: bool = True,
        **save: Any,
    ) -> tuple[Any, Any]:
        model, step = build(flavour), tf.Variable(0, dtype=tf.int64)
        where = {"directory": str(tmp_path / "run")}
        config = {
            "version": 1,
            "manager": {**where, "save": {"on_exception": True, "every_steps": 100, **save}},
            "restore": {**where, "if_none": "initialize"},
        }
        run = tfckpt.from_config(config, model=model, step=step)
        run.restore()
        train.run = run  # type: ignore[attr-defined]

        def work(number: int) -> None:
            model.train_on_batch(X[number : number + 4], Y[number : number + 4])
            during(number)
            step.assign_add(1)

        with run:
            for number in range(int(step.numpy()), 6):
                between(number)
                if marked:
                    with run.step():
                        work(number)
                else:
                    work(number)
                run.save_if_due()
        return model, run

    return train


def fails(at: int) -> Callable[[int], None]:
    def check(number: int) -> None:
        if number == at:
            raise Boom

    return check


def test_a_loop_that_ends_between_two_steps_goes_on_exactly(
    loop: Any, flavour: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "absl"), pytest.raises(Boom):
        loop(between=fails(4))
    assert f"Boom: saved {tmp_path}/run/ckpt-1" in caplog.text
    model, run = loop()
    assert run.report.step == 4
    whole = build(flavour)
    for number in range(6):
        whole.train_on_batch(X[number : number + 4], Y[number : number + 4])
    np.testing.assert_equal(state(model), state(whole))


def test_a_loop_that_ends_in_a_step_saves_nothing(
    loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "absl"), pytest.raises(Boom):
        loop(during=fails(4), every_steps=3)
    assert "not saved, since the step that raised it may have changed part of" in caplog.text
    assert saved(loop.run) == ["ckpt-1"]


def test_a_loop_without_marked_steps_is_told_to_mark_them(
    loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "absl"), pytest.raises(Boom):
        loop(between=fails(4), marked=False)
    assert "mark each by `with run.step():`" in caplog.text
    assert saved(loop.run) == []


def test_a_step_whose_error_was_handled_is_followed_by_others(loop: Any) -> None:
    """What the program goes on with is what it saves."""
    _, run = loop()
    with pytest.raises(Boom), run.step():
        raise Boom
    with run.step():
        pass
    with pytest.raises(Boom), run:
        raise Boom
    assert saved(run) == ["ckpt-1"]


def test_what_an_exception_alone_would_save_is_never_due_in_a_loop(
    flavour: Any, tmp_path: Path
) -> None:
    manager = {"directory": str(tmp_path), "save": {"on_exception": True}}
    run = tfckpt.from_config({"version": 1, "manager": manager}, build(flavour))
    with pytest.raises(tfckpt.TfckptError, match=r"`manager\.save` has only `on_exception`"):
        run.save_if_due()


def test_a_loop_without_an_exception_ends_with_sync(loop: Any) -> None:
    _, run = loop(every_steps=2)
    assert saved(run) == ["ckpt-1", "ckpt-2", "ckpt-3"]
