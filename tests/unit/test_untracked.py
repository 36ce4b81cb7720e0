"""What a checkpoint would forget is refused when it is given, with what to write instead."""

from __future__ import annotations

import collections
import copy
import dataclasses
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt


@dataclasses.dataclass
class State:
    epoch: Any
    note: str = "first"


NUMBERS = [
    (7, "a plain number (7)", "tf.Variable(7)"),
    (True, "a plain bool (True)", "tf.Variable(True)"),
    (np.arange(3), "an array, not a variable", "tf.Variable(value)"),
    (tf.constant(7), "a tensor, not a variable", "tf.Variable(value)"),
]


@pytest.mark.parametrize(("value", "kind", "instead"), NUMBERS)
def test_a_number_as_an_attribute_is_refused(value, kind, instead) -> None:
    checkpoint = tfckpt.Checkpoint(step=tf.Variable(1))
    with pytest.raises(tfckpt.UntrackedError) as error:
        checkpoint.epoch = value
    assert str(error.value) == (
        f"`epoch` is {kind}, which a checkpoint does not save\n  make it a variable: "
        f"checkpoint.epoch = {instead}; checkpoint.epoch.assign(…) changes it"
    )
    assert isinstance(error.value, ValueError)
    assert not hasattr(checkpoint, "epoch")


def build_model() -> None:
    """Stands for a function that somebody forgot to call."""


OTHERS = [
    (build_model, "`model` is a function\n  call it: model=build_model()"),
    (lambda: None, "`model` is a function\n  call it: model=build()"),
    (State, "`model` is the class State\n  call it: model=State()"),
    (None, "`model` is None\n  pass variables, Keras models"),
    ("runs/ckpt-1", "`model` is plain text ('runs/ckpt-1')"),
    (State(1), "`model` is a State, which TensorFlow does not track\n  pass var"),
    ({1}, "`model` is a set, which TensorFlow does not track\n  pass variables"),
]


@pytest.mark.parametrize(("value", "message"), OTHERS)
def test_what_is_no_object_is_refused_in_our_words(value, message) -> None:
    with pytest.raises(ValueError, match="trackable"):
        tf.train.Checkpoint(model=value)
    give = {
        "checkpoint": lambda: tfckpt.Checkpoint(model=value),
        "config": lambda: tfckpt.from_config({"version": 1}, model=value),
        "restore": lambda: tfckpt.restore({"version": 1, "restore": {"path": "a"}}, model=value),
    }
    for way in give.values():
        with pytest.raises(tfckpt.UntrackedError) as error:
            way()
        assert str(error.value).startswith(message)


ALONE = [
    ([1, 2], "state/0 is a plain number (1) (and 1 more in `state`)"),
    ({"a": [{"b": 0.5}]}, "state/a/0/b is a plain number (0.5)"),
    ([State(3)], "state/0/epoch is a plain number (3)"),
    ({"done": False}, "state/done is a plain bool (False)"),
]


@pytest.mark.parametrize(("state", "told"), ALONE)
def test_numbers_alone_in_a_container_are_refused(state, told) -> None:
    """Plain TensorFlow takes them, and restores nothing."""
    tf.train.Checkpoint(state=state)
    checkpoint = tfckpt.Checkpoint(step=tf.Variable(1))
    with pytest.raises(tfckpt.UntrackedError) as given:
        tfckpt.Checkpoint(state=state)
    with pytest.raises(tfckpt.UntrackedError) as assigned:
        checkpoint.state = state
    for error in (given, assigned):
        words = f"{told}, which a checkpoint does not save\n  use tf.Variable("
        assert str(error.value).startswith(words)


@pytest.mark.parametrize("way", ["argument", "attribute"])
def test_numbers_beside_variables_are_said_once(way, caplog, tmp_path) -> None:
    """TensorFlow's own tests give such lists."""
    state = {"step": tf.Variable(3), "epoch": 7, "more": [1, tf.Variable(2)]}
    checkpoint = tfckpt.Checkpoint(**({"state": state} if way == "argument" else {}))
    if way == "attribute":
        checkpoint.state = state
    path = checkpoint.save(str(tmp_path / "ckpt"))
    checkpoint.restore(path).assert_consumed()
    assert [record.getMessage() for record in caplog.records] == [
        "state/epoch is a plain number (7) (and 1 more in `state`), which a checkpoint does not "
        "save: use tf.Variable(7) instead"
    ]


def test_what_is_no_state_or_what_tensorflow_takes_is_taken(caplog) -> None:
    class Holder:
        value = 7

    module, pair = tf.Module(), collections.namedtuple("Pair", "a b")
    tracked = ([], {}, tf.Variable(1), module)
    for value in ("first run", None, build_model, Holder(), ["a", "b"], State("a"), *tracked):
        checkpoint = tfckpt.Checkpoint(step=tf.Variable(1))
        checkpoint.note = value
        checkpoint._number = 7
        assert checkpoint._number == 7
    tfckpt.Checkpoint(
        function=tf.function(lambda: 1),
        pair=pair(tf.Variable(1), tf.Variable(2)),
        ordered=collections.OrderedDict(a=tf.Variable(1)),
        nothing=[],
    )
    tfckpt.Checkpoint(weakref.ref(module))
    tfckpt.Checkpoint(root=module, v=tf.Variable(1))
    copied = copy.deepcopy(tfckpt.Checkpoint(v=tf.Variable(1)))
    copied.v.assign(2)
    assert not caplog.records
