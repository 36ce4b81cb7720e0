"""A state in a random place of what a ``fit`` holds: after two stops it is equal, or said."""

from __future__ import annotations

import collections
import random

import pytest
from zoo.placed import HOLDERS, KINDS, ROOTS, UNSAVED, drawn, stopped

pytest.importorskip("tf_keras")
SEED = 52
PLACES = [drawn(number, random.Random(f"{SEED} {number}")) for number in range(len(KINDS))]


@pytest.mark.parametrize("number", range(len(PLACES)), ids=[each.kind for each in PLACES])
def test_it_ends_as_it_would_have_or_says_so(number, tmp_path) -> None:
    place, flavor = PLACES[number], ("keras", "tf_keras")[number % 2]
    verdict, said = stopped(flavor, place, random.Random(number), tmp_path, times=1)
    assert verdict == ("said" if place.kind in UNSAVED else "equal"), (place, said)
    assert ("changes in training and cannot be saved" in said) == (place.kind in UNSAVED)


@pytest.mark.long
def test_many_end_as_they_would_have_or_say_so(tmp_path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    shares, wrong = collections.Counter(), []
    for number in range(300):
        draw = random.Random(f"{seed} {number}")
        place, flavor = drawn(number, draw), ("keras", "tf_keras")[number % 2]
        verdict, said = stopped(flavor, place, draw, tmp_path / str(number))
        shares[verdict] += 1
        wrong += [f"{number}: {flavor} {verdict} {place}\n{said}"] * (verdict in ("SILENT", "DIES"))
    print(f"seed {seed}: {dict(shares)}")
    assert not wrong, "\n".join(wrong)
    assert shares["equal"] >= 0.8 * 300


def test_every_place_and_kind_is_tried() -> None:
    assert {each.root for each in PLACES} == {*ROOTS}
    assert {each.kind for each in PLACES} == {*KINDS}
    assert {holder for each in PLACES for holder in each.holders} == {*HOLDERS}
