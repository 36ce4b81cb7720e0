"""The state of other callbacks: what does not come back is said, what is no data is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from zoo.fits import through_json

import tfckpt
from tfckpt.errors import TfckptError
from tfckpt.training.callback_state import States


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


def test_another_flavour_is_said() -> None:
    keras, tf_keras = pytest.importorskip("keras"), pytest.importorskip("tf_keras")
    saved = collect([early(tf_keras)])
    (said,) = restore([early(keras)], saved)
    assert said == (
        "EarlyStopping: it was saved as a callback of tf_keras and is now one of Keras 3"
    )


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
    states = States(silent)
    states.begins()
    assert states.warnings() == []
    saved, _, lost = states.collect()
    assert [name for name, one in saved.items() if one["attributes"]] == lost == []
    assert restore(silent, {}) == []


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


def test_what_was_before_the_first_of_several_fits_counts(counting) -> None:
    """A program that starts again may pass over the first ``fit``."""
    one, first = counting(), {}
    States([one], first=first).begins()
    one.seen = [1]
    second = States([one], first=first)
    second.begins()
    assert second.collect()[0]["Counting"]["attributes"] == {"seen": [1]}


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


def test_what_a_metric_gave_stops_no_training(flavour) -> None:
    history = flavour.callbacks.History()
    history.on_train_begin()
    history.history["odd"] = [object()]
    fresh = flavour.callbacks.History()
    (said,) = restore([fresh], (collect([history])))
    assert said.startswith(
        "History: history changes in training and cannot be saved, since it['odd']"
    )
    assert fresh.epoch == []
