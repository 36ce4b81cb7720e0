"""What TensorFlow restores later is the same whether its parts are as they are known or not."""

from __future__ import annotations

import gc

import pytest
import tensorflow as tf

import tfckpt
from tfckpt.live.private import tensorflow


@pytest.fixture(params=[True, False], ids=["known", "unknown"])
def known(request, monkeypatch) -> bool:
    """Whether the parts of TensorFlow are as they are known."""
    if request.param and not tensorflow.Coordinator:
        pytest.skip("this TensorFlow has other parts")
    if not request.param:
        monkeypatch.setattr(tensorflow, "Coordinator", None)
    return request.param


def module(*names: str) -> tf.Module:
    made = tf.Module()
    for number, name in enumerate(names):
        setattr(made, name, tf.Variable([[1.0 + number, 2.0]]))
    return made


@pytest.fixture
def path(tmp_path) -> str:
    saved = tfckpt.Checkpoint(
        here=module("a", "b"), gone=module("c"), whole=tf.Variable(5, dtype=tf.int64)
    )
    return saved.write(tmp_path / "ckpt")


def said(status, name: str) -> list[str]:
    """What an assertion says, without its first line, which is tfckpt's own."""
    try:
        getattr(status, name)()
    except AssertionError as error:
        return [line.strip() for line in str(error).splitlines() if "tfckpt" not in line][-1:]
    return []


ASSERTIONS = "assert_consumed", "assert_existing_objects_matched", "assert_nontrivial_match"


@pytest.mark.parametrize("live", [("a", "b"), ("a",), ("a", "b", "more")], ids="/".join)
@pytest.mark.parametrize("assertion", ASSERTIONS)
def test_the_assertions_say_what_tensorflow_says(known, path, live, assertion) -> None:
    theirs = said(tf.train.Checkpoint(here=module(*live)).read(path), assertion)
    ours = said(tfckpt.Checkpoint(here=module(*live)).read(path), assertion)
    assert ours == theirs


def test_what_comes_later_is_restored(known, path) -> None:
    checkpoint = tfckpt.Checkpoint(here=module("a"))
    status = checkpoint.read(path)
    checkpoint.here.a.assign([[8.0, 8.0]])
    checkpoint.here.b = tf.Variable([[0.0, 0.0]])
    checkpoint.gone = module("c")
    checkpoint.whole = tf.Variable(0, dtype=tf.int64)
    assert checkpoint.here.b.numpy().tolist() == [[2.0, 2.0]]
    assert checkpoint.gone.c.numpy().tolist() == [[1.0, 2.0]]
    assert int(checkpoint.whole) == 5
    assert checkpoint.here.a.numpy().tolist() == [[8.0, 8.0]]  # trained since
    status.assert_consumed()


def test_objects_beside_a_root_are_bound(known, path) -> None:
    root = module("none")
    theirs = tf.train.Checkpoint(root, here=module("a"), gone=tf.Module())
    ours = tfckpt.Checkpoint(module("none"), here=module("a"), gone=tf.Module())
    expected = said(theirs.read(path), "assert_consumed")
    status = ours.read(path)
    assert said(status, "assert_consumed") == expected
    attached = dict(tf.train.TrackableView.children(ours))
    attached["gone"].c = tf.Variable([[0.0, 0.0]])
    assert attached["gone"].c.numpy().tolist() == [[1.0, 2.0]]


def test_state_in_python_is_restored(known, tmp_path) -> None:
    class Count(tf.train.experimental.PythonState):
        def __init__(self, value: str) -> None:
            self.value = value

        def serialize(self) -> str:
            return self.value

        def deserialize(self, text: bytes) -> None:
            self.value = text.decode()

    path = tfckpt.Checkpoint(count=Count("7"), v=tf.Variable(1.0), w=tf.Variable(2.0)).write(
        tmp_path / "ckpt"
    )
    count = Count("0")
    tfckpt.Checkpoint(count=count, v=tf.Variable(0.0)).read(path).expect_partial()
    assert count.value == "7"


def test_what_nothing_asked_for_is_told_when_it_is_given_up(known, path, caplog) -> None:
    checkpoint = tfckpt.Checkpoint(here=module("a"))
    checkpoint.read(path)
    del checkpoint
    gc.collect()
    assert "(root).gone.c" in caplog.text
    caplog.clear()
    checkpoint = tfckpt.Checkpoint(here=module("a"))
    checkpoint.read(path).expect_partial()
    del checkpoint
    gc.collect()
    assert not caplog.text
