"""The tables of everyday restores: right at the first try, or by pasting what a refusal shows.

``zoo/everyday`` has the programs, what is right, and what is not as it should be; the tables are
printed by ``python -m zoo.everyday`` in ``tests``.
"""

import importlib

import pytest
from zoo.corpus import CORPUS
from zoo.everyday import tf1
from zoo.everyday.judge import FIRST, PASTED, measure, shares
from zoo.everyday.rows import ROWS

pytest.importorskip("tf_keras")
READ = {name: file for name, file in tf1.FILES.items() if not file.corpus or CORPUS.is_dir()}
CASES = [(name, flavour) for name, row in ROWS.items() for flavour in row.flavours]


def apart(rows):
    """Each row in one flavour, in turn; in the other one it is long."""
    return [
        pytest.param(name, flavour, marks=pytest.mark.long if number else ())
        for at, (name, row) in enumerate(rows.items())
        for number, flavour in enumerate(row.flavours[:: (-1) ** at])
    ]


@pytest.mark.parametrize(("name", "flavour"), apart(ROWS))
def test_each_restore(name, flavour) -> None:
    check(ROWS[name], measure, flavour)


@pytest.mark.parametrize(("name", "flavour"), apart(READ))
def test_each_file_of_tf1(name, flavour) -> None:
    check(tf1.FILES[name], tf1.measure, flavour)


def check(row, measure, flavour) -> None:
    found = measure(row, importlib.import_module(flavour))
    mended = found.cell == row.should != row.expected
    why = "mended: take `today` off" if mended else found.details
    assert found.cell == row.expected, why


def test_most_should_be_right_at_the_first_try_and_the_others_by_pasting() -> None:
    should = [ROWS[name].should for name, _ in CASES]
    assert {*should} == {FIRST, PASTED}
    assert should.count(FIRST) >= 0.8 * len(CASES)
    assert len(ROWS) >= 120
    cells = {(name, "keras"): file.expected for name, file in tf1.FILES.items()}
    assert tf1.without_thinking(cells) >= 0.8
    assert max(map(len, [*ROWS, *tf1.FILES])) <= 33  # the table has 80 columns
    found = shares({("a", "keras"): FIRST, ("b", "keras"): PASTED})
    assert found == "2 restores: 1 first, 1 pasted, 0 refused, 0 WRONG"
