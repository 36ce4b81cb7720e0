"""The tree that `tfckpt inspect` shows: totals and order of any names."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tfckpt.core.inventory import Entry, Role
from tfckpt.core.name_tree import ordered, rows, tree

LONG = "9" * 30
PARTS = st.sampled_from(["", "a", "b", "0", "00", "1", "01", "2", "10", "a_2", "a_10", "٣", LONG])
NAMES = st.lists(
    st.one_of(
        st.lists(PARTS, min_size=1, max_size=4).map("/".join).filter(bool),
        st.integers(0, 120).map(lambda depth: "/".join(["d"] * depth + ["leaf"])),
    ),
    unique=True,
    max_size=30,
)


def entries(names):
    return [Entry(n, Role.WEIGHT, "float32", (i,), 4 * i) for i, n in enumerate(names, 1)]


@given(NAMES)
def test_every_subtree_has_the_sum_of_what_is_below_it(names):
    values = entries(names)
    root = tree(values)
    assert (root.count, root.nbytes) == (len(values), sum(one.nbytes for one in values))
    for row in rows(root, fold=False):
        if row.entry is not None:
            assert row.name == row.entry.name
            continue
        below = [e for e in values if e.name == row.name or e.name.startswith(f"{row.name}/")]
        assert (row.count, row.nbytes) == (len(below), sum(one.nbytes for one in below))


@given(NAMES)
def test_every_value_is_in_it_once(names):
    assert sorted(one.name for one in ordered(entries(names))) == sorted(names)


@given(st.lists(PARTS.filter(bool), unique=True))
def test_siblings_that_differ_in_a_number_ascend_and_no_other_moves(parts):
    shown = [one.name for one in ordered(entries(parts))]
    kinds = [re.sub("[0-9]+", "#", part) for part in parts]
    assert [re.sub("[0-9]+", "#", name) for name in shown] == kinds
    for kind in set(kinds):
        numbers = [
            int(n)
            for name in shown
            if "#" in kind
            for n in re.findall("[0-9]+", name)
            if re.sub("[0-9]+", "#", name) == kind
        ]
        assert numbers == sorted(numbers)
