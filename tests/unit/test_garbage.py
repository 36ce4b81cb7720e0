"""Python's garbage collector is off while much is made, and never left off."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import tensorflow as tf

import tfckpt
from tfckpt.core.gc_pause import gc_paused
from tfckpt.errors import CheckpointNotFoundError
from tfckpt.live import restore
from tfckpt.stored.formats.open import open_checkpoint


def test_it_is_off_inside_and_on_behind() -> None:
    with gc_paused():
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_behind_an_error() -> None:
    with pytest.raises(KeyError), gc_paused():
        raise KeyError
    assert gc.isenabled()
    with pytest.raises(CheckpointNotFoundError):
        open_checkpoint("no such place/ckpt-1")
    assert gc.isenabled()


def test_who_has_turned_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_of_two_threads_the_one_that_came_first_turns_it_on() -> None:
    begun, end = threading.Event(), threading.Event()

    def other() -> None:
        with gc_paused():
            begun.set()
            end.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait(60)
    with gc_paused():
        end.set()
        thread.join(60)
    assert gc.isenabled()


@pytest.mark.parametrize("little", [1 << 20, 100])
def test_a_restore_of_little_waits_for_its_end_and_one_of_much_does_not(
    tmp_path, monkeypatch, little
) -> None:
    saved = tf.train.Checkpoint(v=tf.Variable(tf.ones(1000))).write(str(tmp_path / "ckpt"))
    seen, real = [], tf.raw_ops.AssignVariableOp

    def assign(*arguments: Any, **options: Any) -> Any:
        seen.append(gc.isenabled())
        return real(*arguments, **options)

    monkeypatch.setattr(restore, "_SMALL", little)
    monkeypatch.setattr(tf.raw_ops, "AssignVariableOp", assign)
    tfckpt.Checkpoint(v=tf.Variable(tf.zeros(1000))).read(saved)
    assert seen == [little < 4000]
    assert gc.isenabled()
