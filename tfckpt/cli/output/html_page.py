"""A self-contained HTML page: totals, a treemap of sizes, a tree of values.

Names come from untrusted files. All text is HTML-escaped, unprintable characters are shown as
escapes, and the page's Content-Security-Policy lets only its own script run.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib.resources
import math
from html import escape
from string import Template
from typing import TYPE_CHECKING, Any

from tfckpt.cli.output.treemap import treemap
from tfckpt.core.inventory import Entry, Role
from tfckpt.core.name_tree import tree
from tfckpt.core.text import collapse, natural, one_line, printable, size
from tfckpt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfckpt.core.name_tree import Branch

_MAX_OPEN = 60  # branches and values that are visible at first
_MAX_LISTED = 8  # lines of names that are shown unfolded
_ROLES = {
    "weight": "blue",
    "slot": "violet",
    "iterations": "grey",
    "hyperparameter": "grey",
    "seed": "amber",
    "metric": "green",
    "state": "teal",
    "vocabulary": "teal",
    "iterator": "orange",
    "object": "orange",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One value as the page shows it.

    Attributes:
        name: canonical name.
        type: dtype and shape.
        nbytes: size in bytes.
        tag: its role, status or kind of difference.
        hue: CSS class of its color.
        note: further text.
        statistics: as in the document of `inspect --values`.
    """

    name: str
    type: str
    nbytes: int
    tag: str
    hue: str
    note: str = ""
    statistics: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Content:
    """The content of a page.

    Attributes:
        title: title of the page.
        subtitles: lines below the title.
        head: first and last heading of the table of totals.
        tags: rows of that table: tag, CSS class of its color, meaning.
        items: all values.
        verdict: a sentence, and the CSS class of its color.
        reasons: HTML above the values: problems, and reasons of errors and warnings.
    """

    title: str
    subtitles: Sequence[str]
    head: tuple[str, str]
    tags: Sequence[tuple[str, str, str]]
    items: Sequence[Item]
    verdict: tuple[str, str] | None = None
    reasons: str = ""


def text(value: object) -> str:
    r"""Text escaped for HTML.

    >>> print(text("<b>\x1b"))
    &lt;b&gt;\x1b
    """
    return escape(printable(str(value)))


def render(content: Content) -> str:
    """The HTML of the page."""
    script = _resource("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_resource("page.html")).substitute(
        title=text(content.title),
        body="\n".join(_body(content)),
        script=script,
        digest=digest,
        version=text(__version__),
    )


def _resource(name: str) -> str:
    return importlib.resources.files("tfckpt.cli.output").joinpath(name).read_text(encoding="utf-8")


def _body(content: Content) -> Iterator[str]:
    yield f"<h1>{text(content.title)}</h1>"
    yield from (f'<p class="subtitle">{text(line)}</p>' for line in content.subtitles if line)
    if content.verdict is not None:
        words, hue = content.verdict
        yield f'<p class="verdict {hue}">{text(words)}</p>'
    yield "<h2>Totals</h2>"
    yield from _totals(content)
    yield content.reasons
    if not content.items:
        return
    root = tree(_entries(content.items))
    if root.nbytes:
        hues = {item.name: item.hue for item in content.items}
        yield "<h2>Sizes</h2>"
        yield treemap(root, hues, 1000, 400, "wide")
        yield treemap(root, hues, 360, 480, "narrow")
    yield "<h2>Values</h2>"
    yield (
        '<div class="tools"><input id="find" type="search" placeholder="find by name, tag or type" '
        'aria-label="find values" autocomplete="off"><output id="found"></output></div>'
    )
    by_name: dict[str, list[Item]] = {}
    for item in content.items:
        by_name.setdefault(item.name, []).append(item)
    yield '<ul class="tree">'
    yield from _tree(root, by_name, _depth(root))
    yield "</ul>"


def _totals(content: Content) -> Iterator[str]:
    """A table of the number and total size of the values of each tag."""
    counts: dict[str, tuple[int, int]] = {}
    for item in content.items:
        count, nbytes = counts.get(item.tag, (0, 0))
        counts[item.tag] = count + 1, nbytes + item.nbytes
    first, last = content.head
    yield (
        f'<table><tr><th>{first}</th><th class="number">values</th><th class="number">size</th>'
        f'<th class="meaning">{last}</th></tr>'
    )
    for tag, hue, meaning in content.tags:
        if tag in counts:
            count, nbytes = counts[tag]
            yield _total_row(f'<span class="tag {hue}">{text(tag)}</span>', count, nbytes, meaning)
    total = sum(item.nbytes for item in content.items)
    yield _total_row("total", len(content.items), total, "")
    yield "</table>"


def _total_row(head: str, count: int, nbytes: int, meaning: str) -> str:
    return (
        f'<tr><td>{head}</td><td class="number">{count:,}</td>'
        f'<td class="number">{size(nbytes)}</td><td class="meaning">{text(meaning)}</td></tr>'
    )


