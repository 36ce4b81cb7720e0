"""The table of everyday restores: right at the first try, or by pasting what a refusal shows.

``zoo/everyday`` has the programs, what is right, and what is not as it should be; the same table is
printed by ``python -m zoo.everyday`` in ``tests``.
"""

from __future__ import annotations

import importlib

import pytest
from zoo.everyday.judge import FIRST, FLAVOURS, PASTED, measure
from zoo.everyday.rows import AGAIN, COMPILED, EDITED, FILES, LOOPS, ROWS
from zoo.everyday.shown import shares, table
from zoo.everyday.today import TODAY, expected

pytest.importorskip("tf_keras")
CASES = [(name, flavour) for name, row in ROWS.items() for flavour in row.flavours]


@pytest.mark.parametrize(("name", "flavour"), CASES)
def test_each_restore(name, flavour, tmp_path) -> None:
    row, wanted = ROWS[name], expected(name, flavour)
    found = measure(row, importlib.import_module(flavour), tmp_path)
    if found.cell != wanted:
        mended = found.cell == row.should
        why = "mended: take the mark off" if mended else found.details
        pytest.fail(f"{found.cell}, expected {wanted}: {why}")


def test_what_is_to_be_mended_is_in_the_table_and_is_said() -> None:
    for name, today in TODAY.items():
        assert today.why, name
        for flavour in today.flavours or ROWS[name].flavours:
            assert flavour in ROWS[name].flavours, name
            assert expected(name, flavour) == today.cell != ROWS[name].should, name


def test_most_should_be_right_at_the_first_try_and_the_others_by_pasting() -> None:
    should = [ROWS[name].should for name, _ in CASES]
    assert {*should} == {FIRST, PASTED}
    assert should.count(FIRST) >= 0.8 * len(CASES)
    assert len(ROWS) == sum(map(len, (AGAIN, LOOPS, COMPILED, EDITED, FILES))) >= 120


def test_the_table_has_80_columns_and_the_shares_below() -> None:
    cells = {(name, flavour): expected(name, flavour) for name, flavour in CASES}
    lines = table(cells).splitlines()
    assert len(lines) == len(ROWS) + 1
    assert max(map(len, lines)) <= 80
    assert shares(cells).startswith(f"{len(CASES)} restores: ")
    assert shares({("a", FLAVOURS[0]): FIRST, ("b", FLAVOURS[0]): PASTED}).endswith(
        "first try 50%, first try or pasted 100%"
    )
