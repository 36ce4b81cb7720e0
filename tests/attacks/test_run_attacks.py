"""A run whose newest checkpoint or state file is damaged goes on, or says why it cannot."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from attacks.damage import KINDS, SEED, STATE_FILES
from zoo.forkserver import ForkServer, results

FAULTS, TOGETHER = 10, 200  # shown, and in one child


@pytest.fixture(scope="module")
def template(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An undamaged run of three checkpoints."""
    place = str(tmp_path_factory.mktemp("template"))
    server.run("attacks.trial:make", place).result()
    return place


@pytest.fixture
def ends(server: ForkServer, template: str, tmp_path: Path) -> Any:
    """``ends(cases)``: how each ended, none with a fault."""

    def check(cases: list[list[Any]]) -> list[str]:
        parts = [cases[at : at + TOGETHER] for at in range(0, len(cases), TOGETHER)]
        requests = [("attacks.trial:try_all", template, str(tmp_path), part) for part in parts]
        found = [one for part in results(server.run_many(requests, timeout=600)) for one in part]
        faulty = [(case, one["faults"]) for case, one in zip(cases, found, strict=True)]
        shown = [f"{case}: {faults}" for case, faults in faulty if faults]
        assert not shown, f"{len(shown)} of {len(cases)}\n" + "\n".join(shown[:FAULTS])
        return [one["ended"] for one in found]

    return check


def kept(cases: Iterable[tuple[str, int]]) -> list[list[Any]]:
    """With ``max_to_keep``, in every second case."""
    return [[*case, (None, 2)[place % 2]] for place, case in enumerate(cases)]


@pytest.mark.parametrize("count", [12, pytest.param(1000, marks=pytest.mark.long)])
def test_damage_is_survived_or_refused(ends: Any, count: int) -> None:
    cases = kept(itertools.product(KINDS, range(count)))
    found = collections.Counter(zip((kind for kind, *_ in cases), ends(cases), strict=True))
    print(f"\nseed {SEED}: {dict(found)}")
    # Whoever seals a record says what is in it: what it does not mention, is missing, and named.
    assert not [kind for kind, ended in found if ended == "partial" and "forged" not in kind]


def test_slots_of_weights_that_a_record_lacks_are_named(ends: Any) -> None:
    cases = [["forged record", number, None] for number in (16825, 19834)]
    assert ends(cases) == ["partial"] * 2


def test_a_state_file_leads_nobody_astray(ends: Any) -> None:
    assert ends(kept((attack, 0) for attack in STATE_FILES)) == ["newest"] * len(STATE_FILES)
