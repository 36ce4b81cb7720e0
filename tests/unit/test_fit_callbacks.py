"""The state of other callbacks through a checkpoint, as plain JSON."""

from __future__ import annotations

import importlib
import math
import time
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.fits import STEPS, fit, runs_of, stop, through_json

from tfckpt.errors import TfckptError
from tfckpt.training.callback_state import States

if TYPE_CHECKING:
    pass


def early(flavour: Any = keras, **more: Any) -> Any:
    callback = flavour.callbacks.EarlyStopping(**more)
    callback.on_train_begin()
    return callback


def collect(callbacks: Any, named: Any = None) -> Any:
    """What is saved of callbacks that were like this before the first epoch: all of it."""
    return through_json(States(callbacks, named).collect()[0])


def restore(callbacks: Any, saved: Any, arrays: Any = None, named: Any = None) -> list[str]:
    return States(callbacks, named).restore(saved, arrays or {})


def begun(*callbacks: Any) -> States:
    states = States(callbacks)
    states.begins()
    return states


class Counting(keras.callbacks.Callback):
    def __init__(self, seen: Any = ()) -> None:
        super().__init__()
        self.seen: Any = seen


class Offering(Counting):
    def get_state(self) -> Any:
        return {"seen": self.seen}

    def set_state(self, state: Any) -> None:
        self.seen = state["seen"]


@pytest.mark.parametrize("flavour", ["keras3", "tf_keras"], indirect=True)
def test_tensorboard_counts_on(flavour, tmp_path, monkeypatch) -> None:
    # TensorBoard divides by what a batch took; scenes of other tests stop the clock.
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)
    rows: list[Any] = []

    def scalar(name: str, data: Any, step: Any) -> None:  # TensorFlow's needs TensorBoard
        rows.append((name, int(step), None if "second" in name else float(data)))

    for module in (tf.summary, tf.compat.v2.summary, importlib.import_module("tensorflow.summary")):
        monkeypatch.setattr(module, "scalar", scalar)
    runs = runs_of(flavour, tmp_path / "run")

    def train(*callbacks: Any) -> list[Any]:
        model, run = runs(every_epochs=1)
        board = flavour.callbacks.TensorBoard(
            str(tmp_path), update_freq=1, write_graph=False, write_steps_per_second=True
        )
        rows.clear()
        ours = [run.callback(verbose=0)] if callbacks else []
        # That of tf_keras sees no batches without the last.
        fit(model, 2, *callbacks, board, *ours, flavour.callbacks.Callback())
        return list(rows)

    whole = train()
    with pytest.raises(KeyboardInterrupt):
        train(stop(flavour, 1))
    first = list(rows)
    assert [step for name, step, _ in whole if name == "batch_loss"] in (
        list(range(2 * STEPS)),
        list(range(1, 2 * STEPS + 1)),
    )
    assert first + train(flavour.callbacks.Callback()) == whole


def test_each_gets_its_own_and_what_changed_is_said() -> None:
    two = [early(monitor="a"), early(monitor="b")]
    two[0].wait, two[1].wait = 3, 5
    saved = collect(two)
    fresh = [early(monitor="a"), early(monitor="b")]
    assert restore(fresh, saved) == []
    assert [one.wait for one in fresh] == [3, 5]
    crossed = [early(monitor="b"), early(monitor="a")]
    assert restore(crossed, saved) == [
        "EarlyStopping: its monitor changed from 'a' to 'b', so it is reset",
        "EarlyStopping 2: its monitor changed from 'b' to 'a', so it is reset",
    ]
    assert [one.wait for one in crossed] == [0, 0]
    assert restore([early(monitor="a")], saved) == [
        "EarlyStopping 2 was in the saved training, but is not in this one"
    ]
    plateau = keras.callbacks.ReduceLROnPlateau("loss")
    assert restore([early(), plateau], collect([early()])) == [
        "ReduceLROnPlateau was not in the saved training, so it is reset"
    ]


