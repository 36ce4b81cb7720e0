"""Random pairs of models without Keras: no plan puts a value into a layer that it is not of.

Thousands of pairs, as test_model_pairs_property.py has hundreds: what tfckpt knows of the models is
simulated, the plans are its own. The floors of ``zoo/pairs/simulated.json`` hold for a range of
pairs; a restore that is refused more often than there is worse, and so is a wrong one that the
lists do not have. A pair that is on the list to mend and restored rightly comes off the list. The
policies that refusals suggest are held in the same way, over fewer pairs.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from zoo.pairs import simulated
from zoo.pairs.simulated import POLICIES, WRITERS, Pair, Search, numbered, pairs, search
from zoo.pairs.verdicts import MISPLACED, RIGHT

_TESTS = Path(__file__).resolve().parent.parent
_KNOWN = json.loads((_TESTS / "zoo/pairs/simulated.json").read_text())
_START, _NUMBER = _KNOWN["range"]["start"], _KNOWN["range"]["pairs"]


@pytest.fixture(scope="module")
def found() -> dict[str, Search]:
    """What became of the range, and of the known pairs beyond it."""
    searches = search(itertools.islice(pairs(_START), _NUMBER))
    for writer, each in searches.items():
        print(f"seed {_START}: {each.shares()}")
        seen = {one.at for one in each.wrong}
        beyond = Search(writer)
        for at in sorted(_known("undecidable", writer) | _known("to_mend", writer)):
            if at not in seen:
                beyond.take(at, Pair(numbered(at)))
        each.wrong += beyond.wrong
    return searches


def _known(name: str, writer: str) -> set[int]:
    return {each["pair"] for each in _KNOWN[name] if each["writer"] == writer}


def _shown(listed: list[Any], known: set[int]) -> str:
    return "\n".join(str(one) for one in listed if one.at not in known)


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_misplaced_beyond_the_known_pairs(found: dict[str, Search], writer: str) -> None:
    known = _known("undecidable", writer) | _known("to_mend", writer)
    faults = _shown(found[writer].wrong, known)
    assert not faults, f"wrong without a word:\n{faults}"


@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_mended_is_taken_off_the_list(found: dict[str, Search], writer: str) -> None:
    mended = _known("to_mend", writer) - {one.at for one in found[writer].wrong}
    assert not mended, f"no longer wrong: take {sorted(mended)} off `to_mend` in simulated.json"


@pytest.mark.parametrize("writer", WRITERS)
def test_a_program_that_is_the_same_is_not_refused(found: dict[str, Search], writer: str) -> None:
    refused = _shown(found[writer].refused, _known("same_refused", writer))
    assert not refused, f"refused, though the same:\n{refused}"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("writer", WRITERS)
def test_as_many_are_restored_as_before(found: dict[str, Search], writer: str, policy: str) -> None:
    assert found[writer].restored(policy) >= _KNOWN["restored"][writer][policy]


@pytest.mark.parametrize("writer", WRITERS)
def test_what_a_refusal_suggests_is_right(writer: str) -> None:
    pasted = _KNOWN["pasted"]
    tried = itertools.islice(pairs(_START), pasted["pairs"])
    found = [(at, pair.case, pair.pasted(writer)) for at, pair in tried]
    wrong = {at: f"{verdict}, {case}" for at, case, verdict in found if verdict.word == MISPLACED}
    known = {each["pair"] for each in pasted["wrong"] if each["writer"] == writer}
    assert wrong.keys() == known, "\n".join(wrong[at] for at in wrong.keys() - known)
    assert sum(verdict.word == RIGHT for *_, verdict in found) >= pasted["right"][writer]


@pytest.mark.long
def test_twenty_thousand_other_pairs() -> None:
    """Of pairs that nobody has looked at, one in thousands is known to be wrong."""
    start = random.SystemRandom().randrange(1 << 32)
    for each in search(itertools.islice(pairs(start), 20_000)).values():
        print(f"seed {start}: {each.shares()}\n{_shown(each.wrong, set())}")
        assert len(each.wrong) <= 12, _shown(each.wrong, set())
        assert len(each.refused) <= 8, _shown(each.refused, set())


def test_it_needs_neither_tensorflow_nor_keras() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(_TESTS)!r}); import {simulated.__name__} as s;"
        "s._main('3', '1'); print({'tensorflow', 'keras', 'tf_keras'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout.endswith("set()\n"), run.stdout + run.stderr
