"""A state in a random place of what a ``fit`` holds: after two stops it is equal, or said."""

from __future__ import annotations

import random

import pytest
from zoo.placed import HOLDERS, KINDS, ROOTS, drawn_place, search

pytest.importorskip("tf_keras")
SEED = 52


def test_a_fixed_range_ends_as_it_would_have_or_says_so() -> None:
    shares, wrong = search(range(8), SEED)
    print(f"seed {SEED}: {dict(shares)}")
    assert not wrong, "\n".join(wrong)
    assert shares["equal"] >= 6


@pytest.mark.long
def test_many_end_as_they_would_have_or_say_so() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    shares, wrong = search(range(300), seed)
    print(f"seed {seed}: {dict(shares)}")
    assert not wrong, "\n".join(wrong)
    assert shares["equal"] >= 0.85 * 300


def test_every_place_and_kind_is_drawn() -> None:
    places = [drawn_place(random.Random(number)) for number in range(1000)]
    assert {each.root for each in places} == {*ROOTS}
    assert {each.kind for each in places} == {*KINDS}
    assert {holder for each in places for holder in each.holders} == {*HOLDERS}
