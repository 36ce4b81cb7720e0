"""A ``fit`` that is refused leaves everything as it was, and goes on once the cause is mended."""

from __future__ import annotations

import dataclasses
import itertools
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import tfckpt
from tfckpt.stored.commits import record_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
Y = np.stack([X.sum(1), X.prod(1)], 1)
STEPS, EPOCHS = 3, 4
AGAIN = (
    "to restart that epoch, set `training_state: [epoch, callbacks, seeds]` in the policy "
    '(resume(…, policy={"training_state": ["epoch", "callbacks", "seeds"]}))'
)


@pytest.fixture
def begin(flavour, tmp_path) -> Iterator[Callable[..., Any]]:
    """``begin()``: model and run of one directory, as after a restart."""

    def build(**compiled: Any) -> Any:
        flavour.utils.set_random_seed(1)
        if flavour.__name__ == "tf_keras":
            flavour.backend.experimental.enable_tf_random_generator()
        model = flavour.Sequential(
            [
                flavour.Input((4,)),
                flavour.layers.Dense(3, name="a"),
                flavour.layers.BatchNormalization(name="norm"),
                flavour.layers.Dropout(0.3, name="drop"),
                flavour.layers.Dense(2, name="b"),
            ]
        )
        model.compile(flavour.optimizers.Adam(0.05), "mse", metrics=["mae"], **compiled)
        where = {"directory": str(tmp_path / "run")}
        save = {"every_steps": 1, "every_epochs": 1}
        config = {
            "version": 1,
            "manager": {**where, "save": save, "durable": False},
            "restore": {**where, "if_none": "initialize"},
        }
        return model, tfckpt.from_config(config, model=model)

    yield build
    tf.random.set_seed(None)
    if flavour.__name__ == "tf_keras":  # other tests have layers without its generators
        flavour.backend.experimental.disable_tf_random_generator()


def shuffled() -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(12, seed=5).batch(4)


def generated(last: list[int] | None = None, error: str = "") -> Any:
    """Python's own data; it ends, or fails, at an epoch and batch."""
    epochs = itertools.count()

    def give() -> Any:
        epoch = next(epochs)
        for number in range(STEPS):
            if [epoch, number] == last:
                if error:
                    raise ValueError(error)
                return
            yield X[4 * number : 4 * number + 4], Y[4 * number : 4 * number + 4]

    spec = tuple(tf.TensorSpec((None, each.shape[1]), each.dtype) for each in (X, Y))
    return tf.data.Dataset.from_generator(give, output_signature=spec)


def fit(model: Any, *callbacks: Any, **more: Any) -> Any:
    more = {"epochs": EPOCHS, "verbose": 0, **more}
    return model.fit(**more, callbacks=list(callbacks)).history


def arrays(batch_size: int = 4, **more: Any) -> dict[str, Any]:
    return {"x": X, "y": Y, "batch_size": batch_size, **more}


def variables(model: Any) -> list[Any]:
    """All that exist: of the model, its optimizer, metrics and seeds."""
    of_optimizer = model.optimizer.variables
    of_optimizer = of_optimizer() if callable(of_optimizer) else of_optimizer
    of_metrics = [variable for metric in model.metrics for variable in metric.variables]
    known = {id(v): v for v in (*model.variables, *of_optimizer, *of_metrics)}
    generator = getattr(model.get_layer("drop"), "_random_generator", None)
    if (state := getattr(generator, "_generator", None)) is not None:
        known[id(state)] = state.state
    return list(known.values())


def drawn_from(model: Any = None) -> list[Any]:
    """The state of the process's random generators."""
    numpy = [np.asarray(each).tolist() for each in np.random.get_state()]
    return [random.getstate(), numpy, context.context()._rng.getstate()]


