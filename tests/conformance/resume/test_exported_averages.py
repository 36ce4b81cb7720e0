"""`export: {ema: …}`: the weights for inference are the averages that the optimizer keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfckpt
import tfckpt.callbacks

X = np.random.default_rng(5).random((16, 4)).astype("float32")
Y = X.sum(1, keepdims=True)


@pytest.fixture
def build(flavour) -> Any:
    def model(*, norm: bool = True, compiled: bool = True, **settings: Any) -> Any:
        flavour.utils.set_random_seed(3)
        layers = [flavour.layers.Dense(8), *[flavour.layers.BatchNormalization()] * norm]
        model = flavour.Sequential([flavour.Input((4,)), *layers, flavour.layers.Dense(1)])
        if compiled:
            model.compile(flavour.optimizers.Adam(0.1, **settings), "mse")
        return model

    return model


def run_of(model: Any, directory: Any, **export: Any) -> Any:
    keep = [{"latest": 2}, {"best": 1, "monitor": "loss", "mode": "min"}]
    export = {"weights_h5": "latest", **export}
    save = {"every_epochs": 1}
    manager = {"directory": str(directory), "keep": keep, "export": export, "save": save}
    return tfckpt.from_config({"version": 1, "manager": manager}, model)


def by_numpy(model: Any, steps: int, momentum: float) -> list[np.ndarray]:
    """Train, and average the weights after each step as each Keras does it.

    Keras 3 begins with the weights after the first step, tf_keras with those before it.
    """
    averages = [np.array(v) for v in model.trainable_variables]
    first = momentum if "tf_keras" in type(model).__module__ else 0.0
    for number in range(steps):
        model.train_on_batch(X, Y)
        share = momentum if number else first
        weights = [np.array(v) for v in model.trainable_variables]
        averages = [
            share * mean + (1 - share) * value
            for mean, value in zip(averages, weights, strict=True)
        ]
    return averages


@pytest.mark.parametrize("ema", ["prefer", "only"])
def test_the_averages_are_exported_and_the_model_stays(build, tmp_path, ema) -> None:
    norm = ema == "prefer"
    model = build(norm=norm, use_ema=True, ema_momentum=0.75)
    run = run_of(model, tmp_path, ema=ema)
    expected = by_numpy(model, 5, 0.75)
    before = [np.array(v) for v in (*model.variables, *model.optimizer.variables)]
    run.save(metrics={"loss": 1.0})
    after = [np.array(v) for v in (*model.variables, *model.optimizer.variables)]
    np.testing.assert_equal(after, before)
    exported = build(norm=norm, compiled=False)
    exported.load_weights(tmp_path / "latest.weights.h5")
    kept = model.optimizer._model_variables_moving_average
    for variable, average, by_hand in zip(
        exported.trainable_variables, kept, expected, strict=True
    ):
        np.testing.assert_array_equal(np.array(variable), np.array(average))
        np.testing.assert_allclose(np.array(variable), by_hand, rtol=1e-5)
    assert not np.array_equal(expected[0], np.array(model.trainable_variables[0]))
    for mine, its in zip(
        model.non_trainable_variables, exported.non_trainable_variables, strict=True
    ):
        np.testing.assert_array_equal(np.array(its), np.array(mine))
    restored = build(norm=norm, compiled=False)
    tfckpt.restore(str(tmp_path / "ckpt-1"), restored, include=["model/**"], ema=ema)
    np.testing.assert_equal(restored.get_weights(), exported.get_weights())


def test_fit_exports_the_averages_of_the_best_epoch(build, flavour, tmp_path) -> None:
    model = build(use_ema=True, ema_momentum=0.75)
    run = run_of(model, tmp_path, weights_h5="best", ema="prefer")
    seen = []

    class Watch(flavour.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            kept = self.model.optimizer._model_variables_moving_average
            seen.append((logs["loss"], [np.array(v) for v in kept]))

    model.fit(X, Y, epochs=4, verbose=0, callbacks=[Watch(), run.callback(verbose=0)])
    _, best = min(seen, key=lambda one: one[0])
    exported = build(compiled=False)
    exported.load_weights(tmp_path / "best.weights.h5")
    np.testing.assert_equal([np.array(v) for v in exported.trainable_variables], best)


def test_an_export_that_fails_leaves_the_weights(build, tmp_path, monkeypatch) -> None:
    model = build(use_ema=True)
    run = run_of(model, tmp_path, ema="prefer")
    by_numpy(model, 2, 0.9)
    before = model.get_weights()

    def fail(path: str) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(model, "save_weights", fail)
    run.save()
    np.testing.assert_equal(model.get_weights(), before)


@pytest.mark.parametrize("ema", ["prefer", "only"])
def test_without_averages_the_training_does_not_begin(build, tmp_path, ema) -> None:
    message = f"export: ema: {ema}, but no optimizer keeps moving averages of the weights"
    with pytest.raises(tfckpt.TfckptError, match=message):
        run_of(build(), tmp_path, ema=ema)
    model = build(compiled=False)
    callback = run_of(model, tmp_path, ema=ema).callback(verbose=0)
    model.compile("sgd", "mse")
    before = model.get_weights()
    with pytest.raises(tfckpt.TfckptError, match=message):
        model.fit(X, Y, verbose=0, callbacks=[callback])
    np.testing.assert_equal(model.get_weights(), before)


def test_only_names_the_weights_without_an_average(build, tmp_path) -> None:
    model = build(use_ema=True)
    run = run_of(model, tmp_path, ema="only")
    by_numpy(model, 1, 0.9)
    with pytest.raises(tfckpt.TfckptError, match=r"no moving average: .*/moving_mean"):
        run.save()
    assert run.manager.checkpoints == []


def test_a_callback_that_swaps_them_itself_is_refused(build, tmp_path) -> None:
    import keras

    model = build(use_ema=True)
    if not isinstance(model, keras.Model):
        pytest.skip("tf_keras has no SwapEMAWeights")
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    callback = run_of(model, tmp_path, ema="prefer").callback(verbose=0)
    with pytest.raises(tfckpt.TfckptError, match="SwapEMAWeights"):
        model.fit(X, Y, verbose=0, callbacks=[swap, callback])


def test_averages_of_no_file_are_a_mistake() -> None:
    manager = {"directory": "x", "export": {"ema": "prefer"}}
    with pytest.raises(tfckpt.PolicyError, match="`ema` needs `weights_h5`"):
        tfckpt.from_config({"version": 1, "manager": manager}, model=[])