def test_weights_that_early_stopping_holds_are_copied() -> None:
    callback = early(restore_best_weights=True)
    callback.best_weights = [np.ones((20, 30), np.float32), np.zeros(3)]
    saved, arrays, lost = States([callback]).collect()
    assert lost == []
    assert list(arrays) == ["EarlyStopping.best_weights/0"]  # a small one is in the record
    fresh = early(restore_best_weights=True)
    (said,) = restore([fresh], through_json(saved))
    assert "EarlyStopping: its saved state is not valid" in said
    assert fresh.best_weights is None
    assert restore([fresh], through_json(saved), arrays) == []
    np.testing.assert_equal(fresh.best_weights, callback.best_weights)
    callback.best_weights[0][:] = 7  # what was handed out is a copy
    assert arrays["EarlyStopping.best_weights/0"][0, 0] == fresh.best_weights[0][0, 0] == 1


# What is put into a saved state, and what is said of it.
DAMAGED: list[tuple[dict[str, Any], str]] = [
    ({"flavour": None}, "saved as a callback of other code"),
    ({"flavour": "tf_keras"}, "saved as a callback of tf_keras and is now one of Keras 3"),
    ({"attributes": {"wait": {"$no_such_type": 3}}}, "its saved state is not valid"),
    ({"attributes": {"__class__": 1}}, "__class__ is reset"),
    ({"attributes": 3}, "its saved state is not valid"),
    ({"attributes": {"best_weights": {"$stored": "of another"}}}, "state is not valid"),
    ({"lost": 3}, "its saved state is not valid"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGED)
def test_what_no_save_writes_sets_nothing(damage, said) -> None:
    saved = collect([early()])
    saved["EarlyStopping"] |= damage
    before = dict(vars(fresh := early()))
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


@pytest.mark.parametrize(("cls", "named"), [(Offering, None), (Counting, {"Counting": ["seen"]})])
def test_a_state_that_is_offered_or_named_comes_back(cls, named) -> None:
    one, fresh = cls([1, (2.5, math.inf), {"b": None, "a": np.float32(0.1)}]), cls()
    assert restore([fresh], collect([one], named), named=named) == []
    assert fresh.seen == one.seen
    assert list(fresh.seen[2]) == ["b", "a"]
    assert type(fresh.seen[2]["a"]) is np.float32


def test_what_changes_comes_back_and_constants_stay_the_programs() -> None:
    class Patient(keras.callbacks.EarlyStopping):
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


def test_what_changes_and_is_no_data_is_named_once() -> None:
    class Told(Counting):
        def __init__(self) -> None:
            super().__init__(iter([1, 2]))
            self.unchanged = iter([3])

    one = Told()
    states = begun(one)
    assert states.collect()[2] == []
    next(one.seen)
    (said,) = states.collect()[2]
    assert said == (
        "Told: seen changes in training and cannot be saved, since it is a list_iterator: it is "
        "reset when training resumes, which is not exact"
    )
    saved = states.collect()
    assert saved[2] == []
    (again,) = begun(Told()).restore(through_json(saved[0]), {})
    assert again == said


def test_a_name_that_fits_nothing_is_refused() -> None:
    with pytest.raises(
        TfckptError, match=r"no callback is of class 'Countng'\n  the callbacks are: Counting"
    ):
        collect([Counting()], {"Countng": ["seen"]})
    with pytest.raises(TfckptError, match=r"Counting has no attribute 'sen'\n  it has:.*seen"):
        collect([Counting()], {"Counting": ["sen"]})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([0, object()], r"\['seen'\]\[1\] is a object"),
        ("\ud800", "string that UTF-8 cannot encode"),
        (np.complex64(1), "has dtype complex64"),
        (np.full(3, "a"), "has dtype str"),
    ],
)
def test_a_state_that_is_no_data_is_refused(value, why) -> None:
    with pytest.raises(TfckptError, match=rf"the state of Offering cannot be saved: .*{why}"):
        collect([Offering(value)])
    with pytest.raises(TfckptError, match=r"the state of Counting cannot be saved: seen"):
        collect([Counting(value)], {"Counting": ["seen"]})