@pytest.fixture
def look(flavour) -> Any:
    """A callback that knows what there was when ``fit`` began, and how often it was told."""

    class Look(flavour.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.generators = drawn_from()
            self.told: list[str] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.told.append(f"epoch {epoch}")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.told.append(f"batch {batch}")

    return Look()


BY_NOW = ", whose values the model has by now"
DATA = f"pass the same dataset to `fit`, created again since it has been read; or, {AGAIN}"
# What is given to `fit` at first, and after the restart; what is refused.
REFUSED: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "batch size": (
        arrays,
        lambda: arrays(2),
        "the checkpoint was saved in the middle of an epoch, and steps per epoch changed from 3 to "
        f"6\n  {AGAIN}",
    ),
    "initial epoch": (
        arrays,
        lambda: arrays(initial_epoch=1),
        "`initial_epoch` changed from 0 to 1, but the checkpoint was saved in the middle of the "
        "training, after epoch 1\n",
    ),
    "another type": (
        lambda: {"x": shuffled()},
        lambda: {"x": shuffled().map(lambda x, y: (x, tf.cast(y, tf.float64)))},
        f"tf.float64, name=None)'): the dataset is not the one of the checkpoint\n  {DATA}",
    ),
    "another pipeline": (
        lambda: {"x": shuffled()},
        lambda: {"x": shuffled().take(STEPS)},
        "the dataset does not accept the saved iterator",
    ),
    "an end in the epoch": (
        lambda: {"x": generated()},
        lambda: {"x": generated([0, 1])},
        f"the dataset ends before batch 2: the dataset is not the one of the checkpoint{BY_NOW}\n"
        f"  {DATA}",
    ),
    "an end before the epoch": (
        lambda: {"x": shuffled().repeat(), "steps_per_epoch": STEPS},
        lambda: {"x": shuffled(), "steps_per_epoch": STEPS},
        "the dataset is not the one of the checkpoint",
    ),
    "a failure": (
        lambda: {"x": generated()},
        lambda: {"x": generated([0, 1], "the data is broken")},
        "the data is broken",
    ),
}


# What shows only when the data is read: the checkpoint is restored by then.
READ = ("another pipeline", "an end in the epoch", "an end before the epoch", "a failure")


@pytest.mark.parametrize("reason", REFUSED)
def test_it_is_refused_and_goes_on_with_what_it_had(
    begin, stop, look, reason, flavour, capsys
) -> None:
    first, then, message = REFUSED[reason]
    whole, _ = begin()
    expected = fit(whole, **first())
    model, run = begin()
    with pytest.raises(KeyboardInterrupt):
        fit(model, run.callback(verbose=0), stop(1, 2), **first())
    model, run = begin()
    model.evaluate(X, Y, verbose=0)  # the metrics are not what they are at first
    model.optimizer.iterations.assign(7)
    there = variables(model)
    values = [np.array(variable) for variable in there]
    capsys.readouterr()
    callback = run.callback()
    if reason in READ:
        with pytest.raises((tfckpt.RestoreError, tf.errors.OpError)) as error:
            fit(model, callback, **then())
        assert message in str(error.value)
        assert "restored" in capsys.readouterr().out
        flavour.utils.set_random_seed(1)
        assert fit(model, callback, **first()) == expected
        for variable, value in zip(variables(model), variables(whole), strict=True):
            np.testing.assert_array_equal(np.array(variable), np.array(value), variable.name)
        return
    with pytest.raises((tfckpt.RestoreError, tf.errors.OpError)) as error:
        fit(model, look, callback, **then())
    assert message in str(error.value)
    for variable, value in zip(there, values, strict=True):
        np.testing.assert_array_equal(np.array(variable), value, variable.name)
    assert drawn_from() == look.generators
    assert look.told == []
    assert (run.epoch, run.report) == (0, None)
    assert "restored" not in capsys.readouterr().out
    # With the same callback the same `fit` goes on, exactly.
    assert fit(model, look, callback, **first()) == expected
    assert look.told[0] == "epoch 1"
    assert (run.epoch, run.report.epoch) == (EPOCHS, 1)
    for variable, value in zip(variables(model), variables(whole), strict=True):
        np.testing.assert_array_equal(np.array(variable), np.array(value), variable.name)


