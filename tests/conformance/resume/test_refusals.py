"""What cannot go on exactly is refused before a step, leaves all as it was, or is said."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import operator
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from zoo.fits import STEPS, X, Y, stop

import tfckpt
import tfckpt.callbacks
from tfckpt.stored.commits import record_file

EPOCHS = 4


@pytest.fixture
def begin(tmp_path) -> Iterator[Callable[..., Any]]:
    """``begin()``: model and run of one directory, as after a restart."""

    def build(
        keras: Any = keras, *, seed: int | None = 1, policy: Any = None, drawn: bool = True
    ) -> Any:
        keras.utils.set_random_seed(1)
        tf.random.set_seed(seed)
        if keras.__name__ == "tf_keras":
            keras.backend.experimental.enable_tf_random_generator()
        layers, initial = keras.layers, {"kernel_initializer": keras.initializers.GlorotUniform(3)}
        between = [layers.BatchNormalization(), layers.Dropout(0.3, name="drop")] * drawn
        made = [layers.Dense(3, **initial), *between, layers.Dense(2, **initial)]
        model = keras.Sequential([keras.Input((4,)), *made])
        model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"], run_eagerly=True)
        where = {"directory": str(tmp_path / "run")}
        save = {"every_steps": 1, "every_epochs": 1}
        config = {
            "version": 1,
            "manager": {**where, "save": save, "durable": False},
            "restore": {**where, "if_none": "initialize", "policy": policy or {}},
        }
        return model, tfckpt.from_config(config, model=model)

    yield build
    tf.random.set_seed(None)
    tf_keras = importlib.import_module("tf_keras")  # other tests have layers without its generators
    tf_keras.backend.experimental.disable_tf_random_generator()


def fit(model: Any, *callbacks: Any, **more: Any) -> Any:
    given = {"x": X, "y": Y, "batch_size": 4} if "x" not in more else {}
    more = {**given, "epochs": EPOCHS, "verbose": 0, **more}
    return model.fit(**more, callbacks=list(callbacks))


def interrupt(begin: Any, at: tuple[int, int], keras: Any = keras, **more: Any) -> Any:
    given = {key: more.pop(key) for key in ("drawn", "seed") if key in more}
    model, run = begin(keras, **given)
    with pytest.raises(KeyboardInterrupt):
        fit(model, run.callback(verbose=0), stop(keras, *at), **more)
    return run


def test_without_batch_in_the_policy_the_epoch_begins_anew(begin) -> None:
    interrupt(begin, (1, 2), drawn=False)
    policy = {"training_state": ["epoch", "seeds", "callbacks"]}
    model, run = begin(policy=policy, drawn=False)
    assert fit(model, run.callback(verbose=0)).epoch == [0, 1, 2, 3]
    assert int(model.optimizer.iterations.numpy()) == STEPS + 2 + 3 * STEPS


@pytest.mark.parametrize(
    ("flavor", "policy"), [("keras", {"training_state": ["epoch"]}), ("tf_keras", None)]
)
def test_an_epoch_that_begins_again_measures_its_own_batches(begin, flavor, policy) -> None:
    flavour = importlib.import_module(flavor)
    given: dict[str, Any] = {"shuffle": False}
    interrupt(begin, (1, 2) if policy else (2, 0), flavour, drawn=False, **given)
    model, run = begin(flavour, policy=policy, drawn=False)
    losses: list[float] = []

    def look(batch: int, logs: Any) -> None:
        part = slice(4 * batch, 4 * batch + 4)
        losses.append(float(np.mean((model(X[part]).numpy() - Y[part]) ** 2)))

    # One that is used before it is resumed has its metrics by then.
    model.evaluate(X, Y, verbose=0)
    given |= {"epochs": 2} if policy else {"initial_epoch": 2, "epochs": 3}
    looks = flavour.callbacks.LambdaCallback(on_train_batch_begin=look)
    seen = fit(model, run.callback(verbose=0), looks, **given).history["loss"]
    np.testing.assert_allclose(seen[-1], np.mean(losses), rtol=1e-5)


def test_data_that_is_drawn_without_a_seed_is_said_before_it_trains(begin, capsys) -> None:
    model, run = begin(seed=None, drawn=False)
    fit(model, run.callback(), epochs=1)
    out = capsys.readouterr().out
    assert "the data are shuffled or drawn without a seed" in out
    assert out.index("without a seed") < out.index("saved")
    model, run = begin(seed=None, drawn=False)
    fit(model, run.callback(), epochs=2, shuffle=False)
    assert "without a seed" not in capsys.readouterr().out


def test_each_sample_comes_once_in_an_epoch_drawn_without_a_seed(flavour, tmp_path) -> None:
    bits = (2.0 ** np.arange(12)).astype(np.float32).reshape(12, 1)

    def met(y_true: Any, y_pred: Any) -> Any:
        return y_true[:, 0]

    def train(*others: Any) -> Any:
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(1, name="a")])
        model.compile("sgd", "mse", metrics=[met], run_eagerly=True)
        resume = tfckpt.callbacks.resume(model, tmp_path / "run", save_freq=1, verbose=0)
        data = tf.data.Dataset.from_tensor_slices((X, bits)).shuffle(12).batch(4)
        return fit(model, resume, *others, x=data, epochs=1)

    with pytest.raises(KeyboardInterrupt):
        train(stop(flavour, 0, 2))
    assert train().history["met"] == [float(np.mean(bits))]  # which each sample is in once


def noisy(flavour: Any) -> Any:
    class Noise(flavour.layers.Layer):
        def call(self, x: Any) -> Any:
            return x + tf.random.uniform(tf.shape(x))

    return Noise()


# Flavor, layer, whether a seed is set, in steps of Python; what is said.
DRAWN = [
    ("keras", noisy, True, False, "a training step draws by RandomUniform in sequential"),
    ("tf_keras", noisy, True, False, "a training step draws by RandomUniform in sequential"),
    ("tf_keras", lambda k: k.layers.Dropout(0.5), True, False, "draws by RandomUniform in"),
    ("tf_keras", lambda k: k.layers.Dropout(0.5, seed=3), True, True, "draws by the layer"),
    ("keras", lambda k: k.layers.ReLU(), False, False, "call keras.utils.set_random_seed to"),
    ("tf_keras", lambda k: k.layers.ReLU(), False, False, "call tf_keras.utils.set_random_seed"),
]


@pytest.mark.parametrize(("name", "layer", "seeded", "eagerly", "said"), DRAWN)
def test_what_is_said_of_draws_names_what_that_keras_has(
    tmp_path, capsys, name, layer, seeded, eagerly, said
) -> None:
    flavour = importlib.import_module(name)
    tf.random.set_seed(1 if seeded else None)
    layers = [flavour.Input((4,)), layer(flavour), flavour.layers.Dense(2)]
    (model := flavour.Sequential(layers)).compile("sgd", "mse", run_eagerly=eagerly)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(8).batch(4)
    fit(model, tfckpt.callbacks.resume(model, tmp_path / "run"), x=data, y=None, epochs=1)
    out = capsys.readouterr().out
    assert said in out
    for package, path in re.findall(r"\b(keras|tf_keras)((?:\.\w+)+)", out):
        assert package == name
        operator.attrgetter(path[1:])(flavour)
    assert ("SeedGenerator" in out) == (name == "keras" and "draws by" in out)


def dataset(x: Any) -> dict[str, Any]:
    return {"x": tf.data.Dataset.from_tensor_slices((x, Y)).shuffle(12).batch(4)}


def as_arrays(x: Any) -> dict[str, Any]:
    return {"x": x, "y": Y, "batch_size": 4}


@pytest.mark.parametrize(("flavor", "given"), [("keras", as_arrays), ("tf_keras", dataset)])
def test_data_of_other_values_is_refused_in_mid_epoch_and_said_at_its_end(
    begin, capsys, flavor, given
) -> None:
    flavour = importlib.import_module(flavor)
    interrupt(begin, (1, 2), flavour, drawn=False, **given(X))
    model, run = begin(flavour, drawn=False)
    callback, before = run.callback(), model.get_weights()
    with pytest.raises(
        tfckpt.RestoreError, match="with other values: the dataset is not the one of"
    ):
        fit(model, callback, **given(X + 1))
    np.testing.assert_equal(model.get_weights(), before)
    assert int(model.optimizer.iterations.numpy()) == 0
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, stop(flavour, 2, 0), **given(X.copy()))
    model, run = begin(flavour, drawn=False)
    assert fit(model, run.callback(), **given(X + 1)).epoch == [0, 1, 2, 3]
    said = "the dataset has other values than before: epoch 3 uses the new ones"
    assert said in capsys.readouterr().out


OTHERS: dict[str, Callable[[Any], Any]] = {
    "drop_remainder": lambda data: data.batch(4, drop_remainder=True),
    "dtype": lambda data: data.map(lambda x, y: (tf.cast(x, tf.float64), y)).batch(4),
    "padded": lambda data: data.bucket_by_sequence_length(
        lambda x, y: tf.size(x), [9], [4, 4], padded_shapes=([None], [None])
    ),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_after_a_complete_epoch_another_pipeline_may_go_on(begin, capsys, other) -> None:
    plain = tf.data.Dataset.from_tensor_slices((X, Y))
    interrupt(begin, (2, 0), drawn=False, x=plain.batch(4))
    model, run = begin(drawn=False)
    assert fit(model, run.callback(), x=other(plain)).epoch == [0, 1, 2, 3]
    said = capsys.readouterr().out
    assert "epoch 3" in said
    assert int(model.optimizer.iterations.numpy()) == 12
    interrupt(begin, (4, 2), drawn=False, x=other(plain), epochs=6)
    model, run = begin(drawn=False)
    with pytest.raises(tfckpt.RestoreError, match=r"dataset is not the one of|middle of an epoch"):
        fit(model, run.callback(), x=plain.batch(4), epochs=6)


def test_a_step_that_cannot_be_traced_is_named(tmp_path) -> None:
    class Other(keras.layers.Dense):
        """Of another class than what the record says, so it is not built by it."""

    class Net(keras.Model):
        def __init__(self, out: Any) -> None:
            super().__init__(name="net")
            self.out = out(2)

        def call(self, inputs: Any) -> Any:
            return self.out(tf.constant(inputs.numpy()))

    def start(out: Any) -> None:
        model = Net(out)
        model.compile("sgd", "mse", run_eagerly=True)
        fit(model, tfckpt.callbacks.resume(model, tmp_path / "run", verbose=0), epochs=1)

    start(keras.layers.Dense)
    with pytest.raises(tfckpt.NotBuiltError, match="Net 'net' creates variables in its first") as e:
        start(Other)
    assert "before `fit`, call the model once on a batch" in str(e.value)


# What is given to `fit` at first, and after the restart; what is refused.


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


def values(of: Any) -> list[np.ndarray]:
    return [np.array(each) for each in (of if isinstance(of, list) else variables(of))]


def drawn_from() -> list[Any]:
    """The state of the process's random generators."""
    numpy = [np.asarray(each).tolist() for each in np.random.get_state()]
    return [random.getstate(), numpy, context.context()._rng.getstate()]


