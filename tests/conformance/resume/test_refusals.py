"""What cannot go on exactly is refused before a step, leaves all as it was, or is said."""

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
import tfckpt.callbacks
from tfckpt.stored.commits import record_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
Y = np.stack([X.sum(1), X.prod(1)], 1)
STEPS = 3


@pytest.fixture
def begin(flavour, tmp_path) -> Callable[..., Any]:
    """``begin(seed=1)``: model and callback of one directory, as after a restart."""

    def build(
        *, seed: int | None = 1, policy: Any = None, verbose: int = 0, **compiled: Any
    ) -> Any:
        import tensorflow as tf

        tf.random.set_seed(seed)
        model = flavour.Sequential(
            [
                flavour.Input((4,)),
                flavour.layers.Dense(
                    2, name="a", kernel_initializer=flavour.initializers.GlorotUniform(seed=3)
                ),
            ]
        )
        model.compile(flavour.optimizers.Adam(0.05), "mse", metrics=["mae"], **compiled)
        where = str(tmp_path / "run")
        config = {
            "version": 1,
            "manager": {"directory": where, "save": {"every_steps": 1, "every_epochs": 1}},
            "restore": {"directory": where, "if_none": "initialize", "policy": policy or {}},
        }
        return model, tfckpt.from_config(config, model=model).callback(verbose)

    yield build
    import tensorflow as tf

    tf.random.set_seed(None)


def fit(model: Any, *callbacks: Any, **more: Any) -> Any:
    more = {"x": X, "y": Y, "batch_size": 4, "epochs": 4, "verbose": 0, **more}
    return model.fit(**more, callbacks=list(callbacks))


def interrupt(begin: Any, stop: Any, at: tuple[int, int], **more: Any) -> None:
    model, callback = begin()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, stop(*at), **more)


def test_without_batch_in_the_policy_the_epoch_begins_anew(begin, stop) -> None:
    interrupt(begin, stop, (1, 2))
    model, callback = begin(policy={"training_state": ["epoch", "seeds", "callbacks"]})
    assert fit(model, callback).epoch == [0, 1, 2, 3]
    assert int(model.optimizer.iterations.numpy()) == STEPS + 2 + 3 * STEPS


@pytest.mark.parametrize("given", [{"policy": {"training_state": ["epoch"]}}, {}])
def test_an_epoch_that_begins_again_measures_its_own_batches(begin, stop, flavour, given) -> None:
    interrupt(begin, stop, (1, 2) if given else (2, 0), shuffle=False)
    model, callback = begin(**given)
    model(X)
    first = 1 if given else 2
    losses: list[float] = []

    class Look(flavour.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            part = slice(4 * batch, 4 * batch + 4)
            losses.append(float(np.mean((model(X[part]).numpy() - Y[part]) ** 2)))

    # One that is used before it is resumed has its metrics by then.
    model.evaluate(X, Y, verbose=0)
    begins = {} if given else {"initial_epoch": 2}
    seen = fit(model, callback, Look(), epochs=first + 1, shuffle=False, **begins).history["loss"]
    np.testing.assert_allclose(seen[-1], np.mean(losses), rtol=1e-5)


def test_data_that_is_drawn_without_a_seed_is_said_before_it_trains(begin, capsys) -> None:
    model, callback = begin(seed=None, verbose=1)
    fit(model, callback, epochs=1)
    out = capsys.readouterr().out
    assert "the dataset is random without a seed" in out
    assert out.index("without a seed") < out.index("saved")
    model, callback = begin(seed=None, verbose=1)
    fit(model, callback, epochs=2, shuffle=False)
    assert "without a seed" not in capsys.readouterr().out


def test_each_sample_comes_once_in_an_epoch_that_was_drawn_without_a_seed(
    flavour, tmp_path, stop
) -> None:
    import tensorflow as tf

    bits = (2.0 ** np.arange(12)).astype(np.float32).reshape(12, 1)

    def met(y_true: Any, y_pred: Any) -> Any:
        return y_true[:, 0]

    def data() -> Any:
        return tf.data.Dataset.from_tensor_slices((X, bits)).shuffle(12).batch(4)

    def train(*others: Any) -> Any:
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(1, name="a")])
        model.compile("sgd", "mse", metrics=[met])
        resume = tfckpt.callbacks.resume(model, tmp_path / "run", save_freq=1, verbose=0)
        return fit(model, resume, *others, x=data(), y=None, batch_size=None, epochs=1)

    with pytest.raises(KeyboardInterrupt):
        train(stop(0, 2))
    assert train().history["met"] == [float(np.mean(bits))]  # which each sample is in once


def test_the_keyword_training_is_the_callbacks_own(flavour) -> None:
    import tensorflow as tf

    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2)])
    run = tfckpt.from_config({"version": 1}, model=model, training=tf.Variable(1))
    with pytest.raises(tfckpt.TfckptError, match="keyword 'training'"):
        run.callback()


def test_dropout_whose_state_cannot_be_saved_is_said(tmp_path, capsys) -> None:
    import tf_keras

    model = tf_keras.Sequential(
        [tf_keras.Input((4,)), tf_keras.layers.Dropout(0.5, name="drop"), tf_keras.layers.Dense(2)]
    )
    model.compile("sgd", "mse")
    fit(model, tfckpt.callbacks.resume(model, tmp_path / "run"), epochs=1)
    assert "a training step draws by RandomUniform in sequential" in capsys.readouterr().out


