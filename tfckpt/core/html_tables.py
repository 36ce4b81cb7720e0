"""Tables as HTML, for notebooks: in their own fonts and colors, so that they suit light and dark.

All text is escaped, because names come from files, and nothing is loaded from elsewhere. A long
table ends with how many rows it leaves out, so that a notebook stays small.
"""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import TYPE_CHECKING

from tfckpt.core.name_tree import rows, tree
from tfckpt.core.text import printable, signature, size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.core.name_tree import TreeRow

_MOST = 500


def table(title: Sequence[str], lines: Sequence[Sequence[str]], *right: int) -> str:
    """A table, with the columns ``right`` aligned to the right.

    >>> table((), [("<b>",)])
    '<table><tr></tr><tr><td style="text-align: left">&lt;b&gt;</td></tr></table>'
    """
    body = "".join(_line(line, "td", right) for line in lines[:_MOST])
    hidden = len(lines) - _MOST
    rest = f"<p>… and {hidden:,} more rows</p>" if hidden > 0 else ""
    return f"<table>{_line(title, 'th', right)}{body}</table>{rest}"


def paragraph(text: str, *, bold: bool = False) -> str:
    """A line of text."""
    return f"<p><b>{_shown(text)}</b></p>" if bold else f"<p>{_shown(text)}</p>"


def inventory_html(inventory: Inventory) -> str:
    """The values of an inventory as a tree; layers that are alike are one row."""
    entries = inventory.entries.values()
    total = sum(entry.nbytes for entry in entries)
    head = (
        f"{len(entries):,} value{'s' * (len(entries) != 1)} ({size(total)}) of {inventory.source}"
    )
    return f"<div>{paragraph(head, bold=True)}{value_tree(entries)}</div>"


def value_tree(entries: Collection[Entry]) -> str:
    """Values by name, with role, type and size."""
    lines = list(map(_tree_line, islice(rows(tree(entries), fold=True), _MOST + 1)))
    rest = "<p>… and more: <code>tfckpt inspect</code> lists all</p>" if len(lines) > _MOST else ""
    head = _line(("name", "role", "type", "size"), "th", (3,))
    return f"<table>{head}{''.join(lines[:_MOST])}</table>{rest}"


def _tree_line(row: TreeRow) -> str:
    if row.entry is None:
        cells = "", f"{row.count:,} value{'s' * (row.count != 1)}", size(row.nbytes)
        name = f"<b>{_shown(row.label)}/</b>"
    else:
        times = f" ×{row.count:,}" if row.count > 1 else ""
        cells = str(row.entry.role), signature(row.entry) + times, size(row.nbytes)
        name = _shown(row.label)
    style = f"text-align: left; padding-left: {row.depth + 0.5:.1f}em"
    return f'<tr><td style="{style}">{name}</td>{_cells(cells, "td", (2,))}</tr>'


def _line(cells: Iterable[str], tag: str, right: Collection[int]) -> str:
    return f"<tr>{_cells(cells, tag, right)}</tr>"


def _cells(cells: Iterable[str], tag: str, right: Collection[int]) -> str:
    return "".join(
        f'<{tag} style="text-align: {"right" if at in right else "left"}">{_shown(cell)}</{tag}>'
        for at, cell in enumerate(cells)
    )


def _shown(text: str) -> str:
    return escape(printable(text))
