"""One page of HTML that needs nothing beside itself: sums, a treemap, a tree of values.

Names come from files that other people wrote. Every text is escaped, characters that do not print
are shown as their escapes, and the page's own policy lets no script run but its own.
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

_OPEN = 60  # so many values are shown at first
_LISTED = 8  # so many lines of names stand open
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
        name: canonical.
        type: type and shape.
        nbytes: its size.
        tag: what it is, or what becomes of it.
        hue: the class of its colour.
        note: what else is to be said.
        statistics: of its numbers, as `inspect --values` has them.
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
    """What a page shows, whatever it is about.

    Attributes:
        title: of the page.
        about: lines below the title.
        head: of the table of sums.
        sums: its rows: a word and the class of its colour, further cells, and what it means.
        items: all values.
        verdict: in a sentence, and the class of its colour.
        reasons: HTML of what is to be said first.
    """

    title: str
    about: Sequence[str]
    head: tuple[str, str]
    sums: Sequence[tuple[str, str, str]]
    items: Sequence[Item]
    verdict: tuple[str, str] | None = None
    reasons: str = ""


def text(value: object) -> str:
    r"""Any text, harmless in HTML.

    >>> print(text("<b>\x1b"))
    &lt;b&gt;\x1b
    """
    return escape(printable(str(value)))


def render(content: Content) -> str:
    """The page."""
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
    yield from (f'<p class="about">{text(line)}</p>' for line in content.about if line)
    if content.verdict is not None:
        words, hue = content.verdict
        yield f'<p class="verdict {hue}">{text(words)}</p>'
    yield "<h2>Sums</h2>"
    yield from _sums(content)
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
        '<div class="tools"><input id="find" type="search" placeholder="find by name or word" '
        'aria-label="find values" autocomplete="off"><output id="found"></output></div>'
    )
    by_name: dict[str, list[Item]] = {}
    for item in content.items:
        by_name.setdefault(item.name, []).append(item)
    yield '<ul class="tree">'
    yield from _tree(root, by_name, _depth(root))
    yield "</ul>"


def _sums(content: Content) -> Iterator[str]:
    """How many values there are of each tag, and how large they are together."""
    counts: dict[str, tuple[int, int]] = {}
    for item in content.items:
        count, nbytes = counts.get(item.tag, (0, 0))
        counts[item.tag] = count + 1, nbytes + item.nbytes
    what, why = content.head
    yield (
        f'<table><tr><th>{what}</th><th class="number">values</th><th class="number">size</th>'
        f'<th class="what">{why}</th></tr>'
    )
    for tag, hue, meaning in content.sums:
        if tag in counts:
            count, nbytes = counts[tag]
            yield _sum_row(f'<span class="tag {hue}">{text(tag)}</span>', count, nbytes, meaning)
    total = sum(item.nbytes for item in content.items)
    yield _sum_row("in all", len(content.items), total, "")
    yield "</table>"


def _sum_row(head: str, count: int, nbytes: int, meaning: str) -> str:
    return (
        f'<tr><td>{head}</td><td class="number">{count:,}</td>'
        f'<td class="number">{size(nbytes)}</td><td class="what">{text(meaning)}</td></tr>'
    )


def _entries(items: Iterable[Item]) -> Iterator[Entry]:
    sizes: dict[str, int] = {}
    for item in items:
        sizes[item.name] = max(sizes.get(item.name, 0), item.nbytes)
    for name, nbytes in sizes.items():
        yield Entry(name, Role.WEIGHT, "", (), nbytes)


def _depth(root: Branch) -> int:
    """How many levels are open at first: as many as show no more than a screen or two."""
    level, depth = list(root.children.values()), 0
    while level:
        below = [child for branch in level for child in branch.children.values()]
        if len(level) + len(below) > _OPEN:
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
    """A bar for each part; one that holds anything can be seen."""
    most, path = max(histogram), ""
    for number, count in enumerate(histogram):
        if count:
            height = max(math.ceil(20 * count / most), 1)
            path += f"M{number * 7} 20v-{height}h6v{height}z"
    title = f"<title>{max(histogram):,} values in the highest bar</title>"
    return f'<svg class="bars" viewBox="0 0 84 20" role="img">{title}<path d="{path}"/></svg>'


def reason(tag: str, hue: str, why: str, hint: str, names: Sequence[str]) -> str:
    """Values that something is to be said of; a long list of them is folded."""
    shown = collapse(sorted(map(printable, names), key=natural))
    lines = "".join(
        f"<li><code>{escape(block.text)}</code>{f' ×{block.count}' if block.count > 1 else ''}</li>"
        for block in shown
    )
    listed = f"<ul>{lines}</ul>" if shown else ""
    if len(shown) > _LISTED:
        listed = f"<details><summary>{len(names):,} values</summary>{listed}</details>"
    told = f'<p class="hint">→ {text(hint)}</p>' if hint else ""
    mark = f'<span class="tag {hue}">{text(tag)}</span> ' if tag else ""
    return f'<div class="reason"><p>{mark}{text(why)}</p>{told}{listed}</div>'


def roles() -> list[tuple[str, str, str]]:
    """The rows of sums where values are told apart by role."""
    meanings = {
        "weight": "what the model learned",
        "slot": "what an optimizer keeps of each weight",
        "iterations": "steps of an optimizer",
        "hyperparameter": "the learning rate and its like",
        "seed": "states of random generators",
        "metric": "sums of metrics",
        "state": "counters and other variables",
        "vocabulary": "words and bins that layers look up",
        "iterator": "the place in the data",
        "object": "what is no tensor",
    }
    return [(role, hue, meanings[role]) for role, hue in _ROLES.items()]
