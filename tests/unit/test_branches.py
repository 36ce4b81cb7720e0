"""The tree of names: sums, and what is shown once."""

from __future__ import annotations

from tfckpt.core.inventory import Entry, Role
from tfckpt.core.name_tree import ordered, rows, tree


def shown(*names: str, fold: bool = True, sizes: dict[str, int] | None = None) -> list[str]:
    entries = [
        Entry(name, Role.WEIGHT, "float32", (2,), (sizes or {}).get(name, 8)) for name in names
    ]
    found = rows(tree(entries), fold=fold)
    return [f"{'  ' * row.depth}{row.label} {row.count} {row.nbytes}" for row in found]


def test_blocks_that_are_alike_are_one() -> None:
    names = [f"m/block_{n}/{part}" for n in (0, 1, 10, 2) for part in ("w", "b")]
    assert shown(*names) == [
        "m 8 64",
        "  block_{0…2} 6 48",
        "    w 3 24",
        "    b 3 24",
        "  block_10 2 16",
        "    w 1 8",
        "    b 1 8",
    ]


def test_blocks_that_differ_are_not() -> None:
    assert shown("m/a_0/w", "m/a_1/w", "m/a_2/v", sizes={"m/a_1/w": 12}) == [
        "m 3 28",
        "  a_0/w 1 8",
        "  a_1/w 1 12",
        "  a_2/v 1 8",
    ]


def test_blocks_within_blocks_are_multiplied() -> None:
    names = [f"m/b{n}/h{k}/{part}" for n in range(3) for k in range(4) for part in "wv"]
    assert shown(*names)[1:] == [
        "  b{0…2} 24 192",
        "    h{0…3} 24 192",
        "      w 12 96",
        "      v 12 96",
    ]


def test_a_value_may_have_others_below_it() -> None:
    assert shown("step", "step/x", "step/y") == ["step 3 24", "  x 1 8", "  y 1 8", "step 1 8"]


def test_without_folding_every_value_has_a_row() -> None:
    assert len(shown(*(f"m/b{n}/w" for n in range(5)), fold=False)) == 6


def test_a_name_of_many_levels_is_no_recursion_without_end() -> None:
    assert len(shown("/".join("a" * 50_000), "b")) == 2


def test_every_number_of_a_name_is_folded_and_not_the_last_alone() -> None:
    names = [f"m/block_{n}_norm{k}/w" for n in range(28) for k in (1, 2)]
    mixed = [name for n in range(28) for name in (f"m/block_{n}_up/w", f"m/block_{n}_up/b")]
    assert shown(*names, *mixed) == [
        "m 112 896",
        "  block_{0…27}_norm{1…2}/w 56 448",
        "  block_{0…27}_up 56 448",
        "    w 28 224",
        "    b 28 224",
    ]


def test_siblings_stand_in_the_order_of_their_numbers_and_named_ones_in_that_of_the_file() -> None:
    names = ["m/stem/w", *(f"m/vars/{n}" for n in (0, 1, 10, 11, 2)), "m/body/w"]
    assert shown(*names, fold=False) == [
        "m 7 56",
        "  stem/w 1 8",
        "  vars 5 40",
        *(f"    {n} 1 8" for n in (0, 1, 2, 10, 11)),
        "  body/w 1 8",
    ]
    entries = [Entry(name, Role.WEIGHT, "float32", (2,), 8) for name in names]
    assert [entry.name for entry in ordered(entries)] == [
        "m/stem/w",
        *(f"m/vars/{n}" for n in (0, 1, 2, 10, 11)),
        "m/body/w",
    ]
