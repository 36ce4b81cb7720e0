"""The table of kinds: what is restored before its first call goes on as the run that was saved.

``zoo/kinds`` has the models and agents, the oracle, and what is not exact; the same table is
printed by ``python -m zoo.kinds`` in ``tests``.
"""

import pytest

pytest.importorskip("tf_keras")

from zoo.kinds.judge import (
    CASES,
    KINDS,
    REFUSED,
    SLOW,
    WAYS,
    WRONG,
    expected,
    measure,
    way_of,
)


@pytest.mark.parametrize(("name", "flavour"), [case for case in CASES if case not in SLOW])
def test_each_kind(name, flavour, tmp_path) -> None:
    found = measure(name, flavour, tmp_path, way_of(name, flavour))
    assert found.cell == expected(name, flavour).cell, found


@pytest.mark.long
@pytest.mark.parametrize(("name", "flavour"), CASES)
def test_in_every_way(name, flavour, tmp_path) -> None:
    for number, way in enumerate(WAYS):
        found = measure(name, flavour, tmp_path / str(number), way)
        assert found.cell == expected(name, flavour).cell, found


def test_the_table_is_large_and_little_of_it_is_not_restored() -> None:
    rows = [expected(name, flavour) for name, flavour in CASES]
    assert len(KINDS) >= 60
    assert len(CASES) >= 140
    assert sum(row.cell == REFUSED for row in rows) <= 6
    assert all(row.cell != WRONG for row in rows)
    assert {way_of(*case) for case in CASES} == {*WAYS}
