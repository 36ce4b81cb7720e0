"""What cannot go on exactly is refused before a step is trained, or said in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.mark.parametrize("seed", [2, None])
def test_another_global_seed_is_refused(begin, stop, seed) -> None:
    interrupt(begin, stop, (1, 2))
    model, callback = begin(seed=seed)
    with pytest.raises(tfckpt.RestoreError, match=f"global seed was 1 and is now {seed}"):
        fit(model, callback)
    assert int(model.optimizer.iterations.numpy()) == 0  # nothing was restored


def test_another_batch_size_is_refused_in_the_middle_of_an_epoch(begin, stop) -> None:
    interrupt(begin, stop, (1, 2))
    model, callback = begin()
    with pytest.raises(tfckpt.RestoreError, match="steps per epoch changed from 3 to 6"):
        fit(model, callback, batch_size=2)


def test_another_batch_size_is_taken_at_the_end_of_an_epoch_and_said(begin, stop, capsys) -> None:
    interrupt(begin, stop, (2, 0))
    model, callback = begin(verbose=1)
    history = fit(model, callback, batch_size=2)
    assert (
        "changed from 3 to 6: epoch 3 starts at the beginning of the dataset"
        in capsys.readouterr().out
    )
    assert history.epoch == [0, 1, 2, 3]
    assert int(model.optimizer.iterations.numpy()) == 2 * STEPS + 2 * 6


def test_another_steps_per_execution_is_refused(begin, stop) -> None:
    interrupt(begin, stop, (1, 2))
    model, callback = begin(steps_per_execution=2)
    with pytest.raises(tfckpt.RestoreError, match="steps_per_execution changed from 1 to 2"):
        fit(model, callback)


def test_another_initial_epoch_is_refused_unless_it_says_the_same(begin, stop) -> None:
    interrupt(begin, stop, (2, 0))
    model, callback = begin()
    with pytest.raises(tfckpt.RestoreError, match="`initial_epoch` changed from 0 to 1"):
        fit(model, callback, initial_epoch=1)
    model, callback = begin()
    assert fit(model, callback, initial_epoch=2).epoch == [0, 1, 2, 3]
    assert int(model.optimizer.iterations.numpy()) == 4 * STEPS


def test_a_shorter_training_that_was_over_is_over(begin, stop) -> None:
    interrupt(begin, stop, (3, 1))
    model, callback = begin()
    fit(model, callback, epochs=2)
    assert int(model.optimizer.iterations.numpy()) == 3 * STEPS + 1


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


def test_a_fit_that_failed_while_it_came_back_leaves_the_model_as_it_was(begin, stop) -> None:
    import gc

    interrupt(begin, stop, (1, 2))
    model, callback = begin()
    with pytest.raises(tfckpt.RestoreError):
        fit(model, callback, batch_size=2)
    del callback
    gc.collect()
    seen = fit(model, epochs=2, validation_data=(X, Y)).history
    assert len(seen["val_loss"]) == 2


def test_dropout_whose_state_cannot_be_saved_is_said(tmp_path, capsys) -> None:
    import tf_keras

    model = tf_keras.Sequential(
        [tf_keras.Input((4,)), tf_keras.layers.Dropout(0.5, name="drop"), tf_keras.layers.Dense(2)]
    )
    model.compile("sgd", "mse")
    fit(model, tfckpt.callbacks.resume(model, tmp_path / "run"), epochs=1)
    assert "a training step draws by RandomUniform in sequential" in capsys.readouterr().out


# Without a config


def test_one_line_without_a_config(flavour, tmp_path, stop, capsys) -> None:
    def build() -> Any:
        flavour.utils.set_random_seed(1)
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])
        model.compile("adam", "mse")
        return model

    def callback(model: Any) -> Any:
        return tfckpt.callbacks.resume(model, tmp_path / "run", save_freq=2)

    whole = build()
    fit(whole, validation_data=(X, Y))
    model = build()
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback(model), stop(2, 2), validation_data=(X, Y))
    model = build()
    fit(model, callback(model), validation_data=(X, Y))
    for one, other in zip(model.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert "restored" in capsys.readouterr().out


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
