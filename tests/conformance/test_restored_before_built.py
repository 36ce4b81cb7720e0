"""The table of kinds: what is restored before its first call goes on as the run that was saved.

``zoo/kinds`` has the models and agents, the oracle, and what is not exact; the same table is
printed by ``python -m zoo.kinds`` in ``tests``. One process saves all kinds of a flavour, a new one
restores them.
"""

from __future__ import annotations

import os

import pytest

pytest.importorskip("tf_keras")

from collections.abc import Iterator, Sequence
from pathlib import Path

from zoo.forkserver import ForkServer
from zoo.kinds.judge import (
    CASES,
    FLAVOURS,
    KINDS,
    OURS,
    PRELOAD,
    REFUSED,
    SLOW,
    WRONG,
    expected,
    measure,
    way_of,
)

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(preload=PRELOAD) as server:
        yield server


def check(server: ForkServer, flavour: str, cases: Sequence[tuple[str, str]], folder: Path) -> None:
    measured = measure(server, flavour, cases, folder).items()
    wrong = [
        f"{name}, by {way}: {found}"
        for (name, way), found in measured
        if found.cell != expected(name, flavour).cell
    ]
    assert not wrong, "\n".join(wrong)


@forks
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_each_kind(flavour, server, tmp_path) -> None:
    cases = [(name, way_of(name, f)) for name, f in CASES if f == flavour and (name, f) not in SLOW]
    check(server, flavour, cases, tmp_path)


@forks
@pytest.mark.long
@pytest.mark.parametrize("way", OURS)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_in_every_way(flavour, way, server, tmp_path) -> None:
    check(server, flavour, [(name, way) for name, f in CASES if f == flavour], tmp_path)


def test_the_table_is_large_and_little_of_it_is_not_restored() -> None:
    rows = [expected(name, flavour) for name, flavour in CASES]
    assert len(KINDS) >= 60
    assert len(CASES) >= 140
    assert sum(row.cell == REFUSED for row in rows) <= 6
    assert all(row.cell != WRONG for row in rows)
    assert {way_of(*case) for case in CASES} == {*OURS}
