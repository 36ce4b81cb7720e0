"""What a checkpoint would forget is refused when it is given, with what to write instead."""

from __future__ import annotations

import collections
import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt


@dataclasses.dataclass
class State:
    epoch: Any
    note: str = "first"


NUMBERS = {
    "7": (7, "a plain number (7)", "tf.Variable(7)"),
    "0.5": (0.5, "a plain number (0.5)", "tf.Variable(0.5)"),
    "True": (True, "a plain bool (True)", "tf.Variable(True)"),
    "numpy": (np.int64(7), "a plain number (7)", "tf.Variable(7)"),
    "array": (np.arange(3), "an array, not a variable", "tf.Variable(value)"),
    "tensor": (tf.constant(7), "a tensor, not a variable", "tf.Variable(value)"),
}
numbers = pytest.mark.parametrize(("value", "kind", "instead"), NUMBERS.values(), ids=NUMBERS)


@numbers
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


def test_what_the_message_says_works(tmp_path) -> None:
    checkpoint = tfckpt.Checkpoint(step=tf.Variable(1))
    checkpoint.epoch = tf.Variable(7)
    path = checkpoint.save(str(tmp_path / "ckpt"))
    checkpoint.epoch.assign(8)
    checkpoint.restore(path).assert_consumed()
    assert int(checkpoint.epoch) == 7


def build_model() -> None:
    """Stands for a function that somebody forgot to call."""


OTHERS = {
    "function": (build_model, "`model` is a function\n  call it: model=build_model()"),
    "lambda": (lambda: None, "`model` is a function\n  call it: model=build()"),
    "class": (State, "`model` is the class State\n  call it: model=State()"),
    "None": (None, "`model` is None\n  pass variables, Keras models"),
    "text": ("runs/ckpt-1", "`model` is plain text ('runs/ckpt-1')"),
    "dataclass": (State(1), "`model` is a State, which TensorFlow does not track\n  pass var"),
    "set": ({1}, "`model` is a set, which TensorFlow does not track\n  pass variables"),
}


@pytest.mark.parametrize(("value", "message"), OTHERS.values(), ids=OTHERS)
def test_what_is_no_object_is_refused_in_our_words(value, message) -> None:
    with pytest.raises(ValueError, match="trackable"):
        tf.train.Checkpoint(model=value)
    give = {
        "checkpoint": lambda: tfckpt.Checkpoint(model=value),
        "config": lambda: tfckpt.from_config({"version": 1}, model=value),
        "restore": lambda: tfckpt.restore({"version": 1, "restore": {"path": "a"}}, model=value),
    }
    if isinstance(value, str):  # which may be a key of a policy, misspelt
        with pytest.raises(tfckpt.PolicyError, match="neither an object that can be restored nor"):
            give.pop("restore")()
    for way in give.values():
        with pytest.raises(tfckpt.UntrackedError) as error:
            way()
        assert str(error.value).startswith(message)


ALONE = {
    "dict": ({"epoch": 7}, "state/epoch is a plain number (7)"),
    "list": ([1, 2], "state/0 is a plain number (1) (and 1 more in `state`)"),
    "nested": ({"a": [{"b": 0.5}]}, "state/a/0/b is a plain number (0.5)"),
    "text beside it": ({"name": "x", "epoch": 7}, "state/epoch is a plain number (7)"),
    "dataclass in it": ([State(3)], "state/0/epoch is a plain number (3)"),
    "flag": ({"done": False}, "state/done is a plain bool (False)"),
}


@pytest.mark.parametrize(("state", "told"), ALONE.values(), ids=ALONE)
def test_numbers_alone_in_a_container_are_refused(state, told) -> None:
    """Plain TensorFlow takes them, and restores nothing."""
    tf.train.Checkpoint(state=state)
    checkpoint = tfckpt.Checkpoint(step=tf.Variable(1))
    with pytest.raises(tfckpt.UntrackedError) as given:
        tfckpt.Checkpoint(state=state)
    with pytest.raises(tfckpt.UntrackedError) as assigned:
        checkpoint.state = state
    for error in (given, assigned):
        assert str(error.value).startswith(
            f"{told}, which a checkpoint does not save\n  use tf.Variable("
        )


@pytest.mark.parametrize("way", ["argument", "attribute"])
def test_numbers_beside_variables_are_said_once(way, caplog, tmp_path) -> None:
    """TensorFlow's own tests give such lists."""
    state = {"step": tf.Variable(3), "epoch": 7, "more": [1, tf.Variable(2)]}
    with caplog.at_level("WARNING"):
        if way == "argument":
            checkpoint = tfckpt.Checkpoint(state=state)
        else:
            checkpoint = tfckpt.Checkpoint()
            checkpoint.state = state
        path = checkpoint.save(str(tmp_path / "ckpt"))
        checkpoint.restore(path).assert_consumed()
    assert [record.getMessage() for record in caplog.records] == [
        "state/epoch is a plain number (7) (and 1 more in `state`), which a checkpoint does not "
        "save: use tf.Variable(7) instead"
    ]


class Holder:
    value = 7


HARMLESS: dict[str, Any] = {
    "text": "first run",
    "None": None,
    "function": build_model,
    "object": Holder(),
    "empty list": [],
    "empty dict": {},
    "list of text": ["a", "b"],
    "dataclass of text": State("a"),
    "variable": tf.Variable(1),
    "module": tf.Module(),
}


@pytest.mark.parametrize("value", HARMLESS.values(), ids=HARMLESS)
def test_what_is_no_state_may_be_an_attribute(value, caplog) -> None:
    checkpoint = tfckpt.Checkpoint(step=tf.Variable(1))
    with caplog.at_level("WARNING"):
        checkpoint.note = value
        checkpoint._number = 7
    assert not caplog.records
    assert checkpoint._number == 7


def test_what_tensorflow_takes_is_taken() -> None:
    """Lists, tuples, dicts, functions of TensorFlow's, weak references, copies."""
    import weakref

    module, pair = tf.Module(), collections.namedtuple("Pair", "a b")
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
