"""The parts of a page: its frame, facts, a table, and metrics over steps as SVG.

Names come from untrusted files. All text is HTML-escaped, unprintable characters are shown as
escapes, and the page's Content-Security-Policy lets only its own styles and scripts in: nothing is
loaded, and no attribute runs. Without scripts the table is a plain one.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import itertools
import math
from html import escape
from string import Template
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from tfckpt.core.text import printable
from tfckpt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_WIDTH = 960
_LEFT = 56
_RIGHT = _WIDTH - 120
_LINE = 26  # where the checkpoints are
_FIRST = 64  # the top of the first panel
_HEIGHT = 114
_STRIDE = 162
_STAR = "M0-9L2.6-2.9 9-2.6 4.1 1.6 5.7 8 0 4.4-5.7 8-4.1 1.6-9-2.6-2.6-2.9Z"


def render(path: str, body: Iterable[str]) -> str:
    """The HTML of the page about a path, the end of which is the title."""
    style, script = _asset("page.css"), _asset("page.js")
    return Template(_asset("page.html")).substitute(
        title=text(title_of(path)),
        path=text(path),
        body="\n".join(filter(None, body)),
        style=style,
        style_digest=_digest(style),
        script=script,
        script_digest=_digest(script),
        version=text(__version__),
    )


def _asset(name: str) -> str:
    assets = importlib.resources.files("tfckpt.pages").joinpath("assets")
    return assets.joinpath(name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def title_of(path: str) -> str:
    """The part of a path that tells a reader what it is.

    >>> title_of("runs/a"), title_of("a/checkpoints/")
    ('a', 'a/checkpoints')
    """
    parts = path.rstrip("/").split("/")
    return "/".join(parts[-2:] if parts[-1] == "checkpoints" else parts[-1:]) or path


def text(value: object) -> str:
    r"""Text escaped for HTML.

    >>> print(text("<b>\x1b"))
    &lt;b&gt;\x1b
    """
    return escape(printable(str(value)))


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Short facts, each with its name; empty ones are left out."""
    shown = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs if value
    )
    return f'<dl class="facts">{shown}</dl>' if shown else ""


def number(value: float | None, digits: int = 3) -> str:
    """A number with a few digits; ``""`` for None.

    >>> number(-0.00012345), number(1234567.0), number(None)
    ('−0.000123', '1.23e+06', '')
    """
    return "" if value is None else f"{value:.{digits}g}".replace("-", "\N{MINUS SIGN}")


def counted(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "value"), counted(1200, "value")
    ('1 value', '1,200 values')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


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


class Point(NamedTuple):
    """A checkpoint: its name, its place on the line, its state, and what is to be said of it."""

    name: str
    x: float
    state: str
    tip: str


class Panel(NamedTuple):
    """Values of each checkpoint, as curves or bars, over one axis."""

    name: str
    series: Mapping[str, Sequence[float | None]]
    bars: bool = False
    unit: Callable[[float], str] = "{:.6g}".format


def curves(
    points: Sequence[Point], panels: Sequence[Panel], runs: Sequence[float], axis: str
) -> str:
    """The picture; ``runs`` are the places where a new run begins."""
    return "\n".join(_picture(points, panels, runs, axis))


def _picture(
    points: Sequence[Point], panels: Sequence[Panel], runs: Sequence[float], axis: str
) -> Iterator[str]:
    low, high = min(point.x for point in points), max(point.x for point in points)
    span = high - low or 1
    at = [_LEFT + (point.x - low) / span * (_RIGHT - _LEFT) for point in points]
    bottom = _FIRST + len(panels) * _STRIDE - 20
    yield '<figure class="curves" tabindex="-1">'
    yield f'<svg viewBox="0 0 {_WIDTH} {bottom + 24}" role="group" '
    yield 'aria-label="checkpoints, with their metrics">'
    for run in runs:
        x = _LEFT + (run - low) / span * (_RIGHT - _LEFT)
        yield f'<path class="rule" d="M{x:.1f} 4V{bottom}"/><text x="{x + 4:.1f}" y="10">new run'
        yield "</text>"
    for number, panel in enumerate(panels):
        yield from _panel(panel, at, _FIRST + number * _STRIDE)
    yield f'<path class="axis" d="M{_LEFT} {bottom}H{_RIGHT}M{_LEFT} {_LINE}H{_RIGHT}"/>'
    for tick in ticks(low, high, 8):
        if tick == int(tick):
            x = _LEFT + (tick - low) / span * (_RIGHT - _LEFT)
            yield f'<path class="axis" d="M{x:.1f} {bottom}v4"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{int(tick):,}</text>'
    yield f'<text x="{_RIGHT + 10}" y="{bottom + 4}">{axis}</text>'
    middles = [(one + other) / 2 for one, other in itertools.pairwise(at)]
    edges = [0.0, *middles, float(_WIDTH)]
    for point, x, (start, end) in zip(points, at, itertools.pairwise(edges), strict=True):
        yield (
            f'<a class="mark {point.state}" href="#{quote(point.name)}">'
            f"<title>{text(point.tip)}</title>"
            f'<path class="here" d="M{x:.1f} 0V{bottom}"/>'
            f'<rect x="{start:.1f}" width="{max(end - start, 0):.1f}" height="{bottom}"/>'
            f'<g transform="translate({x:.1f},{_LINE})">{_shape(point.state, len(points))}</g></a>'
        )
    yield "</svg></figure>"


