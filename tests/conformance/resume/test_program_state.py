"""What a program's code holds: saved, or named; nothing else is ever written."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from zoo.fits import through_json

import tfckpt.callbacks
from tfckpt.errors import TfckptError
from tfckpt.live.program_state import reachable
from tfckpt.live.program_state.reachable import Reachable
from tfckpt.training.state import callback_state
from tfckpt.training.state.extra_state import Beginning, ExtraState

CANNOT = (
    "changes during training and cannot be saved: it is reset when training resumes, which is not "
    "exact"
)
ANOTHER = (
    "has been replaced by another object since before the first epoch: it is reset when training "
    "resumes, which is not exact"
)
LOST = "is reset, since the checkpoint has no matching value: training is not exact"
count = 0


class Phase(enum.Enum):
    FIRST = 1
    SECOND = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Pair(NamedTuple):
    number: int = 0


@dataclasses.dataclass(slots=True)
class Slotted:
    number: int = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    number: int = 0


class Stage:
    def __init__(self, weight: float) -> None:
        self.weight = weight


class Box:
    def __init__(self, held: Any) -> None:
        self.held = held


def training(keras: Any, held: Any, model: Any = None) -> ExtraState:
    """One in which a function of a callback closes over something; its first epoch begins."""
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: held)
    model = model or keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    extra = ExtraState(model, {"model": model}, [callback], Beginning())
    extra.begins()
    return extra


def resumed(keras: Any, first: ExtraState, held: Any) -> tuple[list[str], list[str]]:
    """What was said of a training when it was saved, and when another one went on from it."""
    values, arrays, said = first.collect()
    return said, training(keras, held).restore(through_json(values), arrays)


def set_held(box: Box, value: Any) -> None:
    box.held = value


def grow(box: Box) -> None:
    box.held.number += 1


BACK = {
    "enum": (lambda: Phase.FIRST, lambda box: set_held(box, Phase.SECOND)),
    "number enum": (lambda: Level.LOW, lambda box: set_held(box, Level.HIGH)),
    "named tuple": (Pair, lambda box: set_held(box, Pair(3))),
    "slots": (Slotted, grow),
    "set": (set, lambda box: box.held.update({"b", "a"})),
    "set in a mapping": (lambda: {"a": {1}}, lambda box: box.held["a"].add(2)),
    "list with objects": (lambda: [Slotted(), 0.5], lambda box: box.held.__setitem__(1, 0.7)),
    "keys": (lambda: {(1, "a"): 0, Phase.FIRST: 0}, lambda box: box.held.update({(1, "a"): 2})),
}


@pytest.mark.parametrize("kind", BACK)
def test_it_comes_back(flavour, kind) -> None:
    make, change = BACK[kind]
    box, fresh = Box(make()), Box(make())
    first = training(flavour, box)
    change(box)
    assert resumed(flavour, first, fresh) == ([], [])
    assert fresh.held == box.held
    assert type(fresh.held) is type(box.held)
    assert [Phase.FIRST.value, Phase.SECOND.value, Level.LOW.value] == [1, 2, 1]


NAMED = {
    "iterator": (itertools.count, lambda box: next(box.held)),
    "generator": (lambda: iter([1, 2, 3]), lambda box: next(box.held)),
    "large array": (lambda: np.zeros(20_000), lambda box: box.held.__setitem__(0, 1)),
    "list that grows": (lambda: [0], lambda box: box.held.extend(range(20_000))),
    "bytes": (lambda: b"a", lambda box: set_held(box, b"b")),
    "complex": (lambda: 1j, lambda box: set_held(box, 2j)),
    "tensor": (lambda: tf.constant(1.0), lambda box: set_held(box, tf.constant(2.0))),
    "objects in a set": (lambda: {Stage(1.0)}, lambda box: setattr(*box.held, "weight", 2.0)),
    "objects by objects": (
        lambda: {Stage: 0, tf.constant(1.0).ref(): Slotted()},
        lambda box: setattr([*box.held.values()][1], "number", 2),
    ),
}


@pytest.mark.parametrize("kind", NAMED)
def test_what_cannot_be_saved_is_named(flavour, kind) -> None:
    make, change = NAMED[kind]
    box = Box(make())
    first = training(flavour, box)
    if kind not in ("iterator", "generator"):  # which nothing tells apart from ones in use
        assert first.collect()[2] == []
    change(box)
    name = "LambdaCallback.on_epoch_end:held.held"
    assert resumed(flavour, first, Box(make())) == ([f"{name} {CANNOT}"], [f"{name}: {LOST}"])
    assert first.collect()[2] == []  # once


def test_another_object_is_named_and_none_is_written_over(flavour) -> None:
    def stages() -> Any:
        made = Box([Stage(0.1), Stage(0.9)])
        made.current = made.held[0]
        return made

    box, fresh = stages(), stages()
    first = training(flavour, box)
    box.current = box.held[1]
    box.held[1].weight = 0.8
    name = "LambdaCallback.on_epoch_end:held.current"
    assert resumed(flavour, first, fresh) == ([f"{name} {ANOTHER}"], [f"{name}: {LOST}"])
    assert [stage.weight for stage in fresh.held] == [0.1, 0.8]


def test_what_cannot_be_set_is_left(flavour) -> None:
    box, fresh = Box(Frozen()), Box(Frozen())
    first = training(flavour, box)
    box.held = Frozen(3)
    said, lost = resumed(flavour, first, fresh)
    assert (len(said), len(lost)) == (1, 1)
    values = {
        f"LambdaCallback.on_epoch_end:held.{name}": 3 for name in ("held.number", "__class__")
    }
    assert training(flavour, fresh).restore(values, {}) == [
        f"{name}: {LOST}" for name in sorted(values)
    ]
    assert fresh.held == Frozen()


def test_an_attribute_is_no_global(flavour) -> None:
    other = Stage(0.1)
    other.count = 3

    def end(epoch: int, logs: Any) -> Any:
        return other.count

    callback = flavour.callbacks.LambdaCallback(on_epoch_end=end)
    names = Reachable({"LambdaCallback": callback}, ["LambdaCallback"]).places
    assert f"{__name__}:count" not in names
    assert "LambdaCallback.on_epoch_end:other.count" in names


class Hidden:
    """As a proxy of a request that is over."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("outside of a request")


