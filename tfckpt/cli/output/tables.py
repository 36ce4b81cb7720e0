"""Tables as aligned lines without borders, which suit ``grep`` and ``diff``.

A line has at most 80 columns in a pipe, and the width of the window at a terminal, where the
heading is bold. A name that is too long for its column gets a line of its own and is never cut,
because names are copied into configs. Text from files is escaped (`printable`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tfckpt.core.text import WIDTH, all_printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GAP = "  "
_MIN_TEXT_COLUMNS = 20


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def columns() -> int:
    """The width of a line: that of the window, or 80 in a pipe."""
    if not is_terminal():
        return WIDTH
    import shutil

    return shutil.get_terminal_size().columns


def show(
    title: Sequence[str], rows: Sequence[Sequence[str]], *right: int, wraps: bool = False
) -> None:
    """Print a table whose first column is a name, with columns ``right`` right-aligned.

    ``wraps``: the last column is text that may take several lines.
    """
    head, *lines = plain([title, *rows], *right, wraps=wraps)
    if is_terminal():
        from rich.console import Console
        from rich.text import Text

        Console(highlight=False, soft_wrap=True).print(Text(head, style="bold"))
    else:
        print(head)
    if lines:
        print("\n".join(lines))


def plain(rows: Sequence[Sequence[str]], *right: int, wraps: bool = False) -> Iterator[str]:
    r"""The rows as aligned lines.

    >>> print("\n".join(plain([("a", "float32 (2,)", "8 B"), ("b/c", "int64 ()", "16 B")], 2)))
    a    float32 (2,)   8 B
    b/c  int64 ()      16 B
    """
    cells = list(map(all_printable, zip(*rows, strict=True)))
    if wraps:
        cells = list(zip(*_wrapped(list(zip(*cells, strict=True))), strict=True))
    widths = [max(map(len, column)) for column in cells]
    rest = sum(widths[1:]) + len(GAP) * (len(widths) - 1)
    widths[0] = max(min(widths[0], columns() - rest), len(GAP))
    first = widths[0]
    ends: dict[tuple[str, ...], str] = {}  # the rows of a long table mostly end alike
    for row in zip(*cells, strict=True):
        name, others = row[0], row[1:]
        if (end := ends.get(others)) is None:
            padded = (
                cell.rjust(width) if index in right else cell.ljust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
                if index
            )
            end = ends[others] = "".join(GAP + cell for cell in padded).rstrip()
        if len(name) > first:
            yield name.rstrip()
            name = ""
        yield (name.ljust(first) + end).rstrip()


def _wrapped(cells: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """The rows, with the last cell wrapped into further rows where it is too wide."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    width = max(columns() - sum(widths) - len(GAP) * len(widths), _MIN_TEXT_COLUMNS)
    for row in cells:
        first, *more = _lines(row[-1], width) or [""]
        yield [*row[:-1], first]
        yield from ([*[""] * len(widths), text] for text in more)


def _lines(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