def _shape(state: str, count: int) -> str:
    if state == "damaged":
        return '<path d="M-5-5L5 5M5-5L-5 5"/>'
    if state == "best":
        return f'<path d="{_STAR}"/>'
    if count > 120 and state != "kept":
        return '<path class="dot" d="M0-5V5"/>'
    return f'<circle class="dot" r="{3.5 if count > 60 else 5}"/>'


def _panel(panel: Panel, at: Sequence[float], top: int) -> Iterator[str]:
    known = [value for values in panel.series.values() for value in values if value is not None]
    low, high = 0.0 if panel.bars else min(known), max(known)
    if low == high:
        low, high = low - (abs(low) / 2 or 1), high + (abs(high) / 2 or 1)
    if not panel.bars:
        low -= (high - low) * 0.04

    def y(value: float) -> float:
        return top + _HEIGHT * (1 - (value - low) / (high - low))

    for tick in ticks(low, high, 3):
        yield f'<path class="grid" d="M{_LEFT} {y(tick):.1f}H{_RIGHT}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">'
        yield f"{panel.unit(tick)}</text>"
    yield f'<text class="name" x="{_LEFT}" y="{top - 8}">{text(panel.name)}</text>'
    places = {
        name: [(x, y(value)) for x, value in zip(at, values, strict=True) if value is not None]
        for name, values in panel.series.items()
    }
    if panel.bars:
        thick = max(min((_RIGHT - _LEFT) / len(at) - 2, 18), 1.5)
        yield from (bar for one in places.values() for bar in _bars(one, thick, top))
        return
    yield from _lines(places)
    if [*places] != [panel.name]:
        yield from _names(places)


def _bars(places: Sequence[tuple[float, float]], thick: float, top: int) -> Iterator[str]:
    for x, y in places:
        yield f'<rect class="bar" x="{x - thick / 2:.1f}" y="{y:.1f}" '
        yield f'width="{thick:.1f}" height="{max(top + _HEIGHT - y, 1):.1f}"/>'


def _lines(series: Mapping[str, Sequence[tuple[float, float]]]) -> Iterator[str]:
    for number, places in enumerate(series.values()):
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        yield f'<path class="curve stroke{number % 4}" d="M{line}"/>'
        for x, y in places if len(places) <= 60 else ():
            yield f'<circle class="dot{number % 4}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>'


def _names(series: Mapping[str, Sequence[tuple[float, float]]]) -> Iterator[str]:
    """Each at the end of its line, or as far below as the one above needs."""
    ends = [
        (places[-1][1] + 4, number, name) for number, (name, places) in enumerate(series.items())
    ]
    lowest = -math.inf
    for end, number, name in sorted(ends):
        lowest = max(end, lowest + 20)
        yield f'<text class="dot{number % 4}" x="{_RIGHT + 10}" y="{lowest:.1f}">'
        yield f"{text(name)}</text>"


def ticks(low: float, high: float, count: int) -> list[float]:
    """About so many round numbers between two.

    >>> ticks(0.0, 1.0, 3), ticks(100, 700, 4), ticks(3, 3, 4)
    ([0.0, 0.5, 1.0], [200.0, 400.0, 600.0], [3])
    """
    if not high > low:
        return [low]
    exact = (high - low) / count
    power = 10.0 ** math.floor(math.log10(exact))
    steps = ((1, 1.41), (2, 3.16), (5, 7.07), (10, math.inf))  # between the roots of products
    step = power * next(size for size, most in steps if exact / power < most)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{n * step:.12g}") for n in range(first, last + 1)]
