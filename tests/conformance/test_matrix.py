"""What each format holds of a model, and what each reader makes of it: names and values.

Every model is saved by every writer, every optimizer too, in both flavors, and is read by every
reader into objects that hold other values. That no value is another's, that a refused restore
changes nothing and that a restored model computes the same is asserted of each (``zoo.matrix``).
What arrives is compared with ``matrix.txt``: letters are weights, optimizer, settings, seeds (r)
and metrics, with a count where not all of them arrive; ``names`` says what the file lacks
(-), has more (+), or calls by another value's name (~).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pytest
from zoo.matrix import Case, Scene, as_text, cases, row, table

if TYPE_CHECKING:
    from pathlib import Path

CASES = cases()
ROWS = table()
scene = lru_cache(1)(Scene)


@pytest.mark.parametrize("case", [case for case, usual in CASES.items() if usual], ids=str)
def test_a_format_holds_and_gives_back_what_it_did(case: Case, tmp_path: Path) -> None:
    assert as_text(row(scene(*case[:3]), case.writer, tmp_path)) == ROWS[str(case)]


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case, usual in CASES.items() if not usual], ids=str)
def test_no_value_of_the_whole_product_is_another_s(case: Case, tmp_path: Path) -> None:
    assert row(scene(*case[:3]), case.writer, tmp_path)


def test_the_table_has_a_row_for_each_case_and_no_other() -> None:
    assert list(ROWS) == [str(case) for case, usual in CASES.items() if usual]
