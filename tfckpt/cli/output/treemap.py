"""A treemap of sizes, drawn as SVG.

Squarified (Bruls, Huizing, van Wijk 2000): rectangles as square as possible, the largest first.
Values that are too small to see are drawn as one rectangle with a title, so that thirty thousand
values give at most a few thousand rectangles.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.text import printable, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.core.name_tree import Branch

_HEADING = 17  # height of the label of a first component
_GAP = 3.0
_MIN_AREA = 24.0  # square pixels
_LETTER, _LINE = 6.4, 14


class Box(NamedTuple):
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float


def treemap(root: Branch, hues: Mapping[str, str], width: int, height: int, name: str) -> str:
    """The SVG, of a size in pixels and with CSS class ``name``.

    ``hues`` maps the full name of each value to the CSS class of its color.
    """
    parts = [
        f'<svg class="map {name}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="sizes of the values">'
    ]
    tops = _sized(root)
    for top, box in squarify(tops, Box(0, 0, width, height)):
        shrunk = Box(box.x, box.y, box.width - _GAP, box.height - _GAP)
        if shrunk.width < _LINE or shrunk.height < _HEADING + _LINE or not top.children:
            parts.extend(_draw(top, shrunk, hues))
            continue
        label = _fit(f"{top.name}  {size(top.nbytes)}", shrunk.width)
        if label:
            parts.append(f'<text class="top" x="{box.x:.1f}" y="{box.y + 12:.1f}">{label}</text>')
        inside = Box(shrunk.x, shrunk.y + _HEADING, shrunk.width, shrunk.height - _HEADING)
        for child, part in squarify(_sized(top), inside):
            parts.extend(_draw(child, part, hues))
    return "".join((*parts, "</svg>"))


def squarify(branches: Sequence[Branch], box: Box) -> Iterator[tuple[Branch, Box]]:
    """A box for each branch, with its share of the area; branches come largest first.

    >>> from tfckpt.core.name_tree import Branch
    >>> boxes = squarify([Branch("a", nbytes=3), Branch("b", nbytes=1)], Box(0, 0, 8, 4))
    >>> [(branch.name, tuple(part)) for branch, part in boxes]
    [('a', (0.0, 0.0, 6.0, 4.0)), ('b', (6.0, 0.0, 2.0, 4.0))]
    """
    rest = list(branches)
    total = sum(branch.nbytes for branch in rest)
    x, y, width, height = map(float, box)
    scale = width * height / total if total else 0.0
    while rest and width > 0 and height > 0:
        side = min(width, height)
        row = [rest.pop(0)]
        area = row[0].nbytes * scale
        while rest and _worst_ratio([*row, rest[0]], side, scale) <= _worst_ratio(row, side, scale):
            row.append(rest.pop(0))
            area += row[-1].nbytes * scale
        # rounding must not extend the row beyond the box
        depth, along = min(area / side, max(width, height)), 0.0
        for branch in row:
            length = branch.nbytes * scale / depth
            if width >= height:
                yield branch, Box(x, y + along, depth, length)
            else:
                yield branch, Box(x + along, y, length, depth)
            along += length
        if width >= height:
            x, width = x + depth, width - depth
        else:
            y, height = y + depth, height - depth


def _worst_ratio(row: Sequence[Branch], side: float, scale: float) -> float:
    """The largest aspect ratio in a row."""
    areas = [branch.nbytes * scale for branch in row]
    total = sum(areas)
    return max(side**2 * max(areas) / total**2, total**2 / (side**2 * min(areas)))


def _sized(branch: Branch) -> list[Branch]:
    children = (child for child in branch.children.values() if child.nbytes)
    return sorted(children, key=lambda child: -child.nbytes)


def _draw(branch: Branch, box: Box, hues: Mapping[str, str]) -> Iterator[str]:
    """Draw a branch: as one rectangle, or as its children below a line with its name."""
    while branch.entry is None and len(branch.children) == 1:
        (branch,) = branch.children.values()
    children = _sized(branch)
    share = max((child.nbytes for child in children), default=0) / max(branch.nbytes, 1)
    divided = branch.entry is None and box.width * box.height * share >= _MIN_AREA * 2
    yield _rectangle(branch, box, "group" if divided else _hue(branch, hues))
    if divided:
        head = _LINE if box.height > 3 * _LINE and box.width > 5 * _LETTER else 0
        if head:
            yield _label(branch, box)
        inside = Box(box.x + 1, box.y + 1 + head, box.width - 3, box.height - 3 - head)
        for child, part in squarify(children, inside):
            if part.width * part.height >= _MIN_AREA:  # smaller ones are left as background
                yield from _draw(child, part, hues)
    elif box.height > _LINE:
        yield _label(branch, box)


def _hue(branch: Branch, hues: Mapping[str, str]) -> str:
    """The color of the value, or of the largest value below the branch."""
    while branch.name not in hues and branch.children:
        branch = max(branch.children.values(), key=lambda child: child.nbytes)
    return hues.get(branch.name, "grey")


def _rectangle(branch: Branch, box: Box, hue: str) -> str:
    many = f", {branch.count:,} values" if branch.count > 1 else ""
    title = escape(printable(f"{branch.name}{many}, {size(branch.nbytes)}"))
    width, height = max(box.width - 1, 0.5), max(box.height - 1, 0.5)
    return (
        f'<rect class="{hue}" x="{box.x:.1f}" y="{box.y:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}"><title>{title}</title></rect>'
    )


def _label(branch: Branch, box: Box) -> str:
    label = _fit("/".join(branch.name.split("/")[-2:]), box.width)
    return f'<text x="{box.x + 4:.1f}" y="{box.y + 12:.1f}">{label}</text>' if label else ""


def _fit(text: str, width: float) -> str:
    """The text shortened to a width in pixels; ``""`` if too little of it would be left."""
    letters = int((width - 6) / _LETTER)
    text = printable(text)
    if len(text) > letters:
        text = text.rpartition("/")[2]
    if len(text) > letters > 0:  # the end of block_12 is what distinguishes it
        cut = letters - 1
        text = f"…{text[-cut:]}" if text[-1:].isdigit() else f"{text[:cut]}…"
    return escape(text) if len(text) > 2 and letters > 3 else ""
