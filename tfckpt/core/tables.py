"""Tables as aligned lines without borders, which suit ``grep`` and ``diff``.

A name that is too long for its column gets a line of its own and is never cut, because names are
copied into configs. Text from files is escaped (`printable`).
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

from tfckpt.core.name_tree import rows as tree_rows
from tfckpt.core.name_tree import tree
from tfckpt.core.text import WIDTH, all_printable, printable, signature, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.core.name_tree import TreeRow

GAP = "  "
_MIN_TEXT_COLUMNS = 20
_MOST = 500  # rows of a result that is printed whole


def shortened(title: Sequence[str], lines: Sequence[Sequence[str]], *right: int) -> Iterator[str]:
    """A table that ends with how many rows it leaves out, so that a notebook stays small."""
    yield from plain([title, *lines[:_MOST]], *right, width=sys.maxsize)
    if (hidden := len(lines) - _MOST) > 0:
        yield f"… and {hidden:,} more rows"


def inventory_text(inventory: Inventory) -> str:
    """The values of an inventory, below how many there are."""
    entries = inventory.entries.values()
    total = size(sum(entry.nbytes for entry in entries))
    head = f"{len(entries):,} value{'s' * (len(entries) != 1)} ({total}) of {inventory.source}"
    return "\n".join([printable(head), "", *value_tree(entries)])


def value_tree(entries: Iterable[Entry]) -> Iterator[str]:
    """Values by name, with role, type and size; layers that are alike are one row."""
    lines = list(map(tree_line, islice(tree_rows(tree(entries), fold=True), _MOST + 1)))
    yield from plain([("name", "role", "type", "size"), *lines[:_MOST]], 3, width=sys.maxsize)
    if len(lines) > _MOST:
        yield "… and more: `tfckpt inspect` lists all"


def tree_line(row: TreeRow, *, indented: bool = True) -> tuple[str, str, str, str]:
    name = f"{GAP * row.depth}{row.label}" if indented else row.name
    if row.entry is None:
        return f"{name}/", "", f"{row.count:,} value{'s' * (row.count != 1)}", size(row.nbytes)
    times = f" ×{row.count:,}" if row.count > 1 else ""
    return name, str(row.entry.role), signature(row.entry) + times, size(row.nbytes)


def plain(
    rows: Sequence[Sequence[str]], *right: int, wraps: bool = False, width: int = WIDTH
) -> Iterator[str]:
    r"""The rows as aligned lines, with columns ``right`` right-aligned.

    >>> print("\n".join(plain([("a", "float32 (2,)", "8 B"), ("b/c", "int64 ()", "16 B")], 2)))
    a    float32 (2,)   8 B
    b/c  int64 ()      16 B
    """
    cells = list(map(all_printable, zip(*rows, strict=True)))
    if wraps:
        cells = list(zip(*_wrapped(list(zip(*cells, strict=True)), width), strict=True))
    widths = [max(map(len, column)) for column in cells]
    rest = sum(widths[1:]) + len(GAP) * (len(widths) - 1)
    widths[0] = max(min(widths[0], width - rest), len(GAP))
    first = widths[0]
    ends: dict[tuple[str, ...], str] = {}  # the rows of a long table mostly end alike
    for row in zip(*cells, strict=True):
        name, others = row[0], row[1:]
        if (end := ends.get(others)) is None:
            padded = (
                cell.rjust(wide) if index in right else cell.ljust(wide)
                for index, (cell, wide) in enumerate(zip(row, widths, strict=True))
                if index
            )
            end = ends[others] = "".join(GAP + cell for cell in padded).rstrip()
        if len(name) > first:
            yield name.rstrip()
            name = ""
        yield (name.ljust(first) + end).rstrip()


def _wrapped(cells: Sequence[Sequence[str]], whole: int) -> Iterator[list[str]]:
    """The rows, with the last cell wrapped into further rows where it is too wide."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    width = max(whole - sum(widths) - len(GAP) * len(widths), _MIN_TEXT_COLUMNS)
    for row in cells:
        first, *more = _lines(row[-1], width) or [""]
        yield [*row[:-1], first]
        yield from ([*[""] * len(widths), text] for text in more)


def _lines(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
