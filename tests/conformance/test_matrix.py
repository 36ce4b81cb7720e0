"""What each format holds of a model, and what each reader makes of it.

Every model is saved in TensorFlow's format and in one of Keras's files, by turns, the first one in
every format, in both flavors, and read into objects that hold other values. That no value is
another's, that a refused restore changes nothing and that a restored model computes the same is
asserted of each (``zoo.matrix``). What arrives is compared with ``matrix.txt``: letters are
weights, optimizer, settings, seeds (r) and metrics, with a count where not all of them arrive.
"""

from __future__ import annotations

import pytest
from zoo.matrix import cases, row, table

CASES, ROWS = cases(), table()


@pytest.mark.parametrize("case", [case for case, usual in CASES.items() if usual], ids=str)
def test_a_format_gives_back_what_it_did(case, tmp_path):
    assert row(case, tmp_path) == ROWS[str(case)]


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case, usual in CASES.items() if not usual], ids=str)
def test_no_value_of_the_whole_product_is_another_s(case, tmp_path):
    assert row(case, tmp_path)


def test_the_table_has_a_row_for_each_case_and_no_other():
    assert list(ROWS) == [str(case) for case, usual in CASES.items() if usual]
