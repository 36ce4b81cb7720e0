"""Tables: aligned text for a pipe, rich for a person.

In a pipe a table is lines of at most 80 columns with no colours and no rules, which ``grep`` and
``diff`` take as they are; at a terminal rich draws it as wide as the window. In a pipe a name that
is too long for its column gets a line of its own: names are copied into configs, and half a name is
none. What comes from a file is escaped (`printable`) and never taken for rich's markup.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tfckpt.planning.text import WIDTH, all_printable, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from tfckpt.planning import Plan

_GAP = "  "
_LEAST = 20
_STYLES = {"error": "bold red", "warn": "yellow", "note": "cyan", "ok": "green"}


def for_a_person() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def columns() -> int:
    """How many columns a line may have: those of the window, and 80 in a pipe."""
    if not for_a_person():
        return WIDTH
    import shutil

    return shutil.get_terminal_size().columns


def show(
    title: Sequence[str], rows: Sequence[Sequence[str]], *right: int, wraps: bool = False
) -> None:
    """Print a table whose first column is a name and whose columns ``right`` hold numbers.

    Args:
        title: of the columns.
        rows: their cells.
        right: which columns hold numbers.
        wraps: whether the last column is text, which may take several lines.
    """
    if for_a_person():
        from rich.console import Console

        Console(highlight=False).print(_rich(title, rows, right, wraps=wraps))
    else:
        print("\n".join(plain([title, *rows], *right, wraps=wraps)))


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
    rest = sum(widths[1:]) + len(_GAP) * (len(widths) - 1)
    widths[0] = max(min(widths[0], columns() - rest), len(_GAP))
    padded = (
        [cell.rjust(width) if index in right else cell.ljust(width) for cell in column]
        for index, (column, width) in enumerate(zip(cells, widths, strict=True))
    )
    for name, *others in zip(*padded, strict=True):
        if len(name) > widths[0]:
            yield name.rstrip()
            yield _GAP.join((" " * widths[0], *others)).rstrip()
        else:
            yield _GAP.join((name, *others)).rstrip()


def _wrapped(cells: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """The rows, and below each one rows for what is left of a last cell that is too wide."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    room = max(columns() - sum(widths) - len(_GAP) * len(widths), _LEAST)
    for row in cells:
        first, *more = _lines(row[-1], room) or [""]
        yield [*row[:-1], first]
        yield from ([*[""] * len(widths), text] for text in more)


def _lines(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _rich(
    title: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], *, wraps: bool
) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, head in enumerate(title):
        last = wraps and index == len(title) - 1
        table.add_column(head, overflow="fold", no_wrap=index > 0 and not last)
        table.columns[index].justify = "right" if index in right else "left"
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def rich_table(plan: Plan) -> Table:
    """The steps of a plan: why and what to do about it, and below that each value and its type."""
    from rich.table import Table
    from rich.text import Text

    from tfckpt.planning.report import groups

    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in ("status", "value", "type"):
        table.add_column(head, overflow="fold", no_wrap=head == "status")
    for group in groups(plan):
        status = Text(group.status.value, style=_STYLES[group.severity.value])
        table.add_row(status, Text(group.headline, style="italic"), Text(""))
        for line in group.lines:
            times = f" ×{line.count}" if line.count > 1 else ""
            table.add_row(Text(""), Text(line.name), Text(line.kind + times))
        if group.hidden:
            more = f"… and {group.hidden:,} more like these (--json lists all)"
            table.add_row(Text(""), Text(more), Text(""))
        if group.hint:
            table.add_row(Text(""), Text(f"→ {group.hint}", style="bold"), Text(""))
    return table
