"""Random pairs of models: a restore is right or refused, or says what it leaves out.

A model is saved by plain TensorFlow, by tfckpt and into a file of Keras's; then it is edited as
people edit models, and restored in every way there is. Each layer keeps a number that Keras does
not know, so it is known whose values each is to have (``zoo/pairs``).
"""

from __future__ import annotations

import random

import keras
import pytest
from zoo.pairs.search import Search

tf_keras = pytest.importorskip("tf_keras")

_START = 15


def _search(number: int, start: int) -> None:
    search = Search({"keras": keras, "tf_keras": tf_keras}).run(number, start)
    print(f"seed {start}: {search.shares()}")
    faults = search.faults()
    assert not faults, f"wrong without a word:\n{faults}"


def test_a_sample_of_pairs() -> None:
    _search(300, _START)


@pytest.mark.long
def test_five_thousand_pairs() -> None:
    _search(5000, random.SystemRandom().randrange(1 << 32))
