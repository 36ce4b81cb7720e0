"""The weights of the best epoch after `fit`, and averages for inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfckpt
import tfckpt.callbacks


@pytest.fixture
def trained(flavour) -> Any:
    """Fits a model; returns it and, for each epoch, its ``val_loss`` and weights then."""

    class Watch(flavour.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.epochs: list[tuple[float, list[Any]]] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.epochs.append((logs.get("val_loss"), self.model.get_weights()))

    def fit(directory: Any, *, epochs: int = 5, validation: float = 0.25, **given: Any) -> Any:
        flavour.utils.set_random_seed(3)
        layers = [flavour.layers.Dense(8), flavour.layers.BatchNormalization()]
        model = flavour.Sequential([flavour.Input((4,)), *layers, flavour.layers.Dense(1)])
        model.compile(flavour.optimizers.Adam(0.3), "mse")
        x = np.random.default_rng(5).random((64, 4)).astype("float32")
        callback = tfckpt.callbacks.resume(model, directory, load_best_when_done=True, **given)
        watch = Watch()
        model.fit(
            x,
            x.sum(1),
            validation_split=validation,
            epochs=epochs,
            verbose=0,
            callbacks=[callback, watch],
        )
        return model, watch.epochs

    return fit


def same(model: Any, weights: list[Any]) -> bool:
    return all(map(np.array_equal, model.get_weights(), weights))


def test_the_weights_of_the_best_epoch_are_loaded_and_the_optimizer_stays(
    trained, tmp_path, capsys
) -> None:
    model, epochs = trained(tmp_path)
    losses = [loss for loss, _ in epochs]
    best = int(np.argmin(losses))
    assert best < 4, "the last epoch is the best: nothing is seen"
    assert same(model, epochs[best][1])
    assert int(model.optimizer.iterations) == 10
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == (
        f"loaded the weights of the best checkpoint, {tmp_path}/ckpt-{best + 1}: "
        f"val_loss {losses[best]:g} of epoch {best + 1}"
    )


def test_a_program_that_is_started_again_has_them_too(trained, tmp_path) -> None:
    first, epochs = trained(tmp_path)
    again, seen = trained(tmp_path)
    assert [loss for loss, _ in seen] == [loss for loss, _ in epochs]  # what a callback has seen
    assert same(again, first.get_weights())
    longer, seen = trained(tmp_path, epochs=7)
    losses = [loss for loss, _ in seen]
    assert len(losses) == 7
    assert same(longer, seen[int(np.argmin(losses))][1])


def test_without_the_metric_the_model_keeps_its_weights_and_it_is_said(
    trained, tmp_path, capsys
) -> None:
    model, epochs = trained(tmp_path, validation=0.0)
    assert same(model, epochs[-1][1])
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"load_best_when_done: no checkpoint in {tmp_path} has the metric 'val_loss'; "
        "the model keeps the weights that it has"
    )


def test_a_damaged_best_one_is_passed_over(trained, flavour, tmp_path) -> None:
    _, epochs = trained(tmp_path, max_to_keep=5)
    order = np.argsort([loss for loss, _ in epochs])
    for data in tmp_path.glob(f"ckpt-{order[0] + 1}.data-*"):
        data.write_bytes(bytes(data.stat().st_size))
    layers = [flavour.layers.Dense(8), flavour.layers.BatchNormalization()]
    model = flavour.Sequential([flavour.Input((4,)), *layers, flavour.layers.Dense(1)])
    source = {"directory": str(tmp_path), "select": "best", "policy": {"include": ["model/**"]}}
    report = tfckpt.restore({"version": 1, "restore": source}, model)
    assert report.path == f"{tmp_path}/ckpt-{order[1] + 1}"
    assert len(report.rejected) == 1
    assert same(model, epochs[order[1]][1])
    said = " ".join(str(report).split())
    assert f", number 2 of 5 by val_loss ({epochs[order[1]][0]:g}), under" in said


def test_the_plan_and_the_report_say_that_it_is_the_best(
    trained, flavour, tmp_path, capsys
) -> None:
    first, epochs = trained(tmp_path / "first", max_to_keep=5)
    least = min(loss for loss, _ in epochs)
    chosen = f"the best of 5 by val_loss ({least:g})"
    source = {"directory": str(tmp_path / "first"), "select": "best"}
    where = {**source, "policy": {"include": ["model/**"]}}
    plan = tfckpt.plan({"version": 1, "restore": where}, first)
    best = tfckpt.list_checkpoints(tmp_path / "first")
    assert [row.prefix for row in best if row.best_by == "val_loss"] == [plan.source]
    assert plan.chosen == plan.to_json()["chosen"] == chosen
    assert f"{plan.source}, {chosen}, under policy" in " ".join(str(plan).split())
    assert f"{chosen}, under policy" in " ".join(
        str(tfckpt.restore({"version": 1, "restore": where}, first)).split()
    )
    capsys.readouterr()
    manager = {"directory": str(tmp_path / "second"), "save": {"every_epochs": 1}}
    config = {"version": 1, "manager": manager, "restore": where}
    run = tfckpt.from_config(config, first)
    x = np.zeros((4, 4), "float32")
    first.fit(x, x.sum(1), verbose=0, callbacks=[run.callback()])
    assert f"restored {plan.source} (epoch " in (out := capsys.readouterr().out)
    assert f"), {chosen}: " in out
    newest = {"directory": str(tmp_path / "first"), "policy": {"include": ["model/**"]}}
    assert tfckpt.plan({"version": 1, "restore": newest}, first).chosen == ""


def test_a_config_needs_a_rule_that_says_what_is_best() -> None:
    manager = {"directory": "runs/x", "max_to_keep": 3, "load_best_when_done": True}
    with pytest.raises(tfckpt.PolicyError, match="needs a rule that says which checkpoint"):
        tfckpt.from_config({"version": 1, "manager": manager}, model=[])


@pytest.mark.parametrize("which", ["best", "latest"])
def test_the_weights_are_exported_beside_the_checkpoints(flavour, tmp_path, which) -> None:
    def model() -> Any:
        made = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(1)])
        made.compile(flavour.optimizers.SGD(), "mse")
        return made

    def run(trained: Any) -> Any:
        keep = [{"latest": 2}, {"best": 1, "monitor": "loss", "mode": "min"}]
        manager = {"directory": str(tmp_path), "keep": keep, "export": {"weights_h5": which}}
        return tfckpt.from_config({"version": 1, "manager": manager}, trained)

    trained, exported = model(), model()
    saved = {}
    losses = (0.5, 0.2, 0.3, float("nan"), 0.1, 0.4)
    for number, loss in enumerate(losses):
        for variable in trained.weights:
            variable.assign(np.full(variable.shape, float(number), np.float32))
        run(trained).save(metrics={"loss": loss})  # each time as a program that starts anew
        saved[number] = trained.get_weights()
        exported.load_weights(tmp_path / f"{which}.weights.h5")
        best = 4 if number > 3 else (0, 1, 1, 1)[number]
        assert same(exported, saved[best if which == "best" else number])
    assert not [file for file in tmp_path.iterdir() if ".tmp" in file.name]


def test_an_export_that_fails_is_said_and_the_checkpoint_saved(flavour, tmp_path, caplog) -> None:
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(1)])
    (tmp_path / "latest.weights.h5").mkdir()
    manager = {"directory": str(tmp_path), "export": {"weights_h5": "latest"}}
    run = tfckpt.from_config({"version": 1, "manager": manager}, model)
    assert run.save() == f"{tmp_path}/ckpt-1"
    (warning,) = [
        each.getMessage() for each in caplog.records if "not written" in each.getMessage()
    ]
    assert warning.startswith(f"{tmp_path}/latest.weights.h5 is not written: ")


@pytest.mark.parametrize(
    ("manager", "message"),
    [
        ({"directory": "x", "max_to_keep": 1, "export": {"weights_h5": "best"}}, "needs a rule"),
        ({"directory": "gs://x", "export": {"weights_h5": "latest"}}, "only into a local"),
    ],
    ids=["no rule", "remote"],
)
def test_an_export_that_cannot_be_is_refused(manager, message) -> None:
    with pytest.raises(tfckpt.PolicyError, match=message):
        tfckpt.from_config({"version": 1, "manager": manager}, model=[])


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
