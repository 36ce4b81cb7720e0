"""The state of other callbacks: what does not come back is said, what is no data is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from zoo.fits import through_json

import tfckpt
from tfckpt.errors import TfckptError
from tfckpt.training.state import callback_state
from tfckpt.training.state.json_values import MAX_ELEMENTS


def early(flavour: Any, **more: Any) -> Any:
    callback = flavour.callbacks.EarlyStopping(**more)
    callback.on_train_begin()
    return callback


def test_of_several_each_gets_its_own(flavour) -> None:
    two = [early(flavour, monitor="a"), early(flavour, monitor="b")]
    two[0].wait, two[1].wait = 3, 5
    saved = through_json(callback_state.collect(two))
    fresh = [early(flavour, monitor="a"), early(flavour, monitor="b")]
    assert callback_state.restore(fresh, saved) == []
    assert [one.wait for one in fresh] == [3, 5]
    crossed = [early(flavour, monitor="b"), early(flavour, monitor="a")]
    assert callback_state.restore(crossed, saved) == [
        "EarlyStopping: its monitor changed from 'a' to 'b', so it is reset",
        "EarlyStopping 2: its monitor changed from 'b' to 'a', so it is reset",
    ]
    assert [one.wait for one in crossed] == [0, 0]


def test_one_more_and_one_less_are_said(flavour) -> None:
    saved = callback_state.collect([early(flavour), early(flavour)])
    assert callback_state.restore([early(flavour)], saved) == [
        "EarlyStopping 2 was in the saved training, but is not in this one"
    ]
    plateau = flavour.callbacks.ReduceLROnPlateau("loss")
    assert callback_state.restore(
        [early(flavour), plateau], callback_state.collect([early(flavour)])
    ) == ["ReduceLROnPlateau was not in the saved training, so it is reset"]


def test_another_flavour_is_said() -> None:
    keras, tf_keras = pytest.importorskip("keras"), pytest.importorskip("tf_keras")
    saved = callback_state.collect([early(tf_keras)])
    (said,) = callback_state.restore([early(keras)], saved)
    assert said == (
        "EarlyStopping: it was saved as a callback of tf_keras and is now one of Keras 3"
    )


def test_best_weights_that_were_not_saved_are_said(flavour) -> None:
    callback = early(flavour, restore_best_weights=True)
    callback.best_weights = [np.ones((2, 3), np.float32), np.zeros(3)]
    saved = through_json(callback_state.collect([callback]))
    fresh = early(flavour, restore_best_weights=True)
    (said,) = callback_state.restore([fresh], saved)
    assert "best_weights were not saved" in said
    kept = callback_state.arrays([callback])
    assert list(kept) == ["EarlyStopping/best_weights/0", "EarlyStopping/best_weights/1"]
    assert callback_state.restore([fresh], saved, kept) == []
    np.testing.assert_equal(fresh.best_weights, callback.best_weights)
    callback.best_weights[0][:] = 7  # what was handed out is a copy
    assert kept["EarlyStopping/best_weights/0"][0, 0] == fresh.best_weights[0][0, 0] == 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"flavour": None}, "saved as a callback of other code"),
        ({"attributes": {"wait": {"$no_such_type": 3}}}, "its saved state is not valid"),
        ({"attributes": {"wait": {"$int": "three"}}}, "its saved state is not valid"),
        ({"attributes": {"on_epoch_end": 1}}, "on_epoch_end is reset"),
        ({"attributes": 3}, "its saved state is not valid"),
        ({"arrays": 1 << 62}, "best_weights were not saved"),
    ],
)
def test_what_no_save_writes_sets_nothing(flavour, damage, said) -> None:
    saved = callback_state.collect([early(flavour)])
    saved["EarlyStopping"] |= damage
    fresh = early(flavour)
    before = dict(vars(fresh))
    assert said in callback_state.restore([fresh], saved)[0]
    assert vars(fresh) == before


def test_what_keeps_files_of_its_own_is_said(flavour, tmp_path) -> None:
    kinds = flavour.callbacks
    backup = kinds.BackupAndRestore(str(tmp_path / "backup"))
    rows = [kinds.CSVLogger(str(tmp_path / "log.csv"), append=append) for append in (False, True)]
    first, second, third = callback_state.inexact([backup, *rows])
    assert "weights and an epoch of its own" in first
    assert "append=True" in second
    assert "two rows" in third
    assert callback_state.restore([backup], {}) == [first]


def test_what_counts_nothing_is_not_spoken_of(flavour, tmp_path) -> None:
    kinds = flavour.callbacks
    manager = {"directory": str(tmp_path), "save": {"every_epochs": 1}}
    config = {"version": 1, "manager": manager}
    model = flavour.Sequential([flavour.layers.Dense(1, name="a")])
    silent = [
        tfckpt.from_config(config, model=model).callback(),
        kinds.TerminateOnNaN(),
        kinds.LambdaCallback(on_epoch_end=lambda epoch, logs: None, on_test_begin=print),
        kinds.LearningRateScheduler(lambda epoch: 0.1),
        kinds.ProgbarLogger(),
        type("Mine", (kinds.Callback,), {})(),
    ]
    assert callback_state.inexact(silent) == []
    assert callback_state.collect(silent) == {}
    assert callback_state.restore(silent, {}) == []


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
    assert callback_state.inexact([one]) == []
    assert callback_state.restore([fresh], through_json(callback_state.collect([one]))) == []
    assert fresh.seen == one.seen
    assert list(fresh.seen[2]) == ["b", "a"]
    assert type(fresh.seen[2]["a"]) is np.float32


def test_attributes_that_are_named_come_back(counting) -> None:
    named = {"Counting": ["seen"]}
    one, fresh = counting(), counting()
    one.seen = [1, 2]
    assert callback_state.inexact([one], named) == []
    assert (
        callback_state.restore(
            [fresh], through_json(callback_state.collect([one], named)), named=named
        )
        == []
    )
    assert fresh.seen == [1, 2]
    unnamed = counting()
    said = callback_state.restore([unnamed], callback_state.collect([one], named))
    assert said[0] == "Counting: seen is reset"
    assert unnamed.seen == []


def test_what_is_neither_is_said_with_what_it_holds(counting, flavour) -> None:
    class Patient(flavour.callbacks.EarlyStopping):
        def __init__(self) -> None:
            super().__init__("loss")
            self.mercy = 3

    first, second = callback_state.inexact([counting(), Patient()])
    assert first.startswith("Counting is reset when training resumes (seen)")
    assert second.startswith("Patient is reset when training resumes (mercy)")
    assert callback_state.inexact([counting()], {"Counting": []}) == []
    patient, fresh = Patient(), Patient()
    patient.wait = 2
    assert callback_state.restore([fresh], callback_state.collect([patient])) == [second]
    assert fresh.wait == 2  # what it has of Keras's class is known


def test_what_every_epoch_begins_with_is_not_lost(flavour) -> None:
    class Told(flavour.callbacks.Callback):
        turns = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch
            self.batches = 0
            self.turns = self.turns + 1

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.batches += 1

    (said,) = callback_state.inexact([Told()])
    assert said.startswith("Told is reset when training resumes (batches, turns)")


def test_a_name_that_fits_nothing_is_refused(counting) -> None:
    with pytest.raises(
        TfckptError, match=r"no callback is of class 'Countng'\n  the callbacks are: Counting"
    ):
        callback_state.collect([counting()], {"Countng": ["seen"]})
    with pytest.raises(TfckptError, match=r"Counting has no attribute 'sen'\n  it has:.*seen"):
        callback_state.collect([counting()], {"Counting": ["sen"]})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1, 2}, r"\['seen'\] is a set"),
        ([0, object()], r"\['seen'\]\[1\] is a object"),
        (np.zeros(MAX_ELEMENTS + 1), "an array of 10001 elements"),
        ("\ud800", "string that UTF-8 cannot encode"),
        (1j, "is a complex"),
        (np.complex64(1), "has dtype complex64"),
        (b"", "is a bytes"),
    ],
)
def test_a_state_that_is_no_data_is_refused(offering, counting, value, why) -> None:
    one, other = offering(), counting()
    one.seen = other.seen = value
    with pytest.raises(TfckptError, match=rf"the state of Offering cannot be saved: .*{why}"):
        callback_state.collect([one])
    with pytest.raises(TfckptError, match=r"the state of Counting cannot be saved: seen"):
        callback_state.collect([other], {"Counting": ["seen"]})


def test_what_a_metric_gave_stops_no_training(flavour) -> None:
    history = flavour.callbacks.History()
    history.on_train_begin()
    history.history["odd"] = [object()]
    fresh = flavour.callbacks.History()
    (said,) = callback_state.restore([fresh], through_json(callback_state.collect([history])))
    assert said == "History: history['odd'][0] is a object, so it is reset"
    assert fresh.epoch == []