def looker(keras: Any) -> Any:
    """A callback that knows what there was when ``fit`` began, and how often it was told."""

    class Look(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.generators = drawn_from()
            self.told: list[str] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.told.append(f"epoch {epoch}")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.told.append(f"batch {batch}")

    return Look()


AGAIN = (
    "to restart that epoch, set `training_state: [epoch, callbacks, seeds]` in the policy "
    '(resume(…, policy={"training_state": ["epoch", "callbacks", "seeds"]}))'
)
DATA = f"pass the same dataset to `fit`, created again since it has been read; or, {AGAIN}"
REFUSED: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "batch size": (
        lambda: as_arrays(X),
        lambda: {**as_arrays(X), "batch_size": 2},
        "the checkpoint was saved in the middle of an epoch, and steps per epoch changed from 3 to "
        f"6\n  {AGAIN}",
    ),
    "initial epoch": (
        lambda: as_arrays(X),
        lambda: {**as_arrays(X), "initial_epoch": 1},
        "`initial_epoch` changed from 0 to 1, but the checkpoint was saved in the middle of the "
        "training, after epoch 1\n",
    ),
    "another type": (
        lambda: {"x": shuffled()},
        lambda: {"x": shuffled().map(lambda x, y: (x, tf.cast(y, tf.float64)))},
        f"tf.float64, name=None)'): the dataset is not the one of the checkpoint\n  {DATA}",
    ),
    # These show only when the data is read: the checkpoint is restored by then.
    "another pipeline": (
        lambda: {"x": shuffled()},
        lambda: {"x": shuffled().take(STEPS)},
        "the dataset does not accept the saved iterator",
    ),
    "an end in the epoch": (
        lambda: {"x": generated()},
        lambda: {"x": generated([0, 1])},
        "the dataset ends before batch 2: the dataset is not the one of the checkpoint, whose "
        f"values the model has by now\n  {DATA}",
    ),
    "a failure": (
        lambda: {"x": generated()},
        lambda: {"x": generated([0, 1], "the data is broken")},
        "the data is broken",
    ),
}
READ = list(REFUSED)[3:]
IN_BOTH = ("batch size", "an end in the epoch")
CASES = [("keras", each) for each in REFUSED] + [("tf_keras", each) for each in IN_BOTH]


