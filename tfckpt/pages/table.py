"""The table of a page: a row of cells for each thing, to be searched and sorted.

Without scripts it is a plain table.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from tfckpt.pages.shell import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Cell(NamedTuple):
    """A cell: its HTML, and the number that it is sorted by, if it is one."""

    html: str
    order: float | None = None


def table(
    rows: Sequence[tuple[str, Sequence[Cell]]], heads: Mapping[str, bool], things: str
) -> Iterator[str]:
    """The HTML of named rows; ``heads`` says of which columns are numbers."""
    columns = list(zip(*(cells for _, cells in rows), strict=True))
    filled = [any(cell.html for cell in column) for column in columns]
    yield (
        '<section class="values"><div class="tools"><input type="search" autocomplete="off" '
        f'aria-label="search {things}" placeholder="search: name, state, …">'
        '<select aria-label="sort by"></select><output aria-live="polite"></output></div>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="table of {things}">'
        '<table><thead><tr><th scope="col">name</th>'
    )
    for head, is_number in itertools.compress(heads.items(), filled):
        kind = ' class="number"' if is_number else ""
        yield f'<th scope="col"{kind}>{text(head)}</th>'
    yield "</tr></thead><tbody>"
    for name, cells in rows:
        yield f'<tr id="{text(name)}"><th scope="row">'
        yield f'<a href="#{quote(name)}">{text(name)}</a></th>'
        pairs = zip(heads.items(), cells, strict=True)
        for (head, is_number), cell in itertools.compress(pairs, filled):
            kind = f' class="number" data-label="{text(head)}"' if is_number else ""
            order = "" if cell.order is None else f' data-order="{cell.order!r}"'
            yield f"<td{kind}{order}>{cell.html}</td>"
        yield "</tr>"
    yield '</tbody></table></div><button type="button" class="more" hidden></button></section>'


def tag(state: str, hue: str) -> Cell:
    """A state on its color."""
    return Cell(f'<b class="{hue}">{text(state)}</b>')
