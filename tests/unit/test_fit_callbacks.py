"""The state of other callbacks through a checkpoint, as plain JSON."""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.fits import through_json

import tfckpt
from tfckpt.errors import TfckptError
from tfckpt.training.callback_state import States

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


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


def early(flavour: Any, **more: Any) -> Any:
    callback = flavour.callbacks.EarlyStopping(**more)
    callback.on_train_begin()
    return callback


def collect(callbacks: Any, named: Any = None) -> Any:
    """What is saved of callbacks that were like this before the first epoch: all of it."""
    return through_json(States(callbacks, named).collect()[0])


def restore(callbacks: Any, saved: Any, arrays: Any = None, named: Any = None) -> list[str]:
    return States(callbacks, named).restore(saved, arrays or {})


def test_of_several_each_gets_its_own(flavour) -> None:
    two = [early(flavour, monitor="a"), early(flavour, monitor="b")]
    two[0].wait, two[1].wait = 3, 5
    saved = collect(two)
    fresh = [early(flavour, monitor="a"), early(flavour, monitor="b")]
    assert restore(fresh, saved) == []
    assert [one.wait for one in fresh] == [3, 5]
    crossed = [early(flavour, monitor="b"), early(flavour, monitor="a")]
    assert restore(crossed, saved) == [
        "EarlyStopping: its monitor changed from 'a' to 'b', so it is reset",
        "EarlyStopping 2: its monitor changed from 'b' to 'a', so it is reset",
    ]
    assert [one.wait for one in crossed] == [0, 0]


def test_one_more_and_one_less_are_said(flavour) -> None:
    saved = collect([early(flavour), early(flavour)])
    assert restore([early(flavour)], saved) == [
        "EarlyStopping 2 was in the saved training, but is not in this one"
    ]
    plateau = flavour.callbacks.ReduceLROnPlateau("loss")
    assert restore([early(flavour), plateau], collect([early(flavour)])) == [
        "ReduceLROnPlateau was not in the saved training, so it is reset"
    ]


def test_weights_that_early_stopping_holds_are_copied(flavour) -> None:
    callback = early(flavour, restore_best_weights=True)
    callback.best_weights = [np.ones((20, 30), np.float32), np.zeros(3)]
    saved, arrays, lost = States([callback]).collect()
    assert lost == []
    assert list(arrays) == ["EarlyStopping/best_weights/0"]  # a small one is in the record
    fresh = early(flavour, restore_best_weights=True)
    (said,) = restore([fresh], through_json(saved))
    assert "EarlyStopping: its saved state is not valid" in said
    assert fresh.best_weights is None
    assert restore([fresh], through_json(saved), arrays) == []
    np.testing.assert_equal(fresh.best_weights, callback.best_weights)
    callback.best_weights[0][:] = 7  # what was handed out is a copy
    assert arrays["EarlyStopping/best_weights/0"][0, 0] == fresh.best_weights[0][0, 0] == 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"flavour": None}, "saved as a callback of other code"),
        ({"attributes": {"wait": {"$no_such_type": 3}}}, "its saved state is not valid"),
        ({"attributes": {"wait": {"$int": "three"}}}, "its saved state is not valid"),
        ({"attributes": {"on_epoch_end": 1}}, "on_epoch_end is reset"),
        ({"attributes": {"__class__": 1}}, "__class__ is reset"),
        ({"attributes": {"model": 1}}, "model is reset"),
        ({"attributes": 3}, "its saved state is not valid"),
        ({"attributes": {"best_weights": {"$stored": "of another"}}}, "state is not valid"),
        ({"lost": 3}, "its saved state is not valid"),
    ],
)
def test_what_no_save_writes_sets_nothing(flavour, damage, said) -> None:
    saved = collect([early(flavour)])
    saved["EarlyStopping"] |= damage
    fresh = early(flavour)
    before = dict(vars(fresh))
    assert said in restore([fresh], saved)[0]
    assert vars(fresh) == before


