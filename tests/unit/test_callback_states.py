"""The state of other callbacks: what ``fit`` counts on after an interruption, as plain JSON.

Each training here is run through once, and once for every epoch with an interruption before it:
an exception ends ``fit``, all callbacks are new, their state goes through JSON. Variables are kept
aside as arrays, since they are not what is tested.
"""

from __future__ import annotations

import importlib
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt
from tfckpt.errors import TfckptError
from tfckpt.fitting import states
from tfckpt.fitting.values import MAX_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
Y = X.sum(1, keepdims=True)
STEPS = 4  # of an epoch
SCORES = [5.0, 3.0, 4.0, 3.5, 3.2, 2.5, 2.75, 2.625, 2.5625, 2.8, 2.9]


def through_json(value: Any) -> Any:
    """As a commit record has it, whose keys are sorted."""
    return json.loads(json.dumps(value, sort_keys=True, allow_nan=False))


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
                if saved is not None:
                    for variable, value in zip(training.variables(), saved.values, strict=True):
                        variable.assign(value)
                    training.said = states.restore(callbacks[:-1], saved.state, saved.arrays)

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                if epoch == until:
                    raise Interrupted

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                training.state = through_json(states.collect(callbacks[:-1]))
                training.values = [variable.numpy() for variable in training.variables()]
                training.arrays = states.arrays(callbacks[:-1])

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
    assert states.restore(fresh, {"EarlyStopping": ended.state["EarlyStopping"]}) == []
    assert (fresh[0].stopped_epoch, fresh[0].wait, fresh[0].best) == (2, 1, 3.0)


# What is said


def early(flavour: Any, **more: Any) -> Any:
    callback = flavour.callbacks.EarlyStopping(**more)
    callback.on_train_begin()
    return callback


def test_of_several_each_gets_its_own(flavour) -> None:
    two = [early(flavour, monitor="a"), early(flavour, monitor="b")]
    two[0].wait, two[1].wait = 3, 5
    saved = through_json(states.collect(two))
    fresh = [early(flavour, monitor="a"), early(flavour, monitor="b")]
    assert states.restore(fresh, saved) == []
    assert [one.wait for one in fresh] == [3, 5]
    crossed = [early(flavour, monitor="b"), early(flavour, monitor="a")]
    assert states.restore(crossed, saved) == [
        "EarlyStopping: its monitor was 'a' and is 'b', so it begins anew",
        "EarlyStopping 2: its monitor was 'b' and is 'a', so it begins anew",
    ]
    assert [one.wait for one in crossed] == [0, 0]


def test_one_more_and_one_less_are_said(flavour) -> None:
    saved = states.collect([early(flavour), early(flavour)])
    assert states.restore([early(flavour)], saved) == [
        "EarlyStopping 2 was in the training that was saved, and is not in this one"
    ]
    plateau = flavour.callbacks.ReduceLROnPlateau("loss")
    assert states.restore([early(flavour), plateau], states.collect([early(flavour)])) == [
        "ReduceLROnPlateau was not in the training that was saved, so it begins anew"
    ]


def test_another_flavour_is_said() -> None:
    keras, tf_keras = pytest.importorskip("keras"), pytest.importorskip("tf_keras")
    saved = states.collect([early(tf_keras)])
    (said,) = states.restore([early(keras)], saved)
    assert said == "EarlyStopping: it was saved by tf_keras and is of Keras 3 here"


def test_best_weights_that_were_not_saved_are_said(flavour) -> None:
    callback = early(flavour, restore_best_weights=True)
    callback.best_weights = [np.ones((2, 3), np.float32), np.zeros(3)]
    saved = through_json(states.collect([callback]))
    fresh = early(flavour, restore_best_weights=True)
    (said,) = states.restore([fresh], saved)
    assert "best_weights were not saved" in said
    kept = states.arrays([callback])
    assert list(kept) == ["EarlyStopping/best_weights/0", "EarlyStopping/best_weights/1"]
    assert states.restore([fresh], saved, kept) == []
    np.testing.assert_equal(fresh.best_weights, callback.best_weights)
    callback.best_weights[0][:] = 7  # what was handed out is a copy
    assert kept["EarlyStopping/best_weights/0"][0, 0] == fresh.best_weights[0][0, 0] == 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"flavour": None}, "saved by a class of no Keras"),
        ({"attributes": {"wait": {"$no_such_type": 3}}}, "does not fit"),
        ({"attributes": {"wait": {"$int": "three"}}}, "does not fit"),
        ({"attributes": {"on_epoch_end": 1}}, "on_epoch_end begins anew"),
        ({"attributes": 3}, "does not fit"),
        ({"arrays": 1 << 62}, "best_weights were not saved"),
    ],
)
def test_what_no_save_writes_sets_nothing(flavour, damage, said) -> None:
    saved = states.collect([early(flavour)])
    saved["EarlyStopping"] |= damage
    fresh = early(flavour)
    before = dict(vars(fresh))
    assert said in states.restore([fresh], saved)[0]
    assert vars(fresh) == before


