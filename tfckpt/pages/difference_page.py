"""The page of a difference: which layer changed most, then every value that differs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from tfckpt.core.text import size
from tfckpt.pages.checkpoint_page import PARTS, ROLES, nbytes_of, rank_of, signature, sizes
from tfckpt.pages.heat import Heat, parents
from tfckpt.pages.shell import (
    Page,
    area,
    counted,
    facts,
    number,
    passed_over,
    percent,
    tag,
    text,
    title_of,
    verdict,
)
from tfckpt.pages.value_table import Column, Filter, ValueRow, ValueTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_KINDS = (
    Filter("different value", "blue", "same name, shape and type"),
    Filter("different shape", "red", "same name"),
    Filter("different type", "amber", "same name and shape"),
    Filter("moved", "teal", "the same value under another name"),
    Filter("only in a", "orange", "removed"),
    Filter("only in b", "violet", "added"),
)
_KIND_OF = {
    "value": "different value",
    "shape": "different shape",
    "dtype": "different type",
    "moved": "moved",
    "only_a": "only in a",
    "only_b": "only in b",
}
_HUES = {one.tag: one.hue for one in _KINDS}
_RANKED = 8
_LIST = [Column("difference"), Column("type", "shape"), Column("size", "bytes")]
_CHANGE = Column("change", "number", "norm of b − a over the norm of a")
_DISTANCES = [
    Column("differ", "number", "how many elements differ"),
    Column("largest", "number", "greatest absolute difference of two elements"),
    Column("relative", "number", "the same over the greatest magnitude"),
]
_HISTOGRAMS = Column("a, b", "picture", "histograms over each other: a orange, b blue")


class _Changed(NamedTuple):
    """One of ``differences`` in the document."""

    name: str
    old_name: str
    tag: str
    role: str
    types: str
    nbytes: int
    distance: tuple[int, float | None, float | None] | None
    moved: float | None
    norm: float | None
    histograms: tuple[Sequence[int], Sequence[int], str] | None

    @property
    def change(self) -> float | None:
        return self.moved / self.norm if self.moved is not None and self.norm else None


def difference_page(document: Mapping[str, Any]) -> Page:
    """The page for a document of ``diff``."""
    return Page("Difference", _title(document), list(_body(document)))


def _title(document: Mapping[str, Any]) -> str:
    a, b = (title_of(str(document[side])) for side in "ab")
    return f"{a} → {b}"


def _body(document: Mapping[str, Any]) -> Iterator[str]:
    found = [_changed(one) for one in document["differences"]]
    equal, unread = int(document["equal"]), int(document.get("not_compared", 0))
    if found:
        verb = "differs" if len(found) == 1 else "differ"
        same = "1 is equal" if equal == 1 else f"{equal:,} are equal"
        words, hue = f"{counted(len(found), 'value')} {verb}, {same}", "amber"
    else:
        words, hue = f"no differences: {counted(equal, 'value')} equal", "green"
    yield verdict(words + (f", {unread:,} not compared" if unread else ""), hue)
    yield from passed_over(document.get("rejected") or ())
    yield facts([("a", str(document["a"])), ("b", str(document["b"]))])
    if not found:
        return
    changes = [one for one in found if one.change is not None]
    weights = [one for one in changes if one.role == "weight"] or changes
    layers = _ranked(weights)
    heat = Heat(change for change, _ in layers)
    yield from _ranking(layers)
    read = any(one.distance for one in found)
    if not read and any(one.tag in ("different value", "different type") for one in found):
        yield (
            '<p class="quiet">With <code>--values</code>, this page says how far the values are '
            "apart.</p>"
        )
    kinds = {one.tag for one in found}
    columns = [
        *_LIST[len(kinds) == 1 :],
        *([_CHANGE] if changes else ()),
        *(_DISTANCES if read else ()),
    ]
    pictures = any(one.histograms for one in found)
    columns += [_HISTOGRAMS] if pictures else []
    rows = [_row(one, heat, columns) for one in found]
    title = "Where the change is" if changes else "Where they differ"
    yield from sizes(rows, title, PARTS, legend=heat.legend("the norm in a") if changes else "")
    yield "<h2>Values that differ</h2>"
    by_name = {one.name: one for one in found}

    def summary(group: Sequence[ValueRow]) -> list[str]:
        change = _together([by_name[row.name] for row in group])
        shown = {"size": size(sum(row.nbytes for row in group)), "change": heat.cell(change)}
        return [shown.get(column.label, "") for column in columns]

    sort = "-change" if changes else ""
    is_mixed = bool(weights) and any(one.role != "weight" for one in found)
    roles = [one._replace(pressed=is_mixed and one.tag == "weight") for one in ROLES]
    filters = [roles, *([_KINDS] if len(kinds) > 1 else ())]
    yield from ValueTable(columns, rows, filters, summary, sort=sort).render()


def _changed(one: Mapping[str, Any]) -> _Changed:
    sides = [side for side in (one["a"], one["b"]) if side is not None]
    change = one.get("change") or {}
    counts = [[int(count) for count in change.get(side) or ()] for side in "ab"]
    distance = None
    if one.get("differing") is not None:
        distance = int(one["differing"]), _float(one["largest"]), _float(one["relative"])
    ends = f"{number(change.get('least'))} … {number(change.get('greatest'))}"
    return _Changed(
        str(sides[-1]["name"]),
        str(sides[0]["name"]),
        _KIND_OF[one["kind"]],
        str(sides[-1].get("role") or "weight"),
        " → ".join(dict.fromkeys(map(signature, sides))),
        max(map(nbytes_of, sides)),
        distance,
        _float(change.get("moved")),
        _float(change.get("norm")),
        (counts[0], counts[1], ends) if all(counts) else None,
    )


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _together(group: Sequence[_Changed]) -> float | None:
    """The change of several values as if they were one."""
    known = [one for one in group if one.change is not None]
    norm = math.sqrt(sum((one.norm or 0.0) ** 2 for one in known))
    return math.sqrt(sum((one.moved or 0.0) ** 2 for one in known)) / norm if norm else None


def _ranked(changes: Sequence[_Changed]) -> list[tuple[float, str]]:
    """The change of each layer, the greatest first."""
    layers: dict[str, list[_Changed]] = {}
    for one in changes:
        layers.setdefault(parents(one.name), []).append(one)
    found = [(_together(group) or 0.0, layer) for layer, group in layers.items()]
    return sorted(found, reverse=True)


def _ranking(ranked: Sequence[tuple[float, str]]) -> Iterator[str]:
    """The layers that changed most."""
    if not ranked or not ranked[0][0]:
        return
    yield '<h2>What changed most</h2><ol class="ranking">'
    for change, layer in ranked[:_RANKED]:
        width, shown = 100 * change / ranked[0][0], text(layer).replace("/", "/<wbr>")
        yield (
            f'<li><a href="#{quote(layer)}">{shown}</a><svg viewBox="0 0 100 10" '
            f'preserveAspectRatio="none" aria-hidden="true"><rect width="{width:.2f}" height="10"/>'
            f"</svg><span>{percent(change)}</span></li>"
        )
    yield "</ol>"
    if len(ranked) > _RANKED:
        yield f'<p class="quiet">and {counted(len(ranked) - _RANKED, "other layer")}</p>'


def _row(one: _Changed, heat: Heat, columns: Sequence[Column]) -> ValueRow:
    kind = tag(one.tag, _HUES[one.tag])
    note = f"<br><small>was {text(one.old_name)}</small>" if one.old_name != one.name else ""
    cells = {"difference": kind + note, "type": one.types, "size": size(one.nbytes)}
    if one.distance is not None:
        count, largest, relative = one.distance
        cells |= {"differ": f"{count:,}", "largest": number(largest), "relative": number(relative)}
    cells["change"] = heat.cell(one.change)
    if one.histograms is not None:
        a, b, ends = one.histograms
        cells["a, b"] = (
            f'<svg viewBox="0 0 84 20" role="img"><title>{ends}</title>'
            f"{area(a, 'a')}{area(b, 'b')}</svg>"
        )
    hue = heat.hue(one.change) if one.change is not None else _HUES[one.tag]
    shown = [cells.get(column.label, "") for column in columns]
    rank = rank_of(one.role)
    return ValueRow(one.name, shown, one.nbytes, [one.role, one.tag], hue, rank)