def test_what_keeps_files_of_its_own_is_said(flavour, tmp_path) -> None:
    kinds = flavour.callbacks
    backup = kinds.BackupAndRestore(str(tmp_path / "backup"))
    rows = [kinds.CSVLogger(str(tmp_path / "log.csv"), append=append) for append in (False, True)]
    first, second, third = States([backup, *rows]).warnings()
    assert "weights and an epoch of its own" in first
    assert "append=True" in second
    assert "two rows" in third


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
    assert restore([fresh], (collect([one]))) == []
    assert fresh.seen == one.seen
    assert list(fresh.seen[2]) == ["b", "a"]
    assert type(fresh.seen[2]["a"]) is np.float32


def test_attributes_that_are_named_come_back(counting) -> None:
    named = {"Counting": ["seen"]}
    one, fresh = counting(), counting()
    one.seen = [1, 2]
    assert restore([fresh], collect([one], named), named=named) == []
    assert fresh.seen == [1, 2]


def begun(*callbacks: Any) -> States:
    states = States(callbacks)
    states.begins()
    return states


def test_what_changes_comes_back_and_constants_stay_the_programs(flavour) -> None:
    class Patient(flavour.callbacks.EarlyStopping):
        turns = 0

        def __init__(self, mercy: int) -> None:
            super().__init__("loss")
            self.mercy = mercy
            self.draw = np.random.default_rng(3)
            self.table = np.zeros((30, 30))

    first = Patient(3)
    states = begun(first)
    first.wait, first.turns, first.table[2, 3] = 2, 5, 7.0
    first.draw.random(10)
    saved, arrays, lost = states.collect()
    assert lost == []
    assert sorted(saved["Patient"]["attributes"]) == ["draw", "table", "turns", "wait"]
    fresh = Patient(4)
    draw = fresh.draw
    assert begun(fresh).restore(through_json(saved), arrays) == []
    assert (fresh.wait, fresh.turns, fresh.mercy) == (2, 5, 4)
    assert fresh.draw is draw
    assert draw.random() == first.draw.random()
    np.testing.assert_equal(fresh.table, first.table)


def test_what_changes_and_is_no_data_is_named_once(counting) -> None:
    class Told(counting):
        def __init__(self) -> None:
            super().__init__()
            self.names = {"a"}
            self.unchanged = {"b"}

    one = Told()
    states = begun(one)
    assert states.collect()[2] == []
    one.names.add("c")
    (said,) = saved = states.collect()[2]
    assert said == (
        "Told: names changes in training and cannot be saved, since it is a set: it is reset when "
        "training resumes, which is not exact"
    )
    saved = states.collect()
    assert saved[2] == []
    (again,) = begun(Told()).restore(through_json(saved[0]), {})
    assert again == said


def test_a_name_that_fits_nothing_is_refused(counting) -> None:
    with pytest.raises(
        TfckptError, match=r"no callback is of class 'Countng'\n  the callbacks are: Counting"
    ):
        collect([counting()], {"Countng": ["seen"]})
    with pytest.raises(TfckptError, match=r"Counting has no attribute 'sen'\n  it has:.*seen"):
        collect([counting()], {"Counting": ["sen"]})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1, 2}, r"\['seen'\] is a set"),
        ([0, object()], r"\['seen'\]\[1\] is a object"),
        ("\ud800", "string that UTF-8 cannot encode"),
        (1j, "is a complex"),
        (np.complex64(1), "has dtype complex64"),
        (np.full(3, "a"), "has dtype str"),
        (b"", "is a bytes"),
    ],
)
def test_a_state_that_is_no_data_is_refused(offering, counting, value, why) -> None:
    one, other = offering(), counting()
    one.seen = other.seen = value
    with pytest.raises(TfckptError, match=rf"the state of Offering cannot be saved: .*{why}"):
        collect([one])
    with pytest.raises(TfckptError, match=r"the state of Counting cannot be saved: seen"):
        collect([other], {"Counting": ["seen"]})


