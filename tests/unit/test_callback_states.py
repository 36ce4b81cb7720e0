"""The state of other callbacks: what ``fit`` counts on after an interruption, as plain JSON.

Each training here is run through once, and once for every epoch with an interruption before it:
an exception ends ``fit``, all callbacks are new, their state goes through JSON. Variables are kept
aside as arrays, since they are not what is tested.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.fits import through_json

from tfckpt.training.callback_state import States

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
Y = X.sum(1, keepdims=True)
STEPS = 4  # of an epoch
SCORES = [5.0, 3.0, 4.0, 3.5, 3.2, 2.5, 2.75, 2.625, 2.5625, 2.8, 2.9]


class Interrupted(Exception):
    pass


class Training:
    """One ``fit``: its callbacks, new ones of ``make``, and this one's own behind them all."""

    def __init__(self, flavour: Any, model: Any, make: Callable[[], list[Any]]) -> None:
        class Score(flavour.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                logs["score"] = SCORES[epoch]

        self.made = make()
        self.all = flavour.callbacks.CallbackList(
            [Score(), *self.made], add_history=True, model=model, verbose=0, steps=STEPS
        )
        self.flavour = flavour
        self.model = model

    def variables(self) -> list[Any]:
        return [*self.model.variables, *self.model.optimizer.variables]

    def fit(
        self, since: int = 0, *, until: int = len(SCORES), saved: Training | None = None
    ) -> Any:
        training, callbacks = self, self.all.callbacks

        class Last(self.flavour.callbacks.Callback):
            def on_train_begin(self, logs: Any = None) -> None:
                training.states = States(callbacks[:-1])
                training.states.begins()
                if saved is not None:
                    for variable, value in zip(training.variables(), saved.values, strict=True):
                        variable.assign(value)
                    training.said = training.states.restore(saved.state, saved.arrays)

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                if epoch == until:
                    raise Interrupted

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                state, training.arrays, lost = training.states.collect()
                assert lost == []
                training.state = through_json(state)
                training.values = [variable.numpy() for variable in training.variables()]

        last = Last()
        last.set_model(self.model)
        callbacks.append(last)
        self.all.set_params({"epochs": len(SCORES), "steps": STEPS, "verbose": 0})
        try:
            self.history = self.model.fit(
                X, Y, batch_size=2, shuffle=False, verbose=0,
                epochs=len(SCORES), initial_epoch=since, callbacks=self.all,
            )  # fmt: skip
        except Interrupted:
            self.history = self.model.history
        return self


@pytest.fixture
def build(flavour: Any) -> Callable[..., Any]:
    def model(**more: Any) -> Any:
        flavour.utils.set_random_seed(1)
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(1, name="a")])
        model.compile(flavour.optimizers.SGD(0.1, **more), "mse")
        return model

    return model


@pytest.fixture
def both(flavour: Any, build: Callable[..., Any]) -> Callable[..., tuple[Training, list[Training]]]:
    """``both(make, cuts)``: a training run through, and one interrupted before each epoch."""

    def run(
        make: Callable[[], list[Any]], cuts: Iterable[int], **more: Any
    ) -> tuple[Training, list[Training]]:
        model = build(**more)
        begin = model.get_weights()
        whole = Training(flavour, model, make).fit()
        end = model.get_weights()
        resumed = []
        for cut in cuts:
            model = build(**more)
            model.set_weights(begin)
            first = Training(flavour, model, make).fit(until=cut)
            second = Training(flavour, model, make).fit(cut, saved=first)
            assert second.said == []
            same_history(whole.history, second.history)
            np.testing.assert_equal(model.get_weights(), end)
            resumed.append(second)
        return whole, resumed

    return run


def same_history(one: Any, other: Any) -> None:
    assert one.epoch == other.epoch
    assert list(one.history) == list(other.history)
    for name, values in one.history.items():
        assert [type(v) for v in other.history[name]] == [type(v) for v in values]
        np.testing.assert_equal(other.history[name], values)


# What Keras's own callbacks do after an interruption


def test_early_stopping_stops_at_the_same_epoch(both, flavour) -> None:
    def make() -> list[Any]:
        return [flavour.callbacks.EarlyStopping("score", patience=3, mode="min")]

    whole, resumed = both(make, range(1, 5))
    assert {one.made[0].stopped_epoch for one in (whole, *resumed)} == {4}
    assert whole.history.epoch == [0, 1, 2, 3, 4]


