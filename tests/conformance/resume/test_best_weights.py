"""The weights of the best epoch after `fit`, and files of weights for inference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfckpt
import tfckpt.callbacks

X = np.random.default_rng(5).random((16, 4)).astype("float32")
Y = X.sum(1, keepdims=True)
BY_LOSS = [{"latest": 2}, {"best": 1, "monitor": "loss", "mode": "min"}]


def built(keras: Any, *, rate: float | None = 0.3) -> Any:
    """With None as rate it is not compiled."""
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(8), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
    if rate is not None:
        model.compile(keras.optimizers.Adam(rate), "mse", run_eagerly=True)
    return model


@pytest.fixture
def trained(flavour) -> Callable[..., Any]:
    return lambda directory, **given: train(flavour, directory, **given)


def train(
    keras: Any, directory: Any, epochs: int = 5, validated: bool = True, **given: Any
) -> tuple[Any, list[float], list[Any]]:
    """A model that was fit; of each epoch its ``val_loss`` and the weights then."""
    model, losses, weights = built(keras), [], []

    def look(epoch: int, logs: Any) -> None:
        losses.append(logs.get("val_loss"))
        weights.append(model.get_weights())

    watch = keras.callbacks.LambdaCallback(on_epoch_end=look)
    callback = tfckpt.callbacks.resume(model, directory, load_best_when_done=True, **given)
    # What it learns is not what it is measured by, so that it becomes worse.
    more: dict[str, Any] = {"validation_data": (X[:4], 0 * Y[:4])} if validated else {}
    more |= {"epochs": epochs, "batch_size": 8, "verbose": 0}
    history = model.fit(X, Y, **more, callbacks=[callback, watch]).history
    return model, history.get("val_loss", losses), weights


def test_the_weights_of_the_best_epoch_are_loaded_and_the_optimizer_stays(
    trained, tmp_path, capsys
) -> None:
    model, losses, weights = trained(tmp_path)
    best = int(np.argmin(losses))
    assert best < 4, "the last epoch is the best: nothing is seen"
    np.testing.assert_equal(model.get_weights(), weights[best])
    assert int(model.optimizer.iterations.numpy()) == 10
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == (
        f"loaded the weights of the best checkpoint, {tmp_path}/ckpt-{best + 1}: "
        f"val_loss {losses[best]:g} of epoch {best + 1}"
    )
    again, seen, _ = trained(tmp_path)  # the program is started again
    assert seen == losses
    np.testing.assert_equal(again.get_weights(), weights[best])
    longer, seen, more = trained(tmp_path, epochs=7)
    assert len(seen) == 7
    assert seen[:5] == losses
    best_of_all = int(np.argmin(seen))
    expected = more[best_of_all - 5] if best_of_all > 4 else weights[best_of_all]
    np.testing.assert_equal(longer.get_weights(), expected)


def test_without_the_metric_the_model_keeps_its_weights_and_it_is_said(tmp_path, capsys) -> None:
    model, _, weights = train(keras, tmp_path, validated=False)
    np.testing.assert_equal(model.get_weights(), weights[-1])
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"load_best_when_done: no checkpoint in {tmp_path} has the metric 'val_loss'; "
        "the model keeps the weights that it has"
    )


def test_the_plan_and_the_report_say_that_it_is_the_best_and_pass_over_damage(
    tmp_path, capsys
) -> None:
    _, losses, weights = train(keras, tmp_path / "first", max_to_keep=5)
    order = np.argsort(losses)
    source = {"directory": str(tmp_path / "first"), "policy": {"include": ["model/**"]}}
    config: dict[str, Any] = {"version": 1, "restore": {**source, "select": "best"}}
    model = built(keras)
    plan, chosen = tfckpt.plan(config, model), f"the best of 5 by val_loss ({min(losses):g})"
    listed = tfckpt.list_checkpoints(tmp_path / "first")
    assert [row.prefix for row in listed if row.best_by == "val_loss"] == [plan.source]
    assert plan.chosen == plan.to_json()["chosen"] == chosen
    assert f"{plan.source}, {chosen}, under policy" in " ".join(str(plan).split())
    assert f"{chosen}, under policy" in " ".join(str(tfckpt.restore(config, model)).split())
    capsys.readouterr()
    manager = {"directory": str(tmp_path / "second"), "save": {"every_epochs": 1}}
    run = tfckpt.from_config({**config, "manager": manager}, model)
    model.fit(X, Y, verbose=0, callbacks=[run.callback()])
    assert f"restored {plan.source} (epoch " in (out := capsys.readouterr().out)
    assert f"), {chosen}: " in out
    assert tfckpt.plan({"version": 1, "restore": source}, model).chosen == ""
    for data in (tmp_path / "first").glob(f"ckpt-{order[0] + 1}.data-*"):
        data.write_bytes(bytes(data.stat().st_size))
    report = tfckpt.restore(config, model)
    assert report.path == f"{tmp_path}/first/ckpt-{order[1] + 1}"
    assert len(report.rejected) == 1
    np.testing.assert_equal(model.get_weights(), weights[order[1]])
    said = " ".join(str(report).split())
    assert f", number 2 of 5 by val_loss ({losses[order[1]]:g}), under" in said


# Exports


def run_of(model: Any, directory: Path, **export: Any) -> Any:
    export = {"weights_h5": "latest", **export}
    manager = {"directory": str(directory), "keep": BY_LOSS, "export": export}
    config = {"version": 1, "manager": {**manager, "save": {"every_epochs": 1}}}
    return tfckpt.from_config(config, model)


@pytest.mark.parametrize("which", ["best", "latest"])
def test_the_weights_are_exported_beside_the_checkpoints(tmp_path, which) -> None:
    trained, exported, saved = built(keras), built(keras), {}
    for number, loss in enumerate((0.5, 0.2, 0.3, float("nan"), 0.1, 0.4)):
        for variable in trained.weights:
            variable.assign(np.full(variable.shape, float(number), np.float32))
        run = run_of(trained, tmp_path, weights_h5=which)  # as in a program that starts anew
        run.save(metrics={"loss": loss})
        saved[number] = trained.get_weights()
        exported.load_weights(tmp_path / f"{which}.weights.h5")
        best = 4 if number > 3 else (0, 1, 1, 1)[number]
        np.testing.assert_equal(exported.get_weights(), saved[best if which == "best" else number])
    assert not [file for file in tmp_path.iterdir() if ".tmp" in file.name]


def test_an_export_that_fails_is_said_and_the_checkpoint_saved(tmp_path, caplog) -> None:
    (tmp_path / "latest.weights.h5").mkdir()
    assert run_of(built(keras), tmp_path).save(metrics={"loss": 1}) == f"{tmp_path}/ckpt-1"
    (warning,) = [text for text in caplog.messages if "not written" in text]
    assert warning.startswith(f"{tmp_path}/latest.weights.h5 is not written: ")
