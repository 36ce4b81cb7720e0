"""The tables of everyday restores: right at the first try, or by pasting what a refusal shows.

``zoo/everyday`` has the programs, what is right, and what is not as it should be; the tables are
printed by ``python -m zoo.everyday`` in ``tests``.
"""

import importlib

import pytest
from zoo.corpus import CORPUS
from zoo.everyday import tf1
from zoo.everyday.judge import FIRST, PASTED, measure, shares
from zoo.everyday.more import MORE
from zoo.everyday.rows import ROWS

pytest.importorskip("tf_keras")
READ = {name: file for name, file in tf1.FILES.items() if not file.corpus or CORPUS.is_dir()}
CASES, GUIDES, FILES = (
    [(name, flavour) for name, row in rows.items() for flavour in row.flavours]
    for rows in (ROWS, MORE, READ)
)


def apart(cases):
    """Those of tf_keras, which traces longer, are of the long tests."""
    marks = {"keras": (), "tf_keras": pytest.mark.long}
    return [pytest.param(name, flavour, marks=marks[flavour]) for name, flavour in cases]


@pytest.mark.parametrize(("name", "flavour"), CASES)
def test_each_restore(name, flavour) -> None:
    check(ROWS[name], measure, flavour)


@pytest.mark.parametrize(("name", "flavour"), apart(GUIDES))
def test_each_program_of_a_guide(name, flavour) -> None:
    check(MORE[name], measure, flavour)


@pytest.mark.parametrize(("name", "flavour"), apart(FILES))
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
    assert [MORE[name].expected for name, _ in GUIDES].count(FIRST) >= 0.85 * len(GUIDES) >= 85
    assert tf1.without_thinking({each: tf1.FILES[each[0]].expected for each in FILES}) >= 0.8
    assert max(map(len, [*ROWS, *MORE, *tf1.FILES])) <= 33  # the table has 80 columns
    found = shares({("a", "keras"): FIRST, ("b", "keras"): PASTED})
    assert found == "2 restores: 1 first, 1 pasted, 0 refused, 0 WRONG"
