"""A table of values in the tree of their names, which scripts fold, search, sort and filter.

The rows of the table are its only data: the treemap of the page is drawn from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from tfckpt.core.inventory import Entry, Role
from tfckpt.core.name_tree import tree
from tfckpt.core.text import free_name, natural, printable, size
from tfckpt.pages.shell import counted, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tfckpt.core.name_tree import Branch

_MAX_OPEN = 60  # rows that are visible at first


class Column(NamedTuple):
    """A column to the right of the name.

    Attributes:
        label: its heading.
        kind: ``text``, ``shape``, ``moment``, ``number``, ``bytes``, ``picture``: how it is shown
            and sorted.
        note: what it means.
    """

    label: str
    kind: str = "text"
    note: str = ""


class ValueRow(NamedTuple):
    """A value.

    Attributes:
        name: full name.
        cells: HTML of each column.
        nbytes: its size.
        tags: what filters select it by.
        hue: CSS class of its color in the treemap.
        rank: where its name stands among those at the top of the tree; lower ones first.
    """

    name: str
    cells: Sequence[str]
    nbytes: int
    tags: Sequence[str]
    hue: str
    rank: int = 0


class Filter(NamedTuple):
    """Values that can be selected by a tag; ``pressed`` if they are at first."""

    tag: str
    hue: str
    meaning: str
    pressed: bool = False


class ValueTable(NamedTuple):
    """The table, and the filters above it.

    Attributes:
        columns: its columns after the name.
        rows: in the order of the documents; shown by name.
        filters: in groups; a value is shown that has one tag of each group where any is selected.
        summary: the cells of a group from its values; without it only their size.
        what: what a row is.
        sort: label of the column to sort by at first, ``-`` before it for the greatest first.
        head: heading of the names.
        prefix: what the ids of its rows begin with, where a page has two tables of the same names.
        is_wide: whether it has so many columns that a narrow window scrolls over them.
    """

    columns: Sequence[Column]
    rows: Sequence[ValueRow]
    filters: Sequence[Sequence[Filter]] = ()
    summary: Callable[[Sequence[ValueRow]], Sequence[str]] | None = None
    what: str = "value"
    sort: str = ""
    head: str = "name"
    prefix: str = ""
    is_wide: bool = False

    def render(self) -> Iterator[str]:
        """The HTML."""
        yield '<section class="values">'
        yield from self._filters()
        yield (
            '<div class="tools">'
            f'<input type="search" autocomplete="off" aria-label="search {self.what}s" '
            f'placeholder="search: name, type, …"><select aria-label="sort by"></select>'
            '<button type="button" class="open">open all</button>'
            '<button type="button" class="close">close all</button>'
            '<output aria-live="polite"></output></div>'
        )
        wide = " wide" if self.is_wide else ""
        label = text(f"table of {self.what}s {self.prefix}".rstrip(": "))
        yield f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        yield f'<table class="tree{wide}" data-sort="{text(self.sort)}" '
        yield f'data-prefix="{text(self.prefix)}"><thead><tr>'
        yield f'<th scope="col">{text(self.head)}</th>'
        for column in self.columns:
            note = f' title="{text(column.note)}"' if column.note else ""
            yield f'<th scope="col" class="{column.kind}"{note}>{text(column.label)}</th>'
        yield "</tr></thead><tbody>"
        yield from _TableRows(self).all()
        yield '</tbody></table></div><button type="button" class="more" hidden></button></section>'

    def _filters(self) -> Iterator[str]:
        counts: dict[str, tuple[int, int]] = {}
        for row in self.rows:
            for tag in row.tags:
                count, nbytes = counts.get(tag, (0, 0))
                counts[tag] = count + 1, nbytes + row.nbytes
        for group in self.filters:
            shown = [one for one in group if one.tag in counts]
            if len(shown) > 1:
                yield '<div class="filters" role="group" aria-label="show only">'
                yield from (_button(one, *counts[one.tag]) for one in shown)
                yield "</div>"


def _button(one: Filter, count: int, nbytes: int) -> str:
    return (
        f'<button type="button" aria-pressed="{"true" if one.pressed else "false"}" '
        f'data-tag="{text(one.tag)}"><i class="{one.hue}"></i><span><b>{text(one.tag)}</b> '
        f"{count:,} · {size(nbytes)}</span><small>{text(one.meaning)}</small></button>"
    )


class _TableRows:
    def __init__(self, table: ValueTable) -> None:
        self._table = table
        self._by_name: dict[str, list[ValueRow]] = {}
        for row in table.rows:
            self._by_name.setdefault(row.name, []).append(row)
        self._ids: set[str] = set()

    def all(self) -> Iterator[str]:
        root = tree(self._entries())
        ranks: dict[str, int] = {}
        for row in self._table.rows:
            top = row.name.partition("/")[0]
            ranks[top] = min(ranks.get(top, row.rank), row.rank)
        tops = sorted(root.children, key=lambda part: (ranks[part], natural(part)))
        root.children = {part: root.children[part] for part in tops}
        yield from self._below(root, 0, _depth(root), in_order=True)

    def _entries(self) -> Iterable[Entry]:
        for name, rows in self._by_name.items():
            yield Entry(name, Role.WEIGHT, "", (), max(row.nbytes for row in rows))

    def _values(self, branch: Branch) -> list[ValueRow]:
        """All values at and below a branch."""
        found, todo = [], [branch]
        while todo:
            one = todo.pop()
            todo.extend(one.children.values())
            found += self._by_name[one.name] if one.entry is not None else []
        return found

    def _below(
        self, branch: Branch, level: int, opened: int, *, in_order: bool = False
    ) -> Iterator[str]:
        parts = branch.children.items()
        for part, child in parts if in_order else sorted(parts, key=lambda one: natural(one[0])):
            label, inner = part, child
            while inner.entry is None and len(inner.children) == 1:
                ((below, inner),) = inner.children.items()
                label = f"{label}/{below}"
            folded = ' class="folded"' if level > opened else ""
            if inner.entry is not None:
                for row in self._by_name[inner.name]:
                    yield self._value(row, label, level, folded)
            if inner.children:
                yield self._group(inner, label, level, folded, is_open=level < opened)
                yield from self._below(inner, level + 1, opened)

    def _value(self, row: ValueRow, label: str, level: int, folded: str) -> str:
        name = self._table.prefix + self._id(row.name)
        cells = "".join(f"<td>{cell}</td>" for cell in row.cells)
        return (
            f'<tr id="{text(name)}" data-level="{level}" data-bytes="{row.nbytes}" data-tags="'
            f'{text("|".join(row.tags))}" data-hue="{row.hue}"{folded}><th scope="row">'
            f'<a href="#{quote(name)}">{text(label)}</a></th>{cells}</tr>'
        )

    def _group(self, branch: Branch, label: str, level: int, folded: str, *, is_open: bool) -> str:
        if self._table.summary is not None:
            shown = self._table.summary(self._values(branch))
        else:
            shown = [
                size(branch.nbytes) if column.kind == "bytes" else ""
                for column in self._table.columns
            ]
        count = f'<span class="sum">{counted(branch.count, self._table.what)}</span>'
        if self._table.columns[0].kind in ("text", "shape") and not shown[0]:
            shown, count = [count, *shown[1:]], ""
        cells = "".join(f"<td>{cell}</td>" for cell in shown)
        name = text(self._table.prefix + self._id(branch.name))
        return (
            f'<tr id="{name}" data-level="{level}" '
            f'data-bytes="{branch.nbytes}" '
            f'data-group="{"open" if is_open else "closed"}"{folded}><th scope="row">'
            f'<span class="label">{text(label)}</span> {count}</th>{cells}</tr>'
        )

    def _id(self, name: str) -> str:
        free = free_name(printable(name), self._ids.__contains__)
        self._ids.add(free)
        return free


def _depth(root: Branch) -> int:
    """How many levels are open at first, so that the tree fills a screen or two."""
    level, depth = list(root.children.values()), 0
    while level:
        below = [child for branch in level for child in branch.children.values()]
        if len(level) + len(below) > _MAX_OPEN:
            break
        level, depth = below, depth + 1
    return depth