def test_the_metric_decides_what_is_best(flavour, tmp_path) -> None:
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])
    with pytest.raises(tfckpt.PolicyError, match="save_freq: expected more than 0"):
        tfckpt.callbacks.resume(model, tmp_path, save_freq=0)
    with pytest.raises(tfckpt.PolicyError, match="on_signal"):
        tfckpt.callbacks.resume(model, tmp_path, on_signal=["SIGKILL"])
    with pytest.raises(AttributeError, match="no attribute 'resumes'"):
        _ = tfckpt.callbacks.resumes


def dataset(values: Any) -> dict[str, Any]:
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices((values, Y)).shuffle(12).batch(4)
    return {"x": data, "y": None, "batch_size": None}


@pytest.mark.parametrize("given", [lambda x: {"x": x}, dataset], ids=["arrays", "dataset"])
def test_data_of_other_values_is_refused_in_mid_epoch_and_said_at_its_end(
    begin, stop, capsys, given
) -> None:
    interrupt(begin, stop, (1, 2), **given(X))
    model, callback = begin(verbose=1)
    before = model.get_weights()
    with pytest.raises(
        tfckpt.RestoreError, match="with other values: the dataset is not the one of"
    ):
        fit(model, callback, **given(X + 1))
    np.testing.assert_equal(model.get_weights(), before)
    assert int(model.optimizer.iterations.numpy()) == 0
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, stop(2, 0), **given(X.copy()))
    capsys.readouterr()
    model, callback = begin(verbose=1)
    assert fit(model, callback, **given(X + 1)).epoch == [0, 1, 2, 3]
    assert (
        "the dataset has other values than before: epoch 3 uses the new ones"
        in capsys.readouterr().out
    )


STEPS, EPOCHS = 3, 4
AGAIN = (
    "to restart that epoch, set `training_state: [epoch, callbacks, seeds]` in the policy "
    '(resume(…, policy={"training_state": ["epoch", "callbacks", "seeds"]}))'
)


@pytest.fixture
def begin_seeded(flavour, tmp_path) -> Iterator[Callable[..., Any]]:
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


def fit_data(model: Any, *callbacks: Any, **more: Any) -> Any:
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


# What is given to `fit_data` at first, and after the restart; what is refused.
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
    begin_seeded, stop, look, reason, flavour, capsys
) -> None:
    first, then, message = REFUSED[reason]
    whole, _ = begin_seeded()
    expected = fit_data(whole, **first())
    model, run = begin_seeded()
    with pytest.raises(KeyboardInterrupt):
        fit_data(model, run.callback(verbose=0), stop(1, 2), **first())
    model, run = begin_seeded()
    model.evaluate(X, Y, verbose=0)  # the metrics are not what they are at first
    model.optimizer.iterations.assign(7)
    there = variables(model)
    values = [np.array(variable) for variable in there]
    capsys.readouterr()
    callback = run.callback()
    if reason in READ:
        with pytest.raises((tfckpt.RestoreError, tf.errors.OpError)) as error:
            fit_data(model, callback, **then())
        assert message in str(error.value)
        assert "restored" in capsys.readouterr().out
        flavour.utils.set_random_seed(1)
        assert fit_data(model, callback, **first()) == expected
        for variable, value in zip(variables(model), variables(whole), strict=True):
            np.testing.assert_array_equal(np.array(variable), np.array(value), variable.name)
        return
    with pytest.raises((tfckpt.RestoreError, tf.errors.OpError)) as error:
        fit_data(model, look, callback, **then())
    assert message in str(error.value)
    for variable, value in zip(there, values, strict=True):
        np.testing.assert_array_equal(np.array(variable), value, variable.name)
    assert drawn_from() == look.generators
    assert look.told == []
    assert (run.epoch, run.report) == (0, None)
    assert "restored" not in capsys.readouterr().out
    # With the same callback the same `fit_data` goes on, exactly.
    assert fit_data(model, look, callback, **first()) == expected
    assert look.told[0] == "epoch 1"
    assert (run.epoch, run.report.epoch) == (EPOCHS, 1)
    for variable, value in zip(variables(model), variables(whole), strict=True):
        np.testing.assert_array_equal(np.array(variable), np.array(value), variable.name)


def test_another_seed_is_refused_before_anything_is_assigned(begin_seeded, stop) -> None:
    model, run = begin_seeded()
    with pytest.raises(KeyboardInterrupt):
        fit_data(model, run.callback(verbose=0), stop(1, 2), **arrays())
    model, run = begin_seeded()
    tf.random.set_seed(2)
    there = variables(model)
    values = [np.array(variable) for variable in there]
    with pytest.raises(tfckpt.RestoreError) as error:
        fit_data(model, run.callback(verbose=0), **arrays())
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
def test_a_damaged_record_is_refused_before_anything_is_assigned(begin_seeded, stop, part) -> None:
    model, run = begin_seeded()
    with pytest.raises(KeyboardInterrupt):
        fit_data(model, run.callback(verbose=0), stop(1, 2), **arrays())
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
    model, run = begin_seeded()
    there = variables(model)
    values = [np.array(variable) for variable in there]
    with pytest.raises(
        tfckpt.DamagedCheckpointError, match="the commit record's 'training' has an invalid"
    ):
        fit_data(model, run.callback(verbose=0), **arrays())
    np.testing.assert_equal([np.array(variable) for variable in there], values)
    assert run.report is None