def test_what_raises_is_passed_over(flavour) -> None:
    nowhere = type("Nowhere", (), {"__module__": None})()
    held = [Hidden(), nowhere, Stage(0.1)]
    places = Reachable({"a": Box(held)}, []).places
    assert places["a.held[2].weight"].value == 0.1


class Worker(threading.Thread):
    def __init__(self) -> None:
        super().__init__()
        self.number = 0


def test_a_thread_is_of_its_process_alone() -> None:
    assert Reachable({"a": Box(Worker())}, []).places == {}


def test_attributes_with_names_that_keras_uses_elsewhere(flavour) -> None:
    class Model(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.state = self.value = self.mode = self.update = self._value = 0

    found = Reachable({"model": Model()}, []).places
    assert {f"model.{n}" for n in ("state", "value", "mode", "update", "_value")} <= {*found}
    assert not {"model.built", "model.stop_training", "model._name"} & {*found}


def test_there_is_an_end_to_it(flavour, monkeypatch) -> None:
    monkeypatch.setattr(reachable, "MOST_OBJECTS", 50)
    first = training(flavour, [Stage(0.1) for _ in range(100)])
    assert first.collect()[2] == [
        "the program's code holds more than 200,000 objects or values: changes of the "
        "others are not saved, so a resumed training is not exact"
    ]


def test_of_large_variables_those_that_change_are_saved(flavour) -> None:
    def variables() -> list[Any]:
        return [tf.Variable(tf.ones(20_000)), tf.Variable(tf.ones(20_000)), tf.Variable(1.0)]

    held, fresh = variables(), variables()
    first = training(flavour, held)
    held[1].assign(2 * held[1])
    name = "extra/LambdaCallback.on_epoch_end:held"
    assert [*first.collect()[1]] == [f"{name}[1]", f"{name}[2]"]
    assert resumed(flavour, first, fresh) == ([], [])
    np.testing.assert_array_equal(fresh[1], held[1])
    other = [tf.Variable(tf.zeros(20_000)), *variables()[1:]]
    assert resumed(flavour, first, other)[1] == [
        "LambdaCallback.on_epoch_end:held[0]: differs from the saved training, and the "
        "checkpoint does not have its value: training is not exact"
    ]


def test_what_was_before_is_put_back(flavour) -> None:
    counts = {"batches": 2}
    extra = training(flavour, counts)
    counts["batches"] = 5  # of an earlier `fit`
    with extra.unchanged():
        counts["batches"] += 1
    assert counts == {"batches": 5}


def test_what_a_callback_sets_on_others_is_not_its_own(flavour) -> None:
    class Halving(flavour.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.meter = Stage(0.1)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate *= 0.5
            self.model.beta += 1
            self.meter.weight += 1

    assert callback_state.inexact([Halving()]) == []


X = np.arange(6, dtype=np.float32)[:, None]


def fit(keras: Any, directory: Any, counts: Any, *, x: Any = X, stop: Any = (), **more: Any) -> Any:
    """Two epochs of three batches, which count by themselves; stopped before a batch."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])

    def loss(real: Any, guessed: Any) -> Any:
        counts["steps"] += 1
        return tf.reduce_mean((real - guessed) ** 2, -1)

    def begin(batch: int, logs: Any = None) -> None:
        if (counts["epochs"], batch) == stop:
            raise KeyboardInterrupt

    others = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: counts.update(process=counts["program"]),
        on_epoch_begin=lambda epoch, logs: counts.update(epochs=counts["epochs"] + 1),
        on_train_batch_begin=begin,
    )
    resume = tfckpt.callbacks.resume(model, str(directory), save_freq=1, verbose=0, **more)
    model.compile("sgd", loss, run_eagerly=True)
    with contextlib.suppress(KeyboardInterrupt):
        model.fit(x, X, 2, epochs=2, verbose=0, callbacks=[resume, others])


def counting(program: int) -> dict[str, int]:
    return {"program": program, "steps": 0, "epochs": 0}


@pytest.mark.parametrize("stop", [(1, 2), (2, 1)])
def test_what_is_set_as_training_begins_is_of_this_process(flavour, tmp_path, stop) -> None:
    fit(flavour, tmp_path / "run", counting(1), stop=stop)
    counts = counting(2)
    fit(flavour, tmp_path / "run", counts)
    assert counts == {"program": 2, "process": 2, "steps": 6, "epochs": 2}


def test_a_fit_that_is_refused_leaves_plain_values_too(flavour, tmp_path) -> None:
    counts = counting(1)
    fit(flavour, tmp_path / "run", counts, stop=(2, 1))
    held = dict(counts)
    with pytest.raises(TfckptError, match="other values"):
        fit(flavour, tmp_path / "run", counts, x=X + 1)
    assert counts == held


def test_a_step_that_is_undone_counts_for_nothing(flavour, tmp_path) -> None:
    fit(flavour, tmp_path / "run", counting(1), stop=(2, 1))
    counts = counting(2)
    policy = {"training_state": ["epoch", "batch", "iterator", "seeds"]}
    fit(flavour, tmp_path / "run", counts, policy=policy)
    assert counts["steps"] == 2