@pytest.mark.parametrize(("flavor", "reason"), CASES)
def test_it_is_refused_and_goes_on_with_what_it_had(begin, flavor, reason, capsys) -> None:
    flavour = importlib.import_module(flavor)
    first, then, message = REFUSED[reason]
    whole, _ = begin(flavour)
    expected = fit(whole, **first()).history
    interrupt(begin, (1, 2), flavour, **first())
    model, run = begin(flavour)
    model.evaluate(X, Y, verbose=0)  # the metrics are not what they are at first
    model.optimizer.iterations.assign(7)
    before, look, callback = values(there := variables(model)), looker(flavour), run.callback()
    capsys.readouterr()
    with pytest.raises((tfckpt.RestoreError, tf.errors.OpError)) as error:
        fit(model, look, callback, **then())
    assert message in str(error.value)
    assert ("restored" in capsys.readouterr().out) == (reason in READ)
    if reason in READ:
        flavour.utils.set_random_seed(1)
    else:
        np.testing.assert_equal(values(there), before)
        assert drawn_from() == look.generators
        assert look.told == []
        assert (run.epoch, run.report) == (0, None)
    # With the same callback the same `fit` goes on, exactly.
    assert fit(model, look, callback, **first()).history == expected
    np.testing.assert_equal(values(model), values(whole))
    if reason not in READ:
        assert look.told[0] == "epoch 1"
        assert (run.epoch, run.report.epoch) == (EPOCHS, 1)


