"""A run whose newest checkpoint or state file is damaged goes on, or says why it cannot."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest
from attacks.damage import KINDS, SEED, STATE_FILES
from zoo.forkserver import ForkServer

FAULTS = 10  # shown


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
        request = ("attacks.trial:try_all", template, str(tmp_path), cases)
        found = server.run(*request, timeout=600).result()
        faulty = [(case, one["faults"]) for case, one in zip(cases, found, strict=True)]
        shown = [f"{case}: {faults}" for case, faults in faulty if faults]
        assert not shown, f"{len(shown)} of {len(cases)}\n" + "\n".join(shown[:FAULTS])
        return [one["ended"] for one in found]

    return check


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_damage_is_survived_or_refused(ends: Any, kind: str, count: int) -> None:
    found = ends([[kind, number, (None, 2)[number % 2]] for number in range(count)])
    print(f"\nseed {SEED}: {kind:14} {dict(collections.Counter(found))}")
    # Whoever seals a record says what is in it: what it does not mention, is missing, and named.
    assert "partial" not in found or kind.startswith("forged")


def test_slots_of_weights_that_a_record_lacks_are_named(ends: Any) -> None:
    cases = [["forged record", number, None] for number in (16825, 19834)]
    assert ends(cases) == ["partial"] * 2


@pytest.mark.parametrize("max_to_keep", [None, 2])
def test_a_state_file_leads_nobody_astray(ends: Any, max_to_keep: int | None) -> None:
    cases = [[attack, 0, max_to_keep] for attack in STATE_FILES]
    assert ends(cases) == ["newest"] * len(cases)