def test_early_stopping_puts_back_the_weights_of_the_best_epoch(both, flavour) -> None:
    def make() -> list[Any]:
        kind = flavour.callbacks.EarlyStopping
        return [kind("score", patience=3, mode="min", restore_best_weights=True)]

    whole, resumed = both(make, [1, 4])  # which compares the weights at the end
    assert {one.made[0].best_epoch for one in (whole, *resumed)} == {1}
    assert {type(one.made[0].best) for one in (whole, *resumed)} == {float}


def test_the_learning_rate_is_reduced_at_the_same_epochs(both, flavour) -> None:
    def make() -> list[Any]:
        kind = flavour.callbacks.ReduceLROnPlateau
        return [kind("score", factor=0.5, patience=2, cooldown=2, mode="min")]

    whole, _ = both(make, [3, 4, 6, 8])  # which compares the histories
    (rates,) = (v for k, v in whole.history.history.items() if k in {"lr", "learning_rate"})
    assert list(np.divide(rates, rates[0])) == [1.0] * 4 + [0.5] * 4 + [0.25] * 3


@pytest.mark.parametrize("save_freq", ["epoch", 3])
def test_the_best_model_is_kept_by_the_same_scores(both, flavour, save_freq, tmp_path) -> None:
    by_epoch = save_freq == "epoch"
    cuts = [3, 5]
    trainings = iter(["whole", *(f"cut {cut}" for cut in cuts for _ in range(2))])

    def make() -> list[Any]:
        folder = tmp_path / next(trainings)
        folder.mkdir(exist_ok=True)
        name = "{epoch}.weights.h5" if by_epoch else "{epoch}-{batch}.weights.h5"
        checkpoint = flavour.callbacks.ModelCheckpoint(
            str(folder / name),
            "score" if by_epoch else "loss",
            save_best_only=by_epoch,
            save_weights_only=True,
            mode="min",
            save_freq=save_freq,
        )
        return [checkpoint]

    whole, resumed = both(make, cuts)
    assert {one.made[0].best for one in resumed} == {whole.made[0].best}
    files = [sorted(p.name for p in folder.iterdir()) for folder in tmp_path.iterdir()]
    assert files == [files[0]] * 3
    assert len(files[0]) == (3 if by_epoch else len(SCORES) * STEPS // 3)


def test_tensorboard_counts_on(both, flavour, tmp_path, monkeypatch) -> None:
    import tensorflow as tf

    runs: list[list[Any]] = []

    def make() -> list[Any]:
        runs.append([])
        kind = flavour.callbacks.TensorBoard  # that of tf_keras sees no batches without the last
        return [kind(str(tmp_path), update_freq=1, write_graph=False, write_steps_per_second=True)]

    def scalar(name: str, data: Any, step: Any) -> None:  # TensorFlow's needs TensorBoard
        runs[-1].append((name, int(step), None if "second" in name else float(data)))

    for module in (tf.summary, tf.compat.v2.summary, importlib.import_module("tensorflow.summary")):
        monkeypatch.setattr(module, "scalar", scalar)
    both(make, [2])
    whole, first, second = runs
    assert [step for name, step, _ in whole if name == "batch_loss"] in (
        list(range(len(SCORES) * STEPS)),
        list(range(1, len(SCORES) * STEPS + 1)),
    )
    assert first + second == whole


def test_averaged_weights_are_taken_out_of_the_model_again(both, flavour) -> None:
    if not hasattr(flavour.callbacks, "SwapEMAWeights"):
        pytest.skip("tf_keras has no SwapEMAWeights")
    whole, (resumed,) = both(
        lambda: [flavour.callbacks.SwapEMAWeights(swap_on_epoch=True)], [3], use_ema=True
    )
    assert resumed.made[0]._ema_weights_in_model == whole.made[0]._ema_weights_in_model


def test_a_training_that_early_stopping_ended_says_so_in_its_state(build, flavour) -> None:
    def make() -> list[Any]:
        return [flavour.callbacks.EarlyStopping("score", patience=1, mode="min")]

    ended = Training(flavour, build(), make).fit()
    fresh = make()
    assert States(fresh).restore({"EarlyStopping": ended.state["EarlyStopping"]}, {}) == []
    assert (fresh[0].stopped_epoch, fresh[0].wait, fresh[0].best) == (2, 1, 3.0)