INPUTS = np.linspace(-1, 1, 80, dtype=np.float32).reshape(20, 4)
KEPT_SCORES = [5.0, 3.0, 4.0, 3.5, 3.2, 2.5, 2.75, 2.625]
Fit = tuple[Any, Any]


@pytest.fixture
def fit(flavour) -> Callable[..., Fit]:
    """``fit(path, make, (2, 1))``: a new process, as far as a test can; killed there."""

    def run(path: Path, make: Callable[[], list[Any]], killed: Any = None, **save: int) -> Fit:
        flavour.utils.set_random_seed(1)
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(1, name="a")])
        ema = {"use_ema": True} if flavour.__name__ == "keras" else {}
        model.compile(flavour.optimizers.Adam(0.05, **ema), "mse")

        class Scored(flavour.callbacks.Callback):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.now = epoch

            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if (self.now, batch) == killed:
                    raise KeyboardInterrupt

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                logs["score"] = KEPT_SCORES[epoch]

            def on_train_end(self, logs: Any = None) -> None:
                if killed == "at the end":
                    raise KeyboardInterrupt

        config = {
            "version": 1,
            "manager": {"directory": str(path), "save": save or {"every_steps": 3}},
            "restore": {"directory": str(path), "if_none": "initialize"},
        }
        ours = tfckpt.from_config(config, model=model).callback(verbose=0)
        arguments = {"batch_size": 5, "epochs": len(KEPT_SCORES), "verbose": 0}
        callbacks = [Scored(), ours, *make()]
        if killed is None:
            return model, model.fit(
                INPUTS, INPUTS.sum(1, keepdims=True), callbacks=callbacks, **arguments
            )
        with pytest.raises(KeyboardInterrupt):
            model.fit(INPUTS, INPUTS.sum(1, keepdims=True), callbacks=callbacks, **arguments)
        return model, None

    return run


def same(one: Fit, other: Fit) -> None:
    np.testing.assert_equal(one[0].get_weights(), other[0].get_weights())
    assert (one[1].epoch, one[1].history) == (other[1].epoch, other[1].history)


KINDS: dict[str, dict[str, Any]] = {
    "EarlyStopping": {"patience": 3, "restore_best_weights": True},
    "ReduceLROnPlateau": {"patience": 1, "cooldown": 1, "factor": 0.5},
    "SwapEMAWeights": {"swap_on_epoch": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_killed_in_an_epoch_and_between_two(kind, fit, flavour, tmp_path) -> None:
    if not hasattr(flavour.callbacks, kind):
        pytest.skip(f"{flavour.__name__} has no {kind}")
    scored = {} if kind == "SwapEMAWeights" else {"monitor": "score", "mode": "min"}

    def make() -> list[Any]:
        return [getattr(flavour.callbacks, kind)(**scored, **KINDS[kind])]

    whole = fit(tmp_path / "whole", make)
    assert len(whole[1].epoch) == (5 if kind == "EarlyStopping" else len(KEPT_SCORES))
    for killed in ((3, 0), (4, 2)):
        path = tmp_path / str(killed)
        fit(path, make, killed)
        same(fit(path, make), whole)


@pytest.mark.parametrize("killed", ["at the end", None])
def test_the_best_weights_are_put_back_in_a_training_that_was_over(
    killed, fit, flavour, tmp_path
) -> None:
    def make() -> list[Any]:
        kind = flavour.callbacks.EarlyStopping
        return [kind("score", mode="min", patience=3, restore_best_weights=True)]

    whole = fit(tmp_path / "whole", make, every_epochs=1)
    fit(tmp_path / "run", make, killed, every_epochs=1)
    same(fit(tmp_path / "run", make, every_epochs=1), whole)