def test_the_model_trains_by_itself_after_it(begin, stop) -> None:
    first, then, _ = REFUSED["batch size"]
    model, run = begin()
    with pytest.raises(KeyboardInterrupt):
        fit(model, run.callback(verbose=0), stop(1, 2), **first())
    whole, _ = begin()
    expected = fit(whole, **first())
    model, run = begin()
    callback = run.callback(verbose=0)
    with pytest.raises(tfckpt.RestoreError):
        fit(model, callback, **then())
    assert fit(model, **first(), validation_data=(X, Y))["loss"] == expected["loss"]


def test_what_ends_it_where_no_callback_is_told_leaves_the_model_to_other_fits(begin, stop) -> None:
    whole, _ = begin()
    expected = fit(whole, **arrays())
    model, run = begin()
    with pytest.raises(KeyboardInterrupt):
        fit(model, run.callback(verbose=0), stop(1, 2), **arrays())
    model, run = begin()
    callback = run.callback(verbose=0)
    weights = model.get_weights()

    def reset() -> None:
        raise KeyboardInterrupt

    vars(model)["reset_metrics"] = reset  # which Keras calls as an epoch begins
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, **arrays())
    del vars(model)["reset_metrics"]
    np.testing.assert_equal(model.get_weights(), weights)
    assert int(model.optimizer.iterations.numpy()) == 0
    assert len(fit(model, **arrays())["loss"]) == EPOCHS
    assert int(model.optimizer.iterations.numpy()) == EPOCHS * STEPS
    assert fit(model, callback, **arrays()) == expected


def test_another_seed_is_refused_before_anything_is_assigned(begin, stop) -> None:
    model, run = begin()
    with pytest.raises(KeyboardInterrupt):
        fit(model, run.callback(verbose=0), stop(1, 2), **arrays())
    model, run = begin()
    tf.random.set_seed(2)
    there = variables(model)
    values = [np.array(variable) for variable in there]
    with pytest.raises(tfckpt.RestoreError) as error:
        fit(model, run.callback(verbose=0), **arrays())
    assert str(error.value) == (
        "the global seed was 1 and is now 2: the data of later epochs would come in another "
        "order\n  call keras.utils.set_random_seed(1) before creating the dataset, as before; or, "
        "to restart that epoch with another seed, set `training_state: [epoch, callbacks]` in the "
        "policy "
        '(resume(…, policy={"training_state": ["epoch", "callbacks"]}))'
    )
    np.testing.assert_equal([np.array(variable) for variable in there], values)


WRONG = {"generators": {"python": [3, "AAAA", None]}, "logs": {"loss": "0.5"}, "arrays": [[1]]}


@pytest.mark.parametrize("part", WRONG)
def test_a_damaged_record_is_refused_before_anything_is_assigned(begin, stop, part) -> None:
    model, run = begin()
    with pytest.raises(KeyboardInterrupt):
        fit(model, run.callback(verbose=0), stop(1, 2), **arrays())
    *older, newest = run.manager.checkpoints
    for path in older:
        Path(f"{path}.tfckpt.json").unlink()
        for file in Path(path).parent.glob(f"{Path(path).name}.*"):
            file.unlink()
    path = Path(f"{newest}.tfckpt.json")
    found = record_file.parse(path.read_bytes(), str(path), newest)
    position = {**found.training["fit"], part: WRONG[part]}
    training = {**found.training, "fit": position}
    path.write_bytes(record_file.render(dataclasses.replace(found, training=training)))
    model, run = begin()
    there = variables(model)
    values = [np.array(variable) for variable in there]
    with pytest.raises(
        tfckpt.DamagedCheckpointError, match="the commit record's 'training' has an invalid"
    ):
        fit(model, run.callback(verbose=0), **arrays())
    np.testing.assert_equal([np.array(variable) for variable in there], values)
    assert run.report is None
