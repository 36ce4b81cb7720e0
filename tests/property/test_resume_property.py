"""Random small trainings, each stopped twice: resumed exactly, or it was said that it is not.

Data that draws, state that no model holds, layers with state, two optimizers, Keras's callbacks
(``zoo/stateful``), in both flavours.
"""

from __future__ import annotations

import collections
import random
from typing import TYPE_CHECKING

import keras
import pytest
import tensorflow as tf
from zoo.stateful import drawn_training, stopped_twice

if TYPE_CHECKING:
    from pathlib import Path

tf_keras = pytest.importorskip("tf_keras")

_START = 4


def _search(number: int, start: int, directory: Path) -> None:
    draw = random.Random(start)
    shares: collections.Counter[str] = collections.Counter()
    wrong = []
    for count in range(number):
        flavour = (keras, tf_keras)[count % 2]
        words = drawn_training(draw)
        verdict, said = stopped_twice(flavour, words, str(directory / str(count)), draw)
        shares[verdict] += 1
        if verdict == "wrong":
            wrong.append((flavour.__name__, words, said))
        flavour.backend.clear_session()
    print(f"seed {start}: {number} trainings, {dict(shares)}")
    assert not wrong, wrong


@pytest.fixture(autouse=True)
def _no_generators_left():
    yield
    tf.random.set_seed(0)


def test_a_sample_of_trainings_is_resumed_exactly_or_says_so(tmp_path) -> None:
    _search(12, _START, tmp_path)


@pytest.mark.long
def test_three_hundred_trainings_are_resumed_exactly_or_say_so(tmp_path) -> None:
    _search(300, random.SystemRandom().randrange(1 << 32), tmp_path)
