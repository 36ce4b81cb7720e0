"""Sizes as an area each: a treemap, drawn as SVG.

Squarified (Bruls, Huizing, van Wijk 2000): rectangles as square as they can be, the largest first.
What would be too small to see is drawn as one, with what it stands for in its title; so a page of
thirty thousand values has no more than some thousand rectangles.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.text import printable, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.core.name_tree import Branch

_HEAD = 17  # of a first component, for its name
_GAP = 3.0
_LEAST = 24.0  # square pixels
_LETTER, _LINE = 6.4, 14


class Box(NamedTuple):
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float


def treemap(root: Branch, hues: Mapping[str, str], width: int, height: int, name: str) -> str:
    """The drawing.

    Args:
        root: names and sizes.
        hues: full name of each value → the class that gives it its colour.
        width: in pixels.
        height: likewise.
        name: a class for the whole.
    """
    parts = [
        f'<svg class="map {name}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="sizes of the values">'
    ]
    tops = _sized(root)
    for top, box in squarify(tops, Box(0, 0, width, height)):
        shrunk = Box(box.x, box.y, box.width - _GAP, box.height - _GAP)
        if shrunk.width < _LINE or shrunk.height < _HEAD + _LINE or not top.children:
            parts.extend(_draw(top, shrunk, hues))
            continue
        label = _fitting(f"{top.name}  {size(top.nbytes)}", shrunk.width)
        if label:
            parts.append(f'<text class="top" x="{box.x:.1f}" y="{box.y + 12:.1f}">{label}</text>')
        inside = Box(shrunk.x, shrunk.y + _HEAD, shrunk.width, shrunk.height - _HEAD)
        for child, place in squarify(_sized(top), inside):
            parts.extend(_draw(child, place, hues))
    return "".join((*parts, "</svg>"))


def squarify(branches: Sequence[Branch], box: Box) -> Iterator[tuple[Branch, Box]]:
    """Each with a part of the box as large as its share of the bytes; the largest come first.

    >>> from tfckpt.core.name_tree import Branch
    >>> found = squarify([Branch("a", nbytes=3), Branch("b", nbytes=1)], Box(0, 0, 8, 4))
    >>> [(branch.name, tuple(place)) for branch, place in found]
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
        while rest and _worst([*row, rest[0]], side, scale) <= _worst(row, side, scale):
            row.append(rest.pop(0))
            area += row[-1].nbytes * scale
        # no further than the box: rounding may have left too thin a sliver of it
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


def _worst(row: Sequence[Branch], side: float, scale: float) -> float:
    """How far from square the worst of a row is."""
    areas = [branch.nbytes * scale for branch in row]
    total = sum(areas)
    return max(side**2 * max(areas) / total**2, total**2 / (side**2 * min(areas)))


def _sized(branch: Branch) -> list[Branch]:
    children = (child for child in branch.children.values() if child.nbytes)
    return sorted(children, key=lambda child: -child.nbytes)


def _draw(branch: Branch, box: Box, hues: Mapping[str, str]) -> Iterator[str]:
    """A branch: the value itself, its parts below a line with its name, or all of it as one."""
    while branch.entry is None and len(branch.children) == 1:
        (branch,) = branch.children.values()
    children = _sized(branch)
    share = max((child.nbytes for child in children), default=0) / max(branch.nbytes, 1)
    parted = branch.entry is None and box.width * box.height * share >= _LEAST * 2
    yield _rectangle(branch, box, "group" if parted else _hue(branch, hues))
    if parted:
        head = _LINE if box.height > 3 * _LINE and box.width > 5 * _LETTER else 0
        if head:
            yield _label(branch, box)
        inside = Box(box.x + 1, box.y + 1 + head, box.width - 3, box.height - 3 - head)
        for child, place in squarify(children, inside):
            if place.width * place.height >= _LEAST:  # smaller ones stay part of the whole
                yield from _draw(child, place, hues)
    elif box.height > _LINE:
        yield _label(branch, box)


def _hue(branch: Branch, hues: Mapping[str, str]) -> str:
    """That of the value itself, or of the largest below."""
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
    label = _fitting("/".join(branch.name.split("/")[-2:]), box.width)
    return f'<text x="{box.x + 4:.1f}" y="{box.y + 12:.1f}">{label}</text>' if label else ""


def _fitting(text: str, width: float) -> str:
    """As much of a text as has room, ``""`` where that would say nothing."""
    letters = int((width - 6) / _LETTER)
    text = printable(text)
    if len(text) > letters:
        text = text.rpartition("/")[2]
    if len(text) > letters > 0:  # of block_12 the end tells more
        cut = letters - 1
        text = f"…{text[-cut:]}" if text[-1:].isdigit() else f"{text[:cut]}…"
    return escape(text) if len(text) > 2 and letters > 3 else ""
