"""The table of resumed trainings: each ends as one that nobody killed, or says so.

``zoo/resumed`` has the programs, the places where they are killed, and what comes of it; the same
table is printed by ``python -m zoo.resumed`` in ``tests``. By default most rows are killed in one
place and flavor, which differ from row to row; the others are ``long``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from zoo.forkserver import ForkServer
from zoo.resumed import FLAVOURS, KILLS, PRELOAD, ROWS, by_default, measure, table

pytest.importorskip("tf_keras")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
PARTS = 2  # of the table of a flavor, each begun in one process and resumed in another


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(preload=PRELOAD) as server:
        yield server


def check(server: ForkServer, flavor: str, part: int, folder: Path, *, long: bool) -> None:
    cases = []
    for name in [name for name, row in ROWS.items() if flavor in row.flavors][part::PARTS]:
        usual = by_default(flavor, name)
        kills = [kill for kill in ROWS[name].kills if (kill in usual) != long]
        cases += [(name, kills)] * bool(kills)
    wrong = []
    for (name, kill), found in measure(server, flavor, cases, folder).items():
        expected = ROWS[name].expected(flavor, kill)
        if found.cell != expected:
            wrong.append(f"{name}, {kill}: {found.cell}, expected {expected}: {found.details}")
    assert not wrong, "\n".join(wrong)


@forks
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("flavor", FLAVOURS)
def test_kills_of_each_row(flavor, part, server, tmp_path) -> None:
    check(server, flavor, part, tmp_path, long=False)


@forks
@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("flavor", FLAVOURS)
def test_the_other_kills_of_each_row(flavor, part, server, tmp_path) -> None:
    check(server, flavor, part, tmp_path, long=True)


def test_every_place_is_tried_and_the_table_has_80_columns() -> None:
    assert {kill for f in FLAVOURS for name in ROWS for kill in by_default(f, name)} == {*KILLS}
    for flavor in FLAVOURS:
        rows = {name: row for name, row in ROWS.items() if flavor in row.flavors}
        cells = {(n, k): row.expected(flavor, k) for n, row in rows.items() for k in row.kills}
        lines = table(flavor, cells).splitlines()
        assert len(lines) == len(rows) + 1
        assert max(map(len, lines)) <= 80
