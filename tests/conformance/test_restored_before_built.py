"""The table of kinds: what is restored before its first call goes on as the run that was saved.

``zoo/kinds`` has the models and agents, the oracle, and what is not exact. One process saves all
kinds of a flavour, a new one restores them.
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
    PRELOAD,
    REFUSED,
    USUAL,
    WAYS,
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
    cases = [(name, way_of(name, f)) for name, f in USUAL if f == flavour]
    check(server, flavour, cases, tmp_path)


@forks
@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_in_every_way(flavour, way, server, tmp_path) -> None:
    check(server, flavour, [(name, way) for name, f in CASES if f == flavour], tmp_path)


def test_little_of_the_table_is_not_restored_and_every_way_is_tried() -> None:
    cells = [expected(*case).cell for case in CASES]
    assert cells.count(REFUSED) <= 6
    assert WRONG not in cells
    assert {way_of(*case) for case in USUAL} == {*WAYS}