@pytest.mark.parametrize(
    ("then", "call"), [(1, "call keras.utils.set_random_seed(1)"), (None, "set no seed")]
)
def test_another_seed_is_refused_before_anything_is_assigned(begin, then, call) -> None:
    interrupt(begin, (1, 2), seed=then)
    model, run = begin(seed=2)
    before = values(there := variables(model))
    with pytest.raises(tfckpt.RestoreError) as error:
        fit(model, run.callback(verbose=0))
    assert str(error.value) == (
        f"the global seed was {then} and is now 2: the data of later epochs would come in another "
        f"order\n  {call} before creating the dataset, as before; or, "
        "to restart that epoch with another seed, set `training_state: [epoch, callbacks]` in the "
        'policy (resume(…, policy={"training_state": ["epoch", "callbacks"]}))'
    )
    np.testing.assert_equal(values(there), before)


def test_a_damaged_record_is_refused_before_anything_is_assigned(begin) -> None:
    run = interrupt(begin, (1, 2))
    *older, newest = run.manager.checkpoints
    for path in older:
        for file in Path(path).parent.glob(f"{Path(path).name}.*"):
            file.unlink()
    path = Path(f"{newest}.tfckpt.json")
    found = record_file.parse(path.read_bytes(), str(path), newest)
    for part, wrong in {
        "generators": {"python": [3, "AAAA", None]},
        "logs": {"loss": "0.5"},
        "arrays": [[1]],
    }.items():
        training = {**found.training, "fit": {**found.training["fit"], part: wrong}}
        path.write_bytes(record_file.render(dataclasses.replace(found, training=training)))
        model, run = begin()
        before = values(there := variables(model))
        with pytest.raises(
            tfckpt.DamagedCheckpointError, match="the commit record's 'training' has an invalid"
        ):
            fit(model, run.callback(verbose=0))
        np.testing.assert_equal(values(there), before)
        assert run.report is None
