"""The table of resumed trainings: each ends as one that nobody killed, or says so.

``zoo/resumed`` has the programs, the places where they are killed, and what comes of it; the same
table is printed by ``python -m zoo.resumed`` in ``tests``. By default each row is killed in two
places, one for each flavour, which differ from row to row; the other places are ``long``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from zoo.forkserver import ForkServer
from zoo.resumed import FLAVOURS, KILLS, PRELOAD, ROWS, TO_BE_MENDED, measure, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("tf_keras")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
CASES = [(flavour, name) for name, row in ROWS.items() for flavour in row.flavours]


def one_of(flavour: str, name: str) -> str:
    """A kill of a row: another one for the next row and flavour, of those that are to be mended."""
    row = ROWS[name]
    marked = [kill for kill in row.kills if row.expected(flavour, kill) in TO_BE_MENDED]
    kills = marked or row.kills
    number = list(ROWS).index(name) + FLAVOURS.index(flavour) * (len(kills) // 2)
    return kills[number % len(kills)]


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(preload=PRELOAD) as server:
        yield server


def check(server: ForkServer, flavour: str, name: str, kills: list[str], folder: Path) -> None:
    row, wrong = ROWS[name], []
    for (*_, kill), found in measure(server, [(flavour, name, kills)], folder).items():
        expected = row.expected(flavour, kill)
        if found.cell == expected:
            continue
        mended = expected in TO_BE_MENDED and found.cell not in TO_BE_MENDED
        why = "mended: take the mark off" if mended else found.details
        wrong.append(f"{kill}: {found.cell}, expected {expected}: {why}")
    assert not wrong, "\n".join(wrong)


@forks
@pytest.mark.parametrize(("flavour", "name"), CASES)
def test_a_kill_of_each_row(flavour, name, server, tmp_path) -> None:
    check(server, flavour, name, [one_of(flavour, name)], tmp_path)


@forks
@pytest.mark.long
@pytest.mark.parametrize(("flavour", "name"), CASES)
def test_the_other_kills_of_each_row(flavour, name, server, tmp_path) -> None:
    kills = [kill for kill in ROWS[name].kills if kill != one_of(flavour, name)]
    check(server, flavour, name, kills, tmp_path)


def test_what_is_to_be_mended_is_said() -> None:
    for name, row in ROWS.items():
        cells = {row.expected(flavour, kill) for flavour in row.flavours for kill in row.kills}
        assert bool(row.today) == bool(cells & {*TO_BE_MENDED}), name
        assert not row.cells.keys() - {
            *("all", *row.flavours, *row.kills),
            *(f"{flavour} {kill}" for flavour in row.flavours for kill in row.kills),
        }, name


def test_every_place_is_in_the_sample_of_both_flavours() -> None:
    for flavour in FLAVOURS:
        tried = {one_of(each, name) for each, name in CASES if each == flavour}
        assert tried == {*KILLS}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_table_has_80_columns(flavour) -> None:
    cells = {
        (flavour, name, kill): row.expected(flavour, kill)
        for name, row in ROWS.items()
        for kill in row.kills
    }
    lines = table(flavour, cells).splitlines()
    assert len(lines) == len(ROWS) + 1
    assert max(map(len, lines)) <= 80