def _entries(items: Iterable[Item]) -> Iterator[Entry]:
    sizes: dict[str, int] = {}
    for item in items:
        sizes[item.name] = max(sizes.get(item.name, 0), item.nbytes)
    for name, nbytes in sizes.items():
        yield Entry(name, Role.WEIGHT, "", (), nbytes)


def _depth(root: Branch) -> int:
    """How many levels are open at first, so that the tree fills a screen or two."""
    level, depth = list(root.children.values()), 0
    while level:
        below = [child for branch in level for child in branch.children.values()]
        if len(level) + len(below) > _MAX_OPEN:
            break
        level, depth = below, depth + 1
    return depth


def _tree(branch: Branch, items: Mapping[str, Sequence[Item]], depth: int) -> Iterator[str]:
    for part, child in sorted(branch.children.items(), key=lambda item: natural(item[0])):
        label, inner = part, child
        while inner.entry is None and len(inner.children) == 1:
            ((part_below, inner),) = inner.children.items()
            label = f"{label}/{part_below}"
        for item in items.get(inner.name, ()) if inner.entry is not None else ():
            yield _value(item, label)
        if inner.children:
            opened = " open" if depth > 0 else ""
            many = f"{inner.count:,} value{'s' * (inner.count != 1)}"
            yield (
                f'<li><details{opened}><summary><span class="name">{text(label)}</span>'
                f'<span class="sum">{many}, {size(inner.nbytes)}</span></summary><ul>'
            )
            yield from _tree(inner, items, depth - 1)
            yield "</ul></details></li>"


def _value(item: Item, label: str) -> str:
    find = text(f"{item.name} {item.tag} {item.type}".lower())
    more = "".join((_note(item.note), _statistics(item.statistics)))
    more = f'<span class="more">{more}</span>' if more else ""
    return (
        f'<li class="value" data-find="{find}"><span class="name" title="{text(item.name)}">'
        f'{text(label)}</span><span class="tag {item.hue}">{text(item.tag)}</span>'
        f'<span class="type">{text(item.type)}</span><span class="number">{size(item.nbytes)}'
        f"</span>{more}</li>"
    )


def _note(note: str) -> str:
    return f"<span>{text(note)}</span>" if note else ""


def _statistics(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    if "error" in found:
        return f'<span class="bad">{text(one_line(str(found["error"])))}</span>'
    parts = [_bars([int(count) for count in found["histogram"]])] if found["histogram"] else []
    if found["least"] is not None:
        least, greatest, mean, std = (
            _number(found[k]) for k in ("least", "greatest", "mean", "std")
        )
        parts.append(f"<span>{least} … {greatest}</span><span>mean {mean}</span>")
        parts.append(f"<span>std {std}</span>")
    count = max(int(found["count"]), 1)
    if zeros := int(found["zeros"]):
        parts.append(f"<span>{zeros / count:.0%} zeros</span>")
    if bad := int(found["nonfinite"]):
        parts.append(f'<span class="bad">{bad:,} NaN or infinite</span>')
    return "".join(parts)


def _number(value: object) -> str:
    return text(f"{value:.3g}" if isinstance(value, int | float) else value).replace(
        "-", "\N{MINUS SIGN}"
    )


def _bars(histogram: Sequence[int]) -> str:
    """A histogram as SVG; a bin that is not empty is always visible."""
    most, path = max(histogram), ""
    for number, count in enumerate(histogram):
        if count:
            height = max(math.ceil(20 * count / most), 1)
            path += f"M{number * 7} 20v-{height}h6v{height}z"
    title = f"<title>{max(histogram):,} elements in the highest bar</title>"
    return f'<svg class="bars" viewBox="0 0 84 20" role="img">{title}<path d="{path}"/></svg>'


def reason(tag: str, hue: str, why: str, hint: str, names: Sequence[str]) -> str:
    """One reason with its hint and the values it applies to; a long list of names is folded."""
    shown = collapse(sorted(map(printable, names), key=natural))
    lines = "".join(
        f"<li><code>{escape(block.text)}</code>{f' ×{block.count}' if block.count > 1 else ''}</li>"
        for block in shown
    )
    listed = f"<ul>{lines}</ul>" if shown else ""
    if len(shown) > _MAX_LISTED:
        listed = f"<details><summary>{len(names):,} values</summary>{listed}</details>"
    advice = f'<p class="hint">→ {text(hint)}</p>' if hint else ""
    mark = f'<span class="tag {hue}">{text(tag)}</span> ' if tag else ""
    return f'<div class="reason"><p>{mark}{text(why)}</p>{advice}{listed}</div>'


def roles() -> list[tuple[str, str, str]]:
    """The tags of a checkpoint's values: role, CSS class of its color, meaning."""
    meanings = {
        "weight": "weights of the model",
        "slot": "state of an optimizer for each weight",
        "iterations": "step count of an optimizer",
        "hyperparameter": "learning rate and similar settings",
        "seed": "state of random generators",
        "metric": "state of metrics",
        "state": "counters and other variables",
        "vocabulary": "lookup tables of preprocessing layers",
        "iterator": "position in a dataset",
        "object": "not a tensor",
    }
    return [(role, hue, meanings[role]) for role, hue in _ROLES.items()]