def test_what_keeps_files_of_its_own_is_said(flavour, tmp_path) -> None:
    kinds = flavour.callbacks
    backup = kinds.BackupAndRestore(str(tmp_path / "backup"))
    rows = [kinds.CSVLogger(str(tmp_path / "log.csv"), append=append) for append in (False, True)]
    first, second, third = states.inexact([backup, *rows])
    assert "weights and an epoch of its own" in first
    assert "append=True" in second
    assert "twice" in third
    assert states.restore([backup], {}) == [first]


def test_what_counts_nothing_is_not_spoken_of(flavour, build, tmp_path) -> None:
    kinds = flavour.callbacks
    config = {"version": 1, "manager": {"directory": str(tmp_path)}}
    silent = [
        tfckpt.from_config(config, model=build()).callback(),
        kinds.TerminateOnNaN(),
        kinds.LambdaCallback(on_epoch_end=lambda epoch, logs: None, on_test_begin=print),
        kinds.LearningRateScheduler(lambda epoch: 0.1),
        kinds.ProgbarLogger(),
        type("Mine", (kinds.Callback,), {})(),
    ]
    assert states.inexact(silent) == []
    assert states.collect(silent) == {}
    assert states.restore(silent, {}) == []


# Callbacks of one's own


@pytest.fixture
def counting(flavour: Any) -> Any:
    class Counting(flavour.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: Any = []

    return Counting


@pytest.fixture
def offering(counting: Any) -> Any:
    class Offering(counting):
        def get_state(self) -> Any:
            return {"seen": self.seen}

        def set_state(self, state: Any) -> None:
            self.seen = state["seen"]

    return Offering


def test_a_state_that_is_offered_comes_back(offering) -> None:
    one, fresh = offering(), offering()
    one.seen = [1, (2.5, math.inf), {"b": None, "a": np.float32(0.1)}]
    assert states.inexact([one]) == []
    assert states.restore([fresh], through_json(states.collect([one]))) == []
    assert fresh.seen == one.seen
    assert list(fresh.seen[2]) == ["b", "a"]
    assert type(fresh.seen[2]["a"]) is np.float32


def test_attributes_that_are_named_come_back(counting) -> None:
    named = {"Counting": ["seen"]}
    one, fresh = counting(), counting()
    one.seen = [1, 2]
    assert states.inexact([one], named) == []
    assert states.restore([fresh], through_json(states.collect([one], named)), named=named) == []
    assert fresh.seen == [1, 2]
    untold = counting()
    said = states.restore([untold], states.collect([one], named))
    assert said[0] == "Counting: seen begins anew"
    assert untold.seen == []


def test_what_is_neither_is_said_with_what_it_holds(counting, flavour) -> None:
    class Patient(flavour.callbacks.EarlyStopping):
        def __init__(self) -> None:
            super().__init__("loss")
            self.mercy = 3

    first, second = states.inexact([counting(), Patient()])
    assert first.startswith("Counting begins anew in a training that is resumed (seen)")
    assert second.startswith("Patient begins anew in a training that is resumed (mercy)")
    assert states.inexact([counting()], {"Counting": []}) == []
    patient, fresh = Patient(), Patient()
    patient.wait = 2
    assert states.restore([fresh], states.collect([patient])) == [second]
    assert fresh.wait == 2  # what it has of Keras's class is known


def test_a_name_that_fits_nothing_is_refused(counting) -> None:
    with pytest.raises(TfckptError, match=r"no callback is a Countng\n  there are: Counting"):
        states.collect([counting()], {"Countng": ["seen"]})
    with pytest.raises(TfckptError, match=r"Counting has no attribute 'sen'\n  it has:.*seen"):
        states.collect([counting()], {"Counting": ["sen"]})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1, 2}, r"\['seen'\] is a set"),
        ([0, object()], r"\['seen'\]\[1\] is a object"),
        (np.zeros(MAX_ELEMENTS + 1), "an array of 10001 elements"),
        ("\ud800", "text that UTF-8 cannot write"),
        (1j, "is a complex"),
        (np.complex64(1), "is of complex64"),
        (b"", "is a bytes"),
    ],
)
def test_a_state_that_is_no_data_is_refused(offering, counting, value, why) -> None:
    one, other = offering(), counting()
    one.seen = other.seen = value
    with pytest.raises(TfckptError, match=rf"the state of Offering cannot be saved: .*{why}"):
        states.collect([one])
    with pytest.raises(TfckptError, match=r"the state of Counting cannot be saved: seen"):
        states.collect([other], {"Counting": ["seen"]})


def test_what_a_metric_gave_stops_no_training(flavour) -> None:
    history = flavour.callbacks.History()
    history.on_train_begin()
    history.history["odd"] = [object()]
    fresh = flavour.callbacks.History()
    (said,) = states.restore([fresh], through_json(states.collect([history])))
    assert said == "History: history['odd'][0] is a object, so it begins anew"
    assert fresh.epoch == []
